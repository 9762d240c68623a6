// Every strategy gives the results of one process within rounding, and bit for bit where exact results are possible.
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/lion.hpp>
#include <ddpxx/optim/muon.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>

#include "tiny_run.hpp"

namespace ddpxx::strategies_test {
namespace {

/// Compares with AdamW and clipping, and with SGD without clipping, because AdamW hides a wrong scale of the gradients.
struct WithAdamW {
  template <class Strategy>
  static Course run(int world_size, const typename Strategy::Config& config = {}, CourseOptions options = {}) {
    return train_course<Strategy, AdamW>(world_size, options, config);
  }
};
struct WithSGD {
  template <class Strategy>
  static Course run(int world_size, const typename Strategy::Config& config = {}, CourseOptions options = {}) {
    options.clip = 0;
    return train_course<Strategy, SGD>(world_size, options, config);
  }
};

template <class Optimizer>
class Strategies : public testing::Test {
 protected:
  static const Course& reference() {
    static const Course course = Optimizer::template run<SingleDevice>(1);
    return course;
  }
};
using Optimizers = testing::Types<WithAdamW, WithSGD>;
TYPED_TEST_SUITE(Strategies, Optimizers);

TYPED_TEST(Strategies, TheReferenceLearns) {
  const auto longer = TypeParam::template run<SingleDevice>(1, {}, {.steps = 20});
  EXPECT_LT(longer.losses.back(), 0.95 * longer.losses.front());
}
TYPED_TEST(Strategies, DDP) {
  for (const int world : {1, 2, 4}) expect_same_course(TypeParam::template run<DDP>(world), this->reference());
}
TYPED_TEST(Strategies, ZeRO1) {
  for (const int world : {1, 2, 4})
    expect_same_course(TypeParam::template run<ZeRO1>(world, {.first_bucket_bytes = 512, .bucket_bytes = 8192}),
                       this->reference());
}
TYPED_TEST(Strategies, ZeRO2) {
  for (const int world : {1, 2, 4})
    expect_same_course(TypeParam::template run<ZeRO2>(world, {.first_bucket_bytes = 512, .bucket_bytes = 8192}),
                       this->reference());
}
TYPED_TEST(Strategies, FSDP) {
  for (const int world : {1, 2, 4})
    for (const char* reshard : {"true", "false"})
      for (const std::int64_t unit_bytes : {0, 1 << 20})
        expect_same_course(
            TypeParam::template run<FSDP>(world, {.unit_bytes = unit_bytes, .reshard_after_forward = reshard}),
            this->reference());
  expect_same_course(TypeParam::template run<FSDP>(4, {.unit_bytes = 0, .reshard_after_forward = "2"}),
                     this->reference());
  expect_same_course(TypeParam::template run<FSDP>(2, {.offload = Offload::cpu}), this->reference());
  expect_same_course(TypeParam::template run<FSDP>(2, {.unit_bytes = 0, .check_calls = true}), this->reference());
}
TYPED_TEST(Strategies, HSDP) {
  expect_same_course(TypeParam::template run<HSDP>(4, {.shard_size = 2, .fsdp = {}}), this->reference());
}
TYPED_TEST(Strategies, DataParallel) {
  for (const int replicas : {1, 2, 4})
    expect_same_course(TypeParam::template run<DataParallel>(1, {.replicas = replicas}), this->reference());
}
TYPED_TEST(Strategies, Accumulation) {
  const CourseOptions two{.accumulation = 2};
  expect_same_course(TypeParam::template run<SingleDevice>(1, {}, two), this->reference());
  expect_same_course(TypeParam::template run<DDP>(2, {}, two), this->reference());
  expect_same_course(TypeParam::template run<ZeRO1>(2, {}, two), this->reference());
  expect_same_course(TypeParam::template run<ZeRO2>(2, {}, two), this->reference());
  expect_same_course(TypeParam::template run<FSDP>(2, {}, two), this->reference());
  expect_same_course(TypeParam::template run<FSDP>(2, {.unit_bytes = 0}, two), this->reference());
  expect_same_course(TypeParam::template run<FSDP>(2, {.reduce_each_backward = false}, two), this->reference());
}

/// Dropout is on. Clipping by the norm is off, because the sharded strategies add up the norm in another order than
/// DDP.
const CourseOptions kBits{.dropout = 0.2, .clip = 0};

TEST(SameBits, ShardedStrategiesEqualDDPAtTwoRanks) {
  const auto ddp = train_course<DDP>(2, kBits);
  expect_same_bits(train_course<ZeRO1>(2, kBits), ddp);
  expect_same_bits(train_course<ZeRO2>(2, kBits), ddp);
  expect_same_bits(train_course<FSDP>(2, kBits), ddp);
  expect_same_bits(train_course<FSDP>(2, kBits, {.unit_bytes = 0}), ddp);
  expect_same_bits(train_course<FSDP>(2, kBits, {.unit_bytes = 0, .reshard_after_forward = "false"}), ddp);
  expect_same_bits(train_course<FSDP>(2, kBits, {.unit_bytes = 0, .offload = Offload::cpu}), ddp);
  expect_same_bits(train_course<HSDP>(2, kBits, {.shard_size = 1, .fsdp = {}}), ddp);
}

/// With two ranks all strategies have equal gradients, bit for bit, and each matrix is orthogonalized by one rank only.
TEST(MuonOptimizer, GivesEqualResultsUnderEachStrategyOfTwoRanks) {
  const auto ddp = train_course<DDP, Muon>(2, kBits);
  EXPECT_LT(ddp.losses.back(), 0.95 * ddp.losses.front());
  expect_same_bits(train_course<ZeRO1, Muon>(2, kBits), ddp);
  expect_same_bits(train_course<ZeRO2, Muon>(2, kBits), ddp);
  expect_same_bits(train_course<FSDP, Muon>(2, kBits), ddp);
  expect_same_bits(train_course<FSDP, Muon>(2, kBits, {.unit_bytes = 0}), ddp);
  expect_same_bits(train_course<HSDP, Muon>(2, kBits, {.shard_size = 1, .fsdp = {}}), ddp);
  expect_same_bits(train_course<Recompute<DDP>, Muon>(2, kBits), ddp);
  auto resumed = kBits;
  resumed.stop_at = 7;
  expect_same_bits(train_course<FSDP, Muon>(2, resumed), ddp);
}

/// Matrices are orthogonalized in 16 bits, so rounding grows fast: after one step the parameters differ by 4e-10 of
/// their norm, after twelve by 8e-4, and the losses then differ by 2e-5. The limits are higher, because on another
/// processor more numbers may be rounded the other way.
TEST(MuonOptimizer, GivesEqualResultsInGroupsOfRanks) {
  const HSDPConfig groups{.shard_size = 2, .fsdp = {}};
  auto one_step = kBits;
  one_step.steps = 1;
  expect_same_course(train_course<HSDP, Muon>(4, one_step, groups), train_course<FSDP, Muon>(4, one_step));
  const auto fsdp = train_course<FSDP, Muon>(4, kBits), hsdp = train_course<HSDP, Muon>(4, kBits, groups);
  ASSERT_EQ(fsdp.losses.size(), static_cast<std::size_t>(kBits.steps));
  ASSERT_EQ(hsdp.losses.size(), fsdp.losses.size());
  for (std::size_t i = 0; i < fsdp.losses.size(); ++i) EXPECT_NEAR(hsdp.losses[i], fsdp.losses[i], 5e-4) << i;
}

/// All parameters are matrices, which Muon steps: most ranks have no parameters for its AdamW.
struct Matrices : torch::nn::Module {
  Matrices() {
    for (const char* name : {"a", "b"}) register_parameter(name, at::randn({12, 12}) / 4);
  }
  Loss forward(const Batch& batch) {
    auto x = at::one_hot(batch.inputs.select(1, 0) % 12, 12).to(at::kFloat);
    for (const auto& weight : parameters()) x = at::tanh(at::linear(x, weight));
    return {(x - 0.5).square().sum() * static_cast<double>(batch.num_tokens) / static_cast<double>(x.numel())};
  }
};
TEST(MuonOptimizer, SavesAndResumesAModelOfNothingButMatrices) {
  const TemporaryFolder folder;
  const auto train = [&](const char* place, std::int64_t steps) {
    spawn_ranks(4, [&](Group& group) {
      using Train = Trainer<Matrices, Tokens, Muon, Float32, ZeRO1>;
      Train::Config config;
      config.batch_size = 2;
      config.training = {.max_steps = steps, .max_epochs = 0, .seed = 5, .save_dir = (folder / place).string()};
      at::manual_seed(3);
      Train{group, std::make_shared<Matrices>(), std::make_shared<const Tokens>(), config}.fit();
    });
  };
  train("whole", 6);
  train("parts", 3);
  train("parts", 6);
  const auto whole = load_snapshot(folder / "whole").value(), parts = load_snapshot(folder / "parts").value();
  ASSERT_EQ(whole.tensors.size(), parts.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(at::equal(tensor, parts.tensors.at(name))) << name;
  EXPECT_EQ(whole.tensors.at("optimizer.step").item<float>(), 6);
}

TEST(LAMBOptimizer, GivesEqualResultsUnderEachStrategy) {
  const auto ddp = train_course<DDP, LAMB>(2);
  EXPECT_LT(ddp.losses.back(), ddp.losses.front());
  expect_same_course(train_course<ZeRO1, LAMB>(2), ddp);
  expect_same_course(train_course<ZeRO2, LAMB>(2), ddp);
  expect_same_course(train_course<FSDP, LAMB>(2, {}, {.unit_bytes = 0}), ddp);
  expect_same_course(train_course<HSDP, LAMB>(2, {}, {.shard_size = 1, .fsdp = {}}), ddp);
  expect_same_course(train_course<FSDP, LAMB>(2, {.stop_at = 7}), ddp);
}

/// Lion moves each weight by the sign of its update. Where the gradient is only rounding, the sign differs between one
/// process and two, so the reference is DDP on two ranks.
TEST(LionOptimizer, GivesEqualResultsUnderEachStrategyOfTwoRanks) {
  const auto ddp = train_course<DDP, Lion>(2);
  EXPECT_LT(ddp.losses.back(), 0.95 * ddp.losses.front());
  expect_same_course(train_course<ZeRO1, Lion>(2), ddp);
  expect_same_course(train_course<ZeRO2, Lion>(2), ddp);
  expect_same_course(train_course<FSDP, Lion>(2), ddp);
  expect_same_course(train_course<HSDP, Lion>(2, {}, {.shard_size = 1, .fsdp = {}}), ddp);
  expect_same_course(train_course<Recompute<DDP>, Lion>(2), ddp);
  expect_same_course(train_course<StepInBackward<DDP>, Lion>(2, {.clip = 0}), train_course<DDP, Lion>(2, {.clip = 0}));
}

template <class S>
class SameBitsRecomputed : public testing::Test {};
using Recomputed = testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP, HSDP>;

/// FSDP with a unit for each layer; for other strategies the defaults.
template <class S>
constexpr typename S::Config alone() {
  if constexpr (std::is_same_v<S, FSDP>) return {.unit_bytes = 0};
  return {};
}
TYPED_TEST_SUITE(SameBitsRecomputed, Recomputed);

TYPED_TEST(SameBitsRecomputed, RecomputeEqualsItsStrategy) {
  using Policy = RecomputeConfig::Policy;
  const int world = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  const auto plain = train_course<TypeParam>(world, kBits);
  for (const auto& recompute :
       {RecomputeConfig{}, RecomputeConfig{.policy = Policy::every, .count = 2},
        RecomputeConfig{.policy = Policy::segments, .count = 2}, RecomputeConfig{.policy = Policy::selective}}) {
    expect_same_bits(train_course<Recompute<TypeParam>>(world, kBits, {.recompute = recompute}), plain);
    if (std::is_same_v<TypeParam, FSDP>)
      expect_same_bits(
          train_course<Recompute<TypeParam>>(world, kBits, {.inner = alone<TypeParam>(), .recompute = recompute}),
          plain);
  }
}

TEST(StateBytes, AreShardedAsTheStrategySays) {
  const auto ddp = static_cast<double>(train_course<DDP>(2, {.steps = 1}).state_bytes);
  EXPECT_LE(train_course<ZeRO1>(2, {.steps = 1}).state_bytes, 0.80 * ddp);
  EXPECT_LE(train_course<ZeRO2>(2, {.steps = 1}).state_bytes, 0.70 * ddp);
  EXPECT_LE(train_course<FSDP>(2, {.steps = 1}).state_bytes, 0.60 * ddp);
}

}  // namespace
}  // namespace ddpxx::strategies_test
