// A step of so many samples on any number of ranks: how they are divided, and that the losses stay.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/train/check_trainer.hpp>
#include <ddpxx/train/micro_batches.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::global_batch_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(GlobalBatch, IsDividedIntoEqualBatchesOfAtMostTheBatchSize) {
  const auto divided = [](std::int64_t global_batch, std::int64_t largest, std::int64_t ranks) {
    const auto batches = divide_global_batch(global_batch, largest, ranks);
    return std::pair{batches.size, batches.count};
  };
  EXPECT_EQ(divided(16, 16, 1), std::pair(16L, 1L));
  EXPECT_EQ(divided(16, 100, 2), std::pair(8L, 1L));
  EXPECT_EQ(divided(12, 4, 1), std::pair(4L, 3L));
  EXPECT_EQ(divided(12, 4, 2), std::pair(3L, 2L)) << "of six samples, four and two would be batches of two sizes";
  EXPECT_EQ(divided(12, 4, 3), std::pair(4L, 1L));
  EXPECT_EQ(divided(7, 4, 1), std::pair(1L, 7L));
}

TEST(GlobalBatch, IsRefusedWhereTheRanksCannotHaveEqualParts) {
  EXPECT_THAT(
      error_of([] { divide_global_batch(16, 8, 3); }),
      AllOf(HasSubstr("training.global_batch_size=16: 3 ranks cannot have equal parts"), HasSubstr("such as 18")));
}

TEST(GlobalBatch, IsRefusedWhereItCannotBeComputed) {
  TrainingConfig config{.global_batch_size = 48};
  EXPECT_NO_THROW(check_global_batch(config, 48, 2));
  EXPECT_THAT(error_of([&] { check_global_batch(config, 47, 2); }), HasSubstr("the training set has 47 samples"));
  config.cuda_graph = true;
  EXPECT_NO_THROW(check_global_batch(config, 48, 1));
  EXPECT_THAT(error_of([&] { check_global_batch(config, 48, 2); }), HasSubstr("global_batch_size=48 makes 2 of each"));
  config = {.accumulation_steps = 2, .global_batch_size = 48};
  ASSERT_EQ(config.check().size(), 1U);
  EXPECT_EQ(config.check().front().field, "accumulation_steps");
}

using Train = Trainer<GPT, Tokens>;

/// The losses of the steps up to `max_steps`, going on from the snapshot in `folder`.
std::vector<double> train(const std::filesystem::path& folder, int ranks, std::int64_t max_steps) {
  const auto metrics = folder / "metrics.jsonl";
  spawn_ranks(ranks, [&](Group& group) {
    at::manual_seed(3);
    Train::Config config{.batch_size = 4};
    config.training = {.max_steps = max_steps,
                       .max_epochs = 0,
                       .seed = 5,
                       .global_batch_size = kGlobalBatch,
                       .save_dir = (folder / "run").string(),
                       .metrics = metrics.string()};
    const GPTConfig sizes{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0};
    Train{group, std::make_shared<GPT>(sizes, 11, 8), std::make_shared<Tokens>(), config}.fit();
  });
  std::vector<double> losses;
  std::ifstream rows{metrics};
  for (std::string row; std::getline(rows, row);)
    if (const auto values = nlohmann::json::parse(row); values.contains("loss")) losses.push_back(values.at("loss"));
  return losses;
}

TEST(GlobalBatch, HasTheSameLossesWhileRanksComeAndGo) {
  const TemporaryFolder folder;
  const auto expected = train(folder / "alone", 1, 9);
  ASSERT_EQ(expected.size(), 9U);
  train(folder / "many", 3, 3);
  train(folder / "many", 2, 6);
  const auto losses = train(folder / "many", 4, 9);
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << i;
}

}  // namespace
}  // namespace ddpxx::global_batch_test
