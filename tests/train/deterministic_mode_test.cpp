// training.deterministic: what it sets for the time of a trainer, what it refuses, and that runs repeat.
#include <cstddef>
#include <memory>
#include <stdlib.h>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/deterministic_mode.hpp>
#include <ddpxx/train/trainer.hpp>

#include "training_run.hpp"

namespace ddpxx::deterministic_mode_test {
namespace {

using testing::HasSubstr;
using Train = Trainer<GPT, Tokens>;

Train::Config make_config() {
  Train::Config config;
  config.batch_size = 6;
  config.training = {.max_steps = 5, .max_epochs = 0, .seed = 5, .deterministic = true};
  return config;
}
std::shared_ptr<GPT> make_model() {
  at::manual_seed(3);
  return std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = 0.1}, 11, 8);
}

/// The settings of LibTorch that a deterministic run changes, on a GPU or on a CPU.
std::vector<bool> settings() {
  const auto& context = at::globalContext();
  return {context.deterministicAlgorithms(), context.deterministicAlgorithmsWarnOnly(),
          context.deterministicCuDNN(),      context.deterministicMkldnn(),
          context.benchmarkCuDNN(),          context.deterministicFillUninitializedMemory(),
          context.userEnabledFlashSDP(),     context.userEnabledMemEfficientSDP(),
          context.userEnabledCuDNNSDP(),     context.userEnabledMathSDP()};
}

TEST(DeterministicMode, IsSetForTheTimeOfATrainer) {
  const auto before = settings();
  ASSERT_FALSE(at::globalContext().deterministicAlgorithms());
  Group alone;
  {
    Train trainer{alone, make_model(), std::make_shared<Tokens>(), make_config()};
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    EXPECT_TRUE(at::globalContext().deterministicCuDNN());
    EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
    EXPECT_TRUE(at::globalContext().userEnabledFlashSDP()) << "the fused attention of a CPU repeats its results";
    trainer.fit();
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms()) << "more training may follow";
  }
  EXPECT_EQ(settings(), before);
  auto config = make_config();
  config.training.deterministic = false;
  const Train trainer{alone, make_model(), std::make_shared<Tokens>(), config};
  EXPECT_EQ(settings(), before);
}

TEST(DeterministicMode, RestoresWhatTheProgramHadSet) {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setBenchmarkCuDNN(true);
  const auto before = settings();
  {
    const DeterministicMode mode{{at::kCUDA, 0}};
    EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
    EXPECT_FALSE(context.userEnabledFlashSDP());
    EXPECT_FALSE(context.userEnabledMemEfficientSDP());
    EXPECT_FALSE(context.userEnabledCuDNNSDP());
    EXPECT_TRUE(context.userEnabledMathSDP());
  }
  EXPECT_EQ(settings(), before);
  context.setDeterministicAlgorithms(false, false);
  context.setBenchmarkCuDNN(false);
}

TEST(DeterministicMode, IsRestoredWhereTheTrainerIsRefusedAfterwards) {
  const auto before = settings();
  Group alone;
  auto config = make_config();
  config.training.metrics = "/proc/none/metrics.jsonl";
  EXPECT_THROW((Train{alone, make_model(), std::make_shared<Tokens>(), config}), Error);
  EXPECT_EQ(settings(), before);
}

TEST(DeterministicMode, GivesTwoRunsEqualBits) {
  spawn_ranks(2, [](Group& group) {
    std::vector<std::shared_ptr<GPT>> models;
    for (int run = 0; run < 2; ++run) {
      models.push_back(make_model());
      Train{group, models.back(), std::make_shared<Tokens>(), make_config()}.fit();
    }
    const auto expected = models[0]->parameters(), got = models[1]->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
    EXPECT_FALSE(at::equal(expected[0], make_model()->parameters()[0])) << "nothing was trained";
  });
}

TEST(DeterministicMode, RefusesAGpuWhoseMatrixProductsMayNotRepeat) {
  constexpr const char* kName = "CUBLAS_WORKSPACE_CONFIG";
  const at::Device gpu{at::kCUDA, 0};
  EXPECT_NO_THROW(DeterministicMode::check(at::kCPU));
  for (const char* value : {"", ":0:0", "4096"}) {
    ::setenv(kName, value, 1);
    try {
      DeterministicMode::check(gpu);
      ADD_FAILURE() << "no error for " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_THAT(error.what(), HasSubstr("CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    }
  }
  for (const char* value : {":4096:8", ":16:8"}) {
    ::setenv(kName, value, 1);
    EXPECT_NO_THROW(DeterministicMode::check(gpu)) << value;
  }
  ::unsetenv(kName);
}

TEST(DeterministicMode, IsComparedBetweenRanks) {
  try {
    spawn_ranks(2, [](Group& group) {
      auto config = make_config();
      config.training.deterministic = group.rank() == 0;
      const Train trainer{group, make_model(), std::make_shared<Tokens>(), config};
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("training.deterministic: true on rank 0, false on rank 1"));
  }
}

}  // namespace
}  // namespace ddpxx::deterministic_mode_test
