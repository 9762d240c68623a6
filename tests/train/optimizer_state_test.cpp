// Snapshots keep optimizer states with one tensor for each slice; any other layout is refused.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../rows.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::optimizer_state_test {
namespace {

using testing::HasSubstr;

struct Block : torch::nn::Module, Layer {
  Block() {
    weight = register_parameter("weight", at::randn({Rows::kWidth, Rows::kWidth}) / 3);
    bias = register_parameter("bias", at::zeros({Rows::kWidth}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias).tanh(); }
  at::Tensor weight, bias;
};
struct Network : torch::nn::Module {
  Network() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    out = register_parameter("out", at::randn({1, Rows::kWidth}) / 3);
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    const auto x = run(blocks, batch.inputs);
    return {(at::linear(x, out).squeeze(1) - batch.targets).square().sum()};
  }
  std::vector<std::shared_ptr<Block>> blocks;
  at::Tensor out;
};

/// Two optimizers in one: each steps every other slice, and has moments of its own.
class Composed {
 public:
  using Config = SGDConfig;

  Composed(const Config& config, std::span<const Slice> slices) {
    for (std::size_t i = 0; i < slices.size(); ++i) own_[i % 2].push_back(slices[i]);
    for (std::size_t k = 0; k < 2; ++k) parts_[k].emplace(momentum(config, k), own_[k]);
    moments_.push_back({"momentum_buffer", {}});
    for (std::size_t i = 0; i < slices.size(); ++i)
      moments_[0].slices.push_back(parts_[i % 2]->moments()[0].slices[i / 2]);
  }
  void step(double learning_rate, const std::optional<at::Tensor>& found_inf = {}) {
    for (auto& part : parts_) part->step(learning_rate, found_inf);
  }
  std::span<const Moment> moments() const { return moments_; }
  void resume_at(std::int64_t step) {
    for (auto& part : parts_) part->resume_at(step);
  }

 private:
  static Config momentum(Config config, std::size_t k) {
    config.momentum = k == 0 ? 0.9 : 0.5;
    return config;
  }
  std::vector<Slice> own_[2];
  std::optional<SGD> parts_[2];
  std::vector<Moment> moments_;
};

template <class S>
class OptimizerState : public testing::Test {};
using Strategies = testing::Types<FSDP, ZeRO1>;
TYPED_TEST_SUITE(OptimizerState, Strategies);

TYPED_TEST(OptimizerState, OfTwoOptimizersInOneComesBackBitForBit) {
  const TemporaryFolder folder;
  const auto train = [&](const char* place, std::int64_t steps) {
    spawn_ranks(2, [&](Group& group) {
      using Train = Trainer<Network, Rows, Composed, Float32, TypeParam>;
      typename Train::Config config;
      config.batch_size = 4;
      config.training = {.max_steps = steps, .max_epochs = 0, .seed = 5, .save_dir = (folder / place).string()};
      config.optimizer.learning_rate = 1e-2;
      if constexpr (requires { config.strategy.unit_bytes; }) config.strategy.unit_bytes = 0;
      if constexpr (requires { config.strategy.bucket_bytes; })
        config.strategy.first_bucket_bytes = config.strategy.bucket_bytes = 128;
      at::manual_seed(3);
      Train{group, std::make_shared<Network>(), std::make_shared<const Rows>(), config}.fit();
    });
    return load_snapshot(folder / place).value();
  };
  const auto whole = train("whole", 10);
  train("parts", 5);
  const auto resumed = train("parts", 10);
  ASSERT_EQ(resumed.tensors.size(), whole.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(at::equal(resumed.tensors.at(name), tensor)) << name;
}

Arena two_slices() {
  const auto leaf = [](std::int64_t size) { return at::ones({size}).requires_grad_(); };
  return Arena{{{"a", leaf(16), 0, 0}, {"b", leaf(32), 0, 1}}};
}
std::string refusal(const std::function<std::vector<at::Tensor>(const Arena&)>& tensors) {
  const auto arena = two_slices();
  try {
    moment_part(arena, {"rows", tensors(arena)});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "nothing was refused";
}

TEST(OptimizerStates, OfAnotherLayoutThanTheSlicesIsRefused) {
  const auto options = at::TensorOptions{at::kFloat};
  EXPECT_THAT(
      refusal([&](const Arena&) { return std::vector{at::zeros({48}, options)}; }),
      testing::AllOf(testing::StartsWith("the optimizer's state \"rows\" cannot be kept in snapshots: 1 tensors "
                                         "for 2 slices; a Moment has a tensor for each slice"),
                     HasSubstr("with as many elements as the slice")));
  EXPECT_THAT(refusal([&](const Arena&) {
                return std::vector{at::zeros({16}, options), at::zeros({8}, options)};
              }),
              HasSubstr("tensor 1 is Float [8], where Float [32] is needed"));
  EXPECT_THAT(refusal([&](const Arena&) {
                return std::vector{at::zeros({4, 4}, options), at::zeros({32}, options)};
              }),
              HasSubstr("tensor 0 is Float [4, 4], where Float [16] is needed"));
  EXPECT_THAT(refusal([&](const Arena&) {
                return std::vector{at::zeros({16}, options), at::zeros({64}, options).slice(0, 0, 64, 2)};
              }),
              HasSubstr("tensor 1 is Float [32], not contiguous, where Float [32] is needed"));
  EXPECT_THAT(refusal([&](const Arena&) {
                return std::vector{at::zeros({16}, options), at::Tensor{}};
              }),
              HasSubstr("tensor 1 is undefined"));
  EXPECT_THAT(refusal([&](const Arena&) {
                return std::vector{at::zeros({16}, options), at::zeros({32}, at::kDouble)};
              }),
              HasSubstr("tensor 1 is Double [32], where Float [32] is needed"));
}

TEST(OptimizerStates, OfSomeParametersHaveATensorForEachPartOfThem) {
  const auto arena = two_slices();
  const auto refusal_of_some = [&](std::vector<std::size_t> parameters, const std::vector<at::Tensor>& tensors) {
    EXPECT_EQ(code_of([&] { moment_part(arena, {"rows", tensors, parameters}); }), Errc::config);
    return error_of([&] { moment_part(arena, {"rows", tensors, parameters}); });
  };
  EXPECT_EQ(moment_part(arena, {"rows", {at::zeros({32})}, std::vector<std::size_t>{1}}).ranges.size(), 1U);
  EXPECT_EQ(refusal_of_some({1}, {at::zeros({32}), at::zeros({32})}),
            "the optimizer's state \"rows\" has 2 tensors for 1 parts of its parameters");
  constexpr auto kRefusal =
      "the optimizer's state \"rows\" has no tensor of 32 elements for parameter \"b\": a Moment of some parameters "
      "has one for each SliceEntry of them, 1-D, contiguous and all of one type";
  EXPECT_EQ(refusal_of_some({0, 1}, {at::zeros({16})}), kRefusal);
  EXPECT_EQ(refusal_of_some({1}, {at::zeros({16})}), kRefusal);
  EXPECT_EQ(refusal_of_some({1}, {at::Tensor{}}), kRefusal);
  EXPECT_EQ(refusal_of_some({1}, {at::zeros({64}).slice(0, 0, 64, 2)}), kRefusal);
  EXPECT_EQ(refusal_of_some({1}, {at::zeros({4, 8})}), kRefusal);
  EXPECT_EQ(refusal_of_some({0, 1}, {at::zeros({16}), at::zeros({32}, at::kDouble)}), kRefusal);
}

TEST(RunStates, ListEachTensorThatDiffersFromTheSnapshots) {
  const auto arena = two_slices();
  RunState run{.parts = {values_part(arena), moment_part(arena, {"exp_avg", {at::zeros({16}), at::zeros({32})}})},
               .whole = {{"model.count", at::zeros({}, at::kLong)}},
               .optimizer = "AdamW"};
  Manifest snapshot;
  snapshot.run.optimizer = "AdamW";
  snapshot.tensors = {{"model.a", {at::kFloat, {4, 4}, {}}},
                      {"model.b", {at::kDouble, {32}, {}}},
                      {"model.c", {at::kFloat, {1}, {}}},
                      {"model.count", {at::kLong, {}, {}}},
                      {"optimizer.exp_avg.c", {at::kFloat, {1}, {}}}};
  EXPECT_EQ(code_of([&] { check_state(run, snapshot); }), Errc::storage);
  EXPECT_EQ(error_of([&] { check_state(run, snapshot); }),
            "the snapshot is of another model or optimizer:"
            "\n  model.a: [4, 4] in the snapshot, [16] in the model"
            "\n  model.b: Double in the snapshot, Float in the model"
            "\n  optimizer.exp_avg.a: missing in the snapshot"
            "\n  optimizer.exp_avg.b: missing in the snapshot"
            "\n  model.c: only in the snapshot"
            "\n  optimizer.exp_avg.c: only in the snapshot"
            "\nchoose the configuration it was saved with, or another snapshot or save_dir; its run trained other "
            "parameters of the model: to train these ones, begin a new run in another save_dir, with a model into "
            "which load_model() has read the snapshot");
  run.optimizer.clear();
  EXPECT_THAT(error_of([&] { check_state(run, snapshot); }),
              testing::StartsWith("the snapshot is of another model or optimizer:"
                                  "\n  the optimizer: AdamW in the snapshot, one without a name now\n  model.a: "));
}

TEST(RunStates, OfTypesThatASnapshotCannotHoldAreRefused) {
  const auto check = [](at::ScalarType type) {
    check_types({.parts = {}, .whole = {{"model.angles", at::zeros({2}, type)}}});
  };
  check(at::kHalf);
  EXPECT_EQ(code_of([&] { check(at::kComplexDouble); }), Errc::config);
  EXPECT_EQ(error_of([&] { check(at::kComplexDouble); }),
            "model.angles has the type ComplexDouble, which a snapshot cannot hold: use another type (for complex "
            "numbers, at::view_as_real), or train without save_dir");
  const Arena complex{{{"a", at::zeros({2}, at::kComplexDouble).requires_grad_(), 0, 0}}};
  EXPECT_THAT(error_of([&] { check_types({.parts = {values_part(complex)}}); }),
              testing::StartsWith("model.a has the type ComplexDouble, which"));
}

}  // namespace
}  // namespace ddpxx::optimizer_state_test
