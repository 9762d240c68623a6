// TrainStep: batches from any source, gradients that hooks see, and results that are read later.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include <c10/util/Type.h>
#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/muon.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/hooks/post_local_sgd.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/step_batches.hpp>
#include <ddpxx/train/train_step.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::train_step_test {
namespace {

using testing::HasSubstr;

std::shared_ptr<GPT> tiny_gpt() {
  at::manual_seed(3);
  return std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8);
}

/// The loss is the sum of `weight * input` over the batch, so that the gradient is the mean of the inputs.
struct Product : torch::nn::Module {
  Product() { weight = register_parameter("weight", torch::ones({4})); }
  Loss forward(const Batch& batch) { return {(weight * batch.inputs).sum()}; }
  at::Tensor weight;
};
Batch rows_of(double value, std::int64_t rows) { return {torch::full({rows, 4}, value), torch::zeros({rows}), rows}; }

TEST(TrainStep, OfBatchesFromOutsideEqualsTheTrainer) {
  spawn_ranks(2, [&](Group& group) {
    using Train = Trainer<GPT, Tokens, AdamW, Float32, DDP>;
    Train::Config config;
    config.batch_size = 3;
    config.training = {.max_steps = 7, .max_epochs = 0, .seed = 5, .accumulation_steps = 2};
    auto expected = tiny_gpt(), got = tiny_gpt();
    const auto data = std::make_shared<Tokens>();
    Train{group, expected, data, config}.fit();

    TrainStep<GPT> step{group, got, {.optimizer = config.optimizer}};
    StepBatches<Tokens> batches{data, group, {.batch_size = 3, .accumulation_steps = 2, .seed = 5}};
    std::vector<StepDone> rows;
    const auto keep = [&](const CompletedStep& done) { rows.push_back(done.row); };
    for (int i = 0; i < 7; ++i)
      if (const auto done = step.step(batches.next(), {.epoch = 1})) keep(*done);
    EXPECT_EQ(rows.size(), 5U) << "results must come two steps later";
    step.read_all(keep);
    step.make_whole();
    ASSERT_EQ(rows.size(), 7U);
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(rows.back().epoch, 1);
    EXPECT_EQ(step.tokens(), rows.back().tokens);
    for (std::size_t i = 0; i < expected->parameters().size(); ++i)
      EXPECT_TRUE(at::equal(got->parameters()[i], expected->parameters()[i])) << i;
  });
}

TEST(TrainStep, CarriesTheVotesOfAnyRank) {
  spawn_ranks(2, [&](Group& group) {
    TrainStep<Product, SGD> step{group, std::make_shared<Product>(), {}};
    std::vector<CompletedStep> all;
    const auto keep = [&](const CompletedStep& done) { all.push_back(done); };
    const std::vector batches{rows_of(1, 2)};
    step.step(batches, {.votes = {.to_stop = group.rank() == 1}});
    step.step(batches, {.votes = {.asked_to_stop = group.rank() == 0, .snapshot_written = group.rank() == 0}});
    step.read_all(keep);
    step.step(batches, {.votes = {.save_due = true, .snapshot_written = true}});
    step.read_all(keep);
    step.read_all(keep);  // nothing is left to read
    ASSERT_EQ(all.size(), 3U);
    EXPECT_TRUE(all[0].votes.to_stop && !all[0].votes.asked_to_stop && !all[0].votes.save_due);
    EXPECT_TRUE(all[1].votes.asked_to_stop && !all[1].votes.to_stop && !all[1].votes.snapshot_written);
    EXPECT_TRUE(all[2].votes.save_due && all[2].votes.snapshot_written);
    EXPECT_EQ(all[0].targets, 4);
  });
}

/// The second rank holds no element of the four, and its share of the norm must have their type.
template <class Strategy>
class ShardsOfFewDoubles : public testing::Test {};
using Sharding = testing::Types<ZeRO1, ZeRO2, FSDP>;
TYPED_TEST_SUITE(ShardsOfFewDoubles, Sharding);

TYPED_TEST(ShardsOfFewDoubles, AreClippedByTheNormOfAllRanks) {
  spawn_ranks(2, [&](Group& group) {
    const auto model = std::make_shared<Product>();
    model->to(at::kDouble);
    TrainStep<Product, SGD, Float32, TypeParam> step{
        group, model, {.grad_norm_clip = 1.0, .optimizer = {.learning_rate = 0.1}}};
    step.step(std::vector{Batch{at::full({2, 4}, 3.0, at::kDouble), at::zeros({2}), 2}});
    double norm = 0;
    step.read_all([&](const CompletedStep& done) { norm = done.row.grad_norm; });
    step.make_whole();
    EXPECT_DOUBLE_EQ(norm, 6.0);  // of four times 3
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(model->weight[i].template item<double>(), 1 - 0.1 * 0.5, 1e-6) << i;
  });
}

/// The square of this norm is larger than the largest float16.
TEST(TrainStep, InBackwardReportsALargeNormInFloat16) {
  spawn_ranks(2, [](Group& group) {
    const auto model = std::make_shared<Product>();
    model->to(at::kHalf);
    TrainStep<Product, SGD, Float32, StepInBackward<DDP>> step{group, model, {.grad_norm_clip = 0}};
    step.step(std::vector{Batch{at::full({2, 4}, 200.0, at::kHalf), at::zeros({2}), 2}});
    double norm = 0;
    step.read_all([&](const CompletedStep& done) { norm = done.row.grad_norm; });
    EXPECT_DOUBLE_EQ(norm, 400.0);  // of four times 200
  });
}

/// The ranks of these strategies step different gradients.
TEST(TrainStep, OfRanksThatDriftReportsTheMeanOfTheirNorms) {
  spawn_ranks(2, [&](Group& group) {
    TrainStep<Product, SGD, Float32, DDPWith<NoSync>> step{group, std::make_shared<Product>(), {.grad_norm_clip = 0}};
    step.step(std::vector{rows_of(group.rank() == 0 ? 1 : 3, 2)});
    double norm = 0;
    step.read_all([&](const CompletedStep& done) { norm = done.row.grad_norm; });
    EXPECT_DOUBLE_EQ(norm, (2.0 + 6.0) / 2);  // of four equal numbers, 1 on one rank and 3 on the other
  });
}

TEST(TrainStep, OfRanksThatDriftEndsOnAllOfThemWhereOneHasNoNumber) {
  spawn_ranks(2, [&](Group& group) {
    TrainStep<Product, SGD, Float32, DDPWith<NoSync>> step{group, std::make_shared<Product>(), {.grad_norm_clip = 0}};
    step.before_optimizer_step([&](std::span<const Slice> slices) {
      if (group.rank() == 1) slices.front().gradients.fill_(NAN);
    });
    step.step(std::vector{rows_of(1, 2)});
    try {
      step.read_all([](const CompletedStep&) {});
      ADD_FAILURE() << "rank " << group.rank() << " went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::numerics);
      EXPECT_THAT(error.what(), HasSubstr("step=1"));
    }
  });
}

template <class Strategy>
class BeforeTheOptimizerStep : public testing::Test {};
using Strategies = testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP>;
TYPED_TEST_SUITE(BeforeTheOptimizerStep, Strategies);

TYPED_TEST(BeforeTheOptimizerStep, AHookSeesAveragedGradientsBeforeTheClipAndMayChangeThem) {
  constexpr int kRanks = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  spawn_ranks(kRanks, [&](Group& group) {
    auto model = std::make_shared<Product>();
    TrainStep<Product, SGD, Float32, TypeParam> step{
        group, model, {.grad_norm_clip = 1.0, .optimizer = {.learning_rate = 1.0}}};
    std::vector<std::string> order;
    double seen = 0;
    step.before_optimizer_step([&](std::span<const Slice> slices) {
      order.push_back("first");
      for (const auto& slice : slices) seen += slice.gradients.sum().template item<double>();
    });
    step.before_optimizer_step([&](std::span<const Slice> slices) {
      order.push_back("second");
      for (const auto& slice : slices) slice.gradients.mul_(0.25);
    });
    // Each rank has two micro-batches with the mean 2, so the gradient of each of the four weights is 2.
    step.step(std::vector{rows_of(1, 3), rows_of(3, 3)});
    EXPECT_EQ(order, (std::vector<std::string>{"first", "second"}));
    auto sum = step.strategy().sum_over_shards(torch::tensor(seen));
    EXPECT_NEAR(sum.template item<double>(), 8, 1e-6);
    std::vector<StepDone> rows;
    step.read_all([&](const CompletedStep& done) { rows.push_back(done.row); });
    step.make_whole();
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_NEAR(rows[0].grad_norm, 1.0, 1e-6) << "expected the norm of the changed gradients: four times 0.5";
    EXPECT_TRUE(at::allclose(model->weight, torch::full({4}, 0.5)));
  });
}

/// Steps values of 3, which a hook sets, by a gradient and a rate of 1.
template <class Precision, class Strategy>
void expect_step_of_changed_values(Group& group) {
  auto model = std::make_shared<Product>();
  TrainStep<Product, SGD, Precision, Strategy> step{
      group, model, {.grad_norm_clip = 0.0, .optimizer = {.learning_rate = 1.0}}};
  step.before_optimizer_step([](std::span<const Slice> slices) {
    for (const auto& slice : slices) slice.values.fill_(3.0);
  });
  step.step(std::vector{rows_of(1, 2)});
  step.read_all([](const CompletedStep&) {});
  step.make_whole();
  EXPECT_TRUE(at::equal(model->weight, at::full_like(model->weight, 2.0))) << model->weight;
}

TYPED_TEST(BeforeTheOptimizerStep, AHookMayChangeTheParametersInTheirSlices) {
  constexpr int kRanks = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  spawn_ranks(kRanks, [](Group& group) {
    expect_step_of_changed_values<Float32, TypeParam>(group);
    expect_step_of_changed_values<LowPrecision<>, TypeParam>(group);
  });
}

TYPED_TEST(BeforeTheOptimizerStep, TheValuesOfSlicesMayBeChangedBetweenTwoSteps) {
  constexpr int kRanks = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  spawn_ranks(kRanks, [&](Group& group) {
    auto model = std::make_shared<Product>();
    TrainStep<Product, SGD, Float32, TypeParam> step{
        group, model, {.grad_norm_clip = 0, .optimizer = {.learning_rate = 0.25}}};
    for (int i = 0; i < 2; ++i) {
      step.step(std::vector{rows_of(1, 2)});
      step.strategy().wait_pending();
      for (const auto& slice : step.strategy().slices()) at::Tensor{slice.values}.clamp_(-0.125, 0.125);
      step.strategy().finish_step();
    }
    step.step(std::vector{rows_of(1, 2)});
    step.make_whole();
    EXPECT_TRUE(at::allclose(model->weight, torch::full({4}, -0.125 - 0.25)));
  });
}

TYPED_TEST(BeforeTheOptimizerStep, GradientsAreClippedByValueAndThenByTheirNorm) {
  constexpr int kRanks = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  const auto inputs = torch::tensor({10.0F, 0.1F, -5.0F, 0.2F});
  auto expected = torch::ones({4}).requires_grad_();
  expected.mutable_grad() = inputs.clone();
  torch::nn::utils::clip_grad_value_(expected, 1.0);
  torch::nn::utils::clip_grad_norm_(expected, 1.0);
  spawn_ranks(kRanks, [&](Group& group) {
    auto model = std::make_shared<Product>();
    TrainStep<Product, SGD, Float32, TypeParam> step{
        group, model, {.grad_norm_clip = 1.0, .grad_value_clip = 1.0, .optimizer = {.learning_rate = 1.0}}};
    step.step(std::vector{Batch{inputs.unsqueeze(0), torch::zeros({1}), 1}});
    std::vector<StepDone> rows;
    step.read_all([&](const CompletedStep& done) { rows.push_back(done.row); });
    step.make_whole();
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_NEAR(rows[0].grad_norm, inputs.norm().item<double>(), 1e-5) << "the reported norm is that before clipping";
    EXPECT_TRUE(at::allclose(model->weight, torch::ones({4}) - expected.grad())) << model->weight;
  });
}

TEST(TrainStep, LeavesOutABatchWhoseLossOverflowsInHalfPrecision) {
  Group alone;
  auto model = std::make_shared<Product>();
  TrainStep<Product, SGD, AutocastFP16, SingleDevice> step{alone, model, {}};
  std::vector<CompletedStep> done;
  for (const double value : {2.0, std::numeric_limits<double>::infinity(), 2.0})
    if (auto one = step.step(std::vector{rows_of(value, 3)})) done.push_back(*one);
  step.read_all([&](const CompletedStep& one) { done.push_back(one); });
  ASSERT_EQ(done.size(), 3U);
  EXPECT_FALSE(std::isfinite(done[1].row.loss));
  EXPECT_EQ(done[1].row.skipped_steps, 1);
  EXPECT_EQ(done[2].row.skipped_steps, 1);
  EXPECT_TRUE(std::isfinite(done[2].row.loss));
}

TEST(TrainStep, GoesOnWhereALossOverflowsOnOneOfTheRanksThatDrift) {
  spawn_ranks(2, [](Group& group) {
    TrainStep<Product, SGD, AutocastFP16, DDPWith<PostLocalSGD>> step{
        group, std::make_shared<Product>(), {.strategy = {.hook = {.start_step = 0, .period = 100}}}};
    std::vector<CompletedStep> done;
    for (const double value : {2.0, group.rank() == 1 ? std::numeric_limits<double>::infinity() : 2.0, 2.0})
      if (auto one = step.step(std::vector{rows_of(value, 3)})) done.push_back(*one);
    step.read_all([&](const CompletedStep& one) { done.push_back(one); });
    ASSERT_EQ(done.size(), 3U);
    EXPECT_FALSE(std::isfinite(done[1].row.loss));
    EXPECT_TRUE(std::isfinite(done[2].row.loss));
  });
}

TEST(TrainStep, AddsParametersToTheirMovingAverageAfterTheRanksHaveAveragedThem) {
  spawn_ranks(2, [](Group& group) {
    const auto model = std::make_shared<Product>();
    TrainStep<Product, SGD, Float32, DDPWith<PostLocalSGD>> step{
        group,
        model,
        {.grad_norm_clip = 0.0,
         .ema_decay = 0.5,
         .optimizer = {.learning_rate = 1.0},
         .strategy = {.hook = {.start_step = 0, .period = 1}}}};
    at::Tensor average;
    for (int i = 0; i < 3; ++i) {
      step.step(std::vector{rows_of(1.0 + group.rank(), 3)});
      const auto weight = model->weight.detach().clone();
      average = average.defined() ? average.lerp(weight, 0.5) : weight;
    }
    EXPECT_EQ(average[0].item<double>(), -2.375);  // of 1 - 1.5, 1 - 3 and 1 - 4.5
    step.show_average();
    EXPECT_TRUE(at::equal(model->weight, average)) << model->weight;
    EXPECT_THAT(error_of([&] { step.step(std::vector{rows_of(1.0, 3)}); }),
                HasSubstr("step() was called while the model has the moving average of its parameters"));
    EXPECT_THAT(error_of([&] { step.state(); }), HasSubstr("state() was called while"));
    step.show_parameters();
    step.read_all([](const CompletedStep&) {});
  });
}

TEST(TrainStep, BeginsWithoutMomentsAfterASnapshotThatHasNone) {
  Group alone;
  TrainStep<Product, SGD, Float32, SingleDevice> step{
      alone, std::make_shared<Product>(), {.optimizer = {.momentum = 0.9}}};
  step.step(std::vector{rows_of(2, 3)});
  const auto momentum = [&] {
    for (const auto& part : step.state().parts)
      if (part.prefix.starts_with("optimizer.")) return part.ranges[0].values;
    return at::Tensor{};
  };
  ASSERT_TRUE(momentum().defined());
  EXPECT_TRUE(momentum().ne(0).any().item<bool>());
  step.resume_at(5, 0, {.optimizer = false, .average = false, .scale = false});
  EXPECT_TRUE(momentum().eq(0).all().item<bool>()) << momentum();
}

/// A tensor of the state that a step changes, by its name in a snapshot.
at::Tensor state_of(const auto& step, const std::string& name) {
  for (const auto& [key, tensor] : step.state().whole)
    if (key == name) return tensor;
  return {};
}

template <class Optimizer>
class AfterASnapshotOfAModelOnly : public testing::Test {};
using CountingOptimizers = testing::Types<AdamW, Muon, LAMB>;
TYPED_TEST_SUITE(AfterASnapshotOfAModelOnly, CountingOptimizers);

TYPED_TEST(AfterASnapshotOfAModelOnly, TheOptimizerStepsLikeANewOne) {
  Group alone;
  const auto expect_new = [&]<class Strategy>(const Strategy*) {
    TrainStep<GPT, TypeParam, Float32, Strategy> step{alone, tiny_gpt(), {.grad_norm_clip = 0}},
        fresh{alone, tiny_gpt(), {.grad_norm_clip = 0}};
    const auto batch = Tokens{}.batch(std::vector<std::int64_t>{0, 1, 2});
    for (int i = 0; i < 3; ++i) step.step(std::vector{batch});
    for (const auto& parameter : fresh.model().named_parameters()) {
      const c10::NoGradGuard no_grad;
      step.model().named_parameters()[parameter.key()].copy_(parameter.value());
    }
    step.resume_at(0, 0, {.optimizer = false, .average = false, .scale = false});
    EXPECT_EQ(state_of(step, "optimizer.step").template item<float>(), 0);
    for (auto* each : {&step, &fresh})
      for (int i = 0; i < 2; ++i) each->step(std::vector{batch});
    for (const auto& parameter : fresh.model().named_parameters())
      EXPECT_TRUE(at::equal(step.model().named_parameters()[parameter.key()], parameter.value())) << parameter.key();
  };
  expect_new(static_cast<const SingleDevice*>(nullptr));
  if constexpr (BuiltFromSlices<TypeParam>) expect_new(static_cast<const StepInBackward<SingleDevice>*>(nullptr));
}

TEST(TrainStep, BeginsWithTheFirstLossScaleAfterASnapshotOfAModelOnly) {
  Group alone;
  TrainStep<Product, SGD, AutocastFP16, SingleDevice> step{alone, std::make_shared<Product>(), {}};
  step.step(std::vector{rows_of(2, 3)});
  EXPECT_EQ(state_of(step, "scaler.growth_tracker").item<int>(), 1);
  step.step(std::vector{rows_of(std::numeric_limits<double>::infinity(), 3)});
  EXPECT_EQ(state_of(step, "scaler.scale").item<float>(), 32768);
  step.step(std::vector{rows_of(2, 3)});
  const auto scale = state_of(step, "scaler.scale");
  step.resume_at(5, 0, {});
  EXPECT_EQ(scale.item<float>(), 32768);
  step.resume_at(5, 0, {.optimizer = false, .average = false, .scale = false});
  EXPECT_EQ(scale.item<float>(), 65536) << "the tensor itself is reset, because a captured step reads it";
  EXPECT_EQ(state_of(step, "scaler.growth_tracker").item<int>(), 0);
}

TEST(TrainStep, KeepsTheLossOfTheStepBeforeOneThatAHookHasEnded) {
  Group alone;
  TrainStep<Product, SGD> step{alone, std::make_shared<Product>(), {.optimizer = {.learning_rate = 1e-12}}};
  bool fails = false;
  step.before_optimizer_step([&](std::span<const Slice>) {
    if (fails) throw std::runtime_error{"the hook fails"};
  });
  step.step(std::vector{rows_of(1, 2)});
  fails = true;
  EXPECT_THROW(step.step(std::vector{rows_of(5, 2)}), std::runtime_error);
  fails = false;
  step.step(std::vector{rows_of(2, 2)});
  std::vector<double> losses;
  step.read_all([&](const CompletedStep& done) { losses.push_back(done.row.loss); });
  EXPECT_THAT(losses, testing::ElementsAre(testing::DoubleNear(4, 1e-5), testing::DoubleNear(8, 1e-5)));
}

TEST(TrainStep, ShowsHooksUnscaledGradients) {
  Group alone;
  auto model = std::make_shared<Product>();
  TrainStep<Product, SGD, AutocastFP16, SingleDevice> step{alone, model, {}};
  double seen = 0;
  step.before_optimizer_step([&](std::span<const Slice> slices) {
    for (const auto& slice : slices) seen += slice.gradients.sum().item<double>();
  });
  step.step(std::vector{rows_of(2, 3)});
  EXPECT_NEAR(seen, 8, 1e-2) << "the gradients were shown with the loss scale of 65536";
}

TEST(TrainStep, RefusesAHookWhereParametersAreSteppedInBackward) {
  Group alone;
  TrainStep<Product, SGD, Float32, StepInBackward<SingleDevice>> step{
      alone, std::make_shared<Product>(), {.grad_norm_clip = 0}};
  try {
    step.before_optimizer_step([](std::span<const Slice>) {});
    FAIL() << "a hook was accepted although a step never has all gradients";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), HasSubstr("choose the strategy alone"));
  }
}

/// Three parameters with elements, and six without.
struct PartlyEmpty : torch::nn::Module {
  PartlyEmpty() {
    for (int i = 0; i < 3; ++i) {
      const auto number = std::to_string(i);
      weights.push_back(register_parameter("weight" + number, torch::zeros({2})));
      register_parameter("vector" + number, torch::zeros({0}));
      register_parameter("matrix" + number, torch::zeros({3, 0}));
    }
  }
  Loss forward(const Batch& batch) {
    auto sum = torch::zeros({});
    for (const auto& parameter : parameters()) sum = sum + parameter.sum();
    for (std::int64_t i = 0; const auto& weight : weights) sum = sum + (weight * batch.inputs[0][i++]).sum();
    return {sum};
  }
  std::vector<at::Tensor> weights;
};

/// Python's clip_grad_norm_ adds up one norm for each parameter, those without elements included, by vector operations
/// whose order of addition depends on how many norms there are.
TEST(TrainStep, AddsUpTheNormsOfParametersWithoutElementsToo) {
  Group alone;
  const auto model = std::make_shared<PartlyEmpty>();
  TrainStep<PartlyEmpty, SGD, Float32, SingleDevice> step{alone, model, {.grad_norm_clip = 1e9}};
  at::manual_seed(2);
  std::vector<at::Tensor> expected;
  std::vector<double> norms;
  for (int i = 0; i < 50; ++i) {
    const auto inputs = at::randn({1, 4});
    std::vector<at::Tensor> of_parameters;
    for (int k = 0; k < 3; ++k) {
      of_parameters.push_back(at::linalg_vector_norm((inputs[0][k] + 1).expand({2}).contiguous()));
      for (int empty = 0; empty < 2; ++empty) of_parameters.push_back(at::zeros({}));
    }
    expected.push_back(at::linalg_vector_norm(at::stack(of_parameters)));
    if (const auto done = step.step(std::vector{Batch{inputs, at::zeros({1}), 1}}))
      norms.push_back(done->row.grad_norm);
  }
  step.read_all([&](const CompletedStep& done) { norms.push_back(done.row.grad_norm); });
  ASSERT_EQ(norms.size(), expected.size());
  for (std::size_t i = 0; i < norms.size(); ++i) EXPECT_EQ(norms[i], expected[i].item<double>()) << "step " << i;
}

/// Clips its weight when it is called, as an Embedding with `max_norm` does.
struct Clipped : torch::nn::Module {
  Clipped() { weight = register_parameter("weight", torch::ones({4})); }
  Loss forward(const Batch& batch) {
    {
      const c10::NoGradGuard no_grad;
      weight.clamp_(-0.5, 0.5);
    }
    return {(weight * batch.inputs).sum()};
  }
  at::Tensor weight;
};

template <class Precision, class Strategy>
void expect_refusal_of_lost_change() {
  Group alone;
  TrainStep<Clipped, SGD, Precision, Strategy> step{alone, std::make_shared<Clipped>(), {}};
  try {
    step.step(std::vector{rows_of(1, 2)});
    FAIL() << "the change in forward was accepted, and the next step would have undone it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), HasSubstr("parameter \"weight\" was changed in place"));
  }
  EXPECT_TRUE(step.can_try_again());
}

TEST(TrainStep, RefusesAChangeInPlaceThatTheNextStepWouldUndo) {
  expect_refusal_of_lost_change<Float32, FSDP>();
  expect_refusal_of_lost_change<LowPrecision<>, SingleDevice>();
  expect_refusal_of_lost_change<LowPrecision<>, DDP>();
}

TEST(TrainStep, KeepsAChangeInPlaceWhereTheOptimizerStepsTheMemoryOfTheModel) {
  Group alone;
  auto model = std::make_shared<Clipped>();
  TrainStep<Clipped, SGD, Float32, SingleDevice> step{
      alone, model, {.grad_norm_clip = 0, .optimizer = {.learning_rate = 0.25}}};
  step.step(std::vector{rows_of(1, 2)});
  EXPECT_TRUE(at::allclose(model->weight, torch::full({4}, 0.25)));
}

template <class Strategy>
void expect_one_comparison_of_an_undone_change() {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  Group alone;
  const auto model = std::make_shared<Product>();
  TrainStep<Product, SGD, LowPrecision<>, Strategy> step{alone, model, {}};
  step.step(std::vector{rows_of(1, 2)});
  {
    const c10::NoGradGuard no_grad;
    model->weight.add_(1).sub_(1);
  }
  std::vector<int> comparisons;
  for (int i = 0; i < 3; ++i) {
    int count = 0;
    const InterceptedOperations operations{
        [&](const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
          count += op.schema().name() == "aten::equal" ? 1 : 0;
          op.redispatchBoxed(keys, &stack);
        }};
    step.step(std::vector{rows_of(1, 2)});
    comparisons.push_back(count);
  }
  EXPECT_THAT(comparisons, testing::ElementsAre(1, 0, 0)) << "on a GPU the host waits for each comparison";
}

TEST(TrainStep, ComparesAChangeInPlaceThatWasUndoneInOneStepOnly) {
  expect_one_comparison_of_an_undone_change<SingleDevice>();
  expect_one_comparison_of_an_undone_change<DDP>();
  expect_one_comparison_of_an_undone_change<DataParallel>();
  expect_one_comparison_of_an_undone_change<ZeRO1>();
  expect_one_comparison_of_an_undone_change<ZeRO2>();
}

TEST(TrainStep, KeepsTheErrorOfAnEvaluationWhereTheAverageCannotBeExchangedBack) {
  Group alone;
  const auto model = std::make_shared<Product>();
  TrainStep<Product, SGD, Float32, SingleDevice> step{alone, model, {.ema_decay = 0.5}};
  for (int i = 0; i < 2; ++i) step.step(std::vector{rows_of(1, 2)});
  const auto parameters = model->weight.detach().clone();
  step.show_average();
  const auto average = model->weight.detach().clone();
  EXPECT_FALSE(at::equal(average, parameters));
  {
    // As after an error of a GPU, where each later operation fails.
    const InterceptedOperations failing{[](const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack&) {
      throw std::runtime_error{"the device is lost"};
    }};
    step.take_back_average();
  }
  EXPECT_THAT(error_of([&] { step.step(std::vector{rows_of(1, 2)}); }),
              HasSubstr("step() was called while the model has the moving average of its parameters"));
  step.show_average();
  EXPECT_TRUE(at::equal(model->weight, average)) << "the next evaluation must not take the parameters for the average";
  step.take_back_average();
  EXPECT_TRUE(at::equal(model->weight, parameters));
  EXPECT_NO_THROW(step.step(std::vector{rows_of(1, 2)}));
}

TEST(TrainStep, RefusesToStepOnNothing) {
  Group alone;
  TrainStep<Product, SGD, Float32, SingleDevice> step{alone, std::make_shared<Product>(), {}};
  try {
    step.step(std::vector<Batch>{});
    FAIL() << "a step without batches was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    EXPECT_THAT(error.what(), HasSubstr("step 1 was given no batch"));
  }
}

}  // namespace
}  // namespace ddpxx::train_step_test
