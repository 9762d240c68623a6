// A GPT whose head is tied to the token embedding takes one course under each strategy, with and without the loss in
// chunks, and goes on from its snapshots. So does a model in which two layers share a weight.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include <ddpxx/layers/layer.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "tiny_run.hpp"

namespace ddpxx::tied_head_test {
namespace {

const CourseOptions kTied{.tied_head = true};

const Course& reference() {
  static const Course course = train_course<SingleDevice>(1, kTied);
  return course;
}

TEST(TiedHead, LearnsAndIsInTheSnapshotOnce) {
  EXPECT_LT(reference().losses.back(), 0.95 * reference().losses.front());
  EXPECT_TRUE(reference().state.contains("model.transformer.wte.weight"));
  EXPECT_FALSE(reference().state.contains("model.lm_head.weight"));
  EXPECT_NE(train_course<SingleDevice>(1, {.steps = 1}).losses, reference().losses);
}

template <class S>
class TiedHeadUnder : public testing::Test {};
using Strategies = testing::Types<DDP, ZeRO1, ZeRO2, FSDP, Recompute<FSDP>, Recompute<DDP>>;
TYPED_TEST_SUITE(TiedHeadUnder, Strategies);

TYPED_TEST(TiedHeadUnder, TakesTheCourseOfOneProcess) {
  expect_same_course(train_course<TypeParam>(2, kTied), reference());
  auto options = kTied;
  options.accumulation = 2;
  options.loss_chunk = 5;
  options.stop_at = 7;
  expect_same_course(train_course<TypeParam>(2, options), reference());
}

TEST(TiedHead, TakesTheCourseOfOneProcessInUnitsAndReplicas) {
  expect_same_course(train_course<FSDP>(2, kTied, {.unit_bytes = 0}), reference());
  expect_same_course(train_course<HSDP>(4, kTied, {.shard_size = 2, .fsdp = {}}), reference());
  expect_same_course(train_course<DataParallel>(1, kTied, {.replicas = 2}), reference());
}

TEST(TiedHead, IsSteppedInBackwardAfterBothOfItsGradients) {
  auto options = kTied;
  options.clip = 0;
  expect_same_bits(train_course<StepInBackward<DDP>>(2, options), train_course<DDP>(2, options));
}

TEST(TiedHead, TakesOneCourseInSixteenBits) {
  const auto ddp = train_course<DDP, AdamW, LowPrecision<>>(2, kTied);
  const auto fsdp = train_course<FSDP, AdamW, LowPrecision<>>(2, kTied);
  EXPECT_LT(ddp.losses.back(), 0.95 * ddp.losses.front());
  ASSERT_EQ(fsdp.losses.size(), ddp.losses.size());
  for (std::size_t i = 0; i < ddp.losses.size(); ++i)
    EXPECT_NEAR(fsdp.losses[i], ddp.losses[i], 0x1p-9 * ddp.losses[i]) << "loss of step " << i + 1;
}

/// Two layers that use one weight, with another layer between them: a strategy that shards has three units.
struct First : torch::nn::Module, Layer {
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).tanh(); }
  at::Tensor weight = register_parameter("weight", at::randn({6, 6}) / 2);
};
struct Middle : torch::nn::Module, Layer {
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).tanh(); }
  at::Tensor weight = register_parameter("weight", at::randn({6, 6}) / 2);
};
struct Last : torch::nn::Module, Layer {
  explicit Last(const First& first) : weight{register_parameter("weight", first.weight)} {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight.t()); }
  at::Tensor weight;
};
struct Sandwich : torch::nn::Module {
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    const auto x = batch.inputs.narrow(1, 0, 6).to(at::kFloat) / 17;
    return {(run(*last, run(*middle, run(*first, x))) - x).square().sum()};
  }
  std::shared_ptr<First> first = register_module("first", std::make_shared<First>());
  std::shared_ptr<Middle> middle = register_module("middle", std::make_shared<Middle>());
  std::shared_ptr<Last> last = register_module("last", std::make_shared<Last>(*first));
};

template <class S>
std::vector<at::Tensor> trained_sandwich(Group& group, std::int64_t batch_size,
                                         const typename S::Config& strategy = {}) {
  using Train = Trainer<Sandwich, Tokens, SGD, Float32, S>;
  typename Train::Config config;
  config.batch_size = batch_size;
  config.optimizer.learning_rate = 0.1;
  config.strategy = strategy;
  config.training.max_steps = 6;
  at::manual_seed(3);
  const auto model = std::make_shared<Sandwich>();
  Train{group, model, std::make_shared<const Tokens>(), config}.fit();
  std::vector<at::Tensor> weights;
  for (const auto& weight : model->parameters()) weights.push_back(weight.detach().clone());
  return weights;
}

TEST(WeightOfTwoLayers, TakesTheCourseOfOneProcess) {
  spawn_ranks(2, [](Group& group) {
    Group alone;
    const auto expected = trained_sandwich<SingleDevice>(alone, 8);
    for (const auto& got : {trained_sandwich<DDP>(group, 4), trained_sandwich<FSDP>(group, 4, {.unit_bytes = 0}),
                            trained_sandwich<Recompute<FSDP>>(group, 4, {.inner = {.unit_bytes = 0}})}) {
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-5)) << i;
    }
  });
}

}  // namespace
}  // namespace ddpxx::tied_head_test
