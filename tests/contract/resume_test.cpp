// A snapshot holds all state that a step changes: a run that stops, and resumes from other initial values, gives the
// bits of an uninterrupted run.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::resume_test {
namespace {

constexpr std::int64_t kSamples = 32, kFeatures = 6, kHidden = 16;

/// Sample i is a row of numbers that depends only on i.
struct Features {
  std::int64_t size() const { return kSamples; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto inputs = ((rows * 5 + at::arange(kFeatures) * 3) % 13 - 6).to(at::kFloat) / 13;
    return {inputs, inputs.square().sum(1), rows.size(0)};
  }
};

/// Has all kinds of state: a frozen weight, and buffers of two types that forward changes and that change its result.
struct Network : torch::nn::Cloneable<Network> {
  explicit Network(double drop_rate) : dropout{drop_rate} { reset(); }
  void reset() override {
    frozen = register_parameter("frozen", at::randn({kHidden, kFeatures}), /*requires_grad=*/false);
    hidden = register_parameter("hidden", at::randn({kHidden, kHidden}) / 4);
    out = register_parameter("out", at::randn({1, kHidden}) / 4);
    mean = register_buffer("mean", at::randn({kHidden}));
    calls = register_buffer("calls", at::randint(5, {1}, at::kLong));
  }
  Loss forward(const Batch& batch) {
    auto x = at::linear(batch.inputs, frozen);
    {
      const torch::NoGradGuard no_grad;
      mean.lerp_(x.to(mean.scalar_type()).mean(0), 0.1);
      calls.add_(1);
    }
    x = (x - mean.to(x.scalar_type())).tanh() + 0.1 * (calls % 3);
    x = at::dropout(at::linear(x.to(batch.inputs.scalar_type()), hidden).tanh(), dropout, is_training());
    return {(at::linear(x, out).squeeze(1).to(at::kFloat) - batch.targets).square().sum()};
  }
  double dropout;
  at::Tensor frozen, hidden, out, mean, calls;
};

/// One combination of types and settings to train with.
template <int kWorldSize, class S, class O = AdamW, class P = Float32>
struct Way {
  using Train = Trainer<Network, Features, O, P, S>;
  static constexpr int kRanks = kWorldSize;
  static constexpr double kDropout = 0.2;
  static void set(typename Train::Config&) {}
};
struct Alone : Way<1, SingleDevice> {};
struct Replicated : Way<2, DDP> {};
struct WithMomentum : Way<2, FSDP, SGD> {
  static void set(Train::Config& config) {
    config.optimizer.momentum = 0.9;
    config.optimizer.dampening = 0.1;
    config.optimizer.learning_rate = 1e-2;
  }
};
struct Offloaded : Way<2, FSDP> {
  static void set(Train::Config& config) { config.strategy.offload = Offload::cpu; }
};
struct InOneProcess : Way<1, DataParallel> {
  static void set(Train::Config& config) { config.strategy.replicas = 2; }
};
struct InSixteenBits : Way<2, ZeRO2, AdamW, LowPrecision<>> {};
/// The scale falls in the first steps, which overflow and are skipped; then it grows and falls before and after the
/// save.
struct WithScaledLoss : Way<2, DDP, AdamW, AutocastFP16> {
  static constexpr double kInitialScale = 1 << 17;
  static void set(Train::Config& config) {
    config.precision.scaler.initial_scale = kInitialScale;
    config.precision.scaler.growth_interval = 3;
  }
};

template <class W>
class ResumedRun : public testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 14, kStop = 7;

  /// Trains up to a step, resuming from the snapshot in the folder if there is one. State that is missing in the
  /// snapshot would keep the values that `seed` gives.
  Snapshot train(const char* folder, std::int64_t steps, std::uint64_t seed) const {
    spawn_ranks(W::kRanks, [&](Group& group) {
      typename W::Train::Config config;
      config.batch_size = 8 / group.size();
      config.training = {
          .max_steps = steps, .max_epochs = 0, .seed = 5, .ema_decay = 0.9, .save_dir = (folder_ / folder).string()};
      config.optimizer.learning_rate = 5e-3;
      config.snapshot.keep_last = 0;
      W::set(config);
      at::manual_seed(seed);
      auto model = std::make_shared<Network>(W::kDropout);
      typename W::Train{group, model, std::make_shared<const Features>(), config}.fit();
    });
    return load_snapshot(folder_ / folder).value();
  }

 private:
  TemporaryFolder folder_;
};
using Ways = testing::Types<Alone, Replicated, WithMomentum, Offloaded, InOneProcess, InSixteenBits, WithScaledLoss>;
TYPED_TEST_SUITE(ResumedRun, Ways);

TYPED_TEST(ResumedRun, IsTheWholeRunBitForBit) {
  const auto whole = this->train("whole", this->kSteps, 3);
  const auto stopped = this->train("parts", this->kStop, 3);
  const auto resumed = this->train("parts", this->kSteps, 99);
  ASSERT_EQ(resumed.run.step, this->kSteps);
  for (const char* name : {"model.frozen", "model.hidden", "model.mean", "model.calls", "optimizer.ema.out"})
    EXPECT_TRUE(whole.tensors.contains(name)) << name;
  ASSERT_EQ(resumed.tensors.size(), whole.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(at::equal(resumed.tensors.at(name), tensor)) << name;
  for (const char* name : {"model.hidden", "model.mean", "model.calls", "optimizer.ema.out"})
    EXPECT_FALSE(at::equal(stopped.tensors.at(name), whole.tensors.at(name)))
        << name << " must change after the run was stopped";
  if constexpr (std::is_same_v<TypeParam, WithScaledLoss>) {
    EXPECT_LT(stopped.tensors.at("scaler.scale").template item<double>(), WithScaledLoss::kInitialScale);
    EXPECT_NE(stopped.tensors.at("scaler.growth_tracker").template item<int>(), 0);
  }
}

}  // namespace
}  // namespace ddpxx::resume_test
