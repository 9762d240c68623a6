// The gaps between parameters may hold NaN: with each strategy, precision and communication hook, training gives the
// same bits as with zeros in the gaps, with both kinds of clipping and a moving average.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/batched_power_sgd.hpp>
#include <ddpxx/parallel/hooks/compress.hpp>
#include <ddpxx/parallel/hooks/post_local_sgd.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/hooks/quantize.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::gaps_test {
namespace {

constexpr std::int64_t kWidth = 5;

/// Sample i is a row of numbers that depends only on i. `before` is called before each batch.
struct Rows {
  std::int64_t size() const { return 32; }
  Batch batch(std::span<const std::int64_t> indices) const {
    before();
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto inputs = ((rows * 5 + at::arange(kWidth) * 3) % 13 - 6).to(at::kFloat) / 13;
    return {inputs, inputs.square().sum(1), rows.size(0)};
  }
  std::function<void()> before;
};

/// No parameter has a multiple of 16 elements, so that a gap follows each of them.
struct Block : torch::nn::Cloneable<Block>, Layer {
  Block() { reset(); }
  void reset() override {
    weight = register_parameter("weight", at::randn({kWidth, kWidth}) / 2);
    bias = register_parameter("bias", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).tanh() + bias; }
  at::Tensor weight, bias;
};
struct Network : torch::nn::Cloneable<Network> {
  Network() { reset(); }
  void reset() override {
    blocks.clear();
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    frozen = register_parameter("frozen", at::randn({kWidth, kWidth}), /*requires_grad=*/false);
    out = register_parameter("out", at::randn({1, kWidth}) / 2);
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    auto x = at::linear(batch.inputs, frozen);
    for (const auto& block : blocks) x = run(*block, x);
    return {(at::linear(x, out).squeeze(1).to(at::kFloat) - batch.targets).square().sum()};
  }
  std::vector<std::shared_ptr<Block>> blocks;
  at::Tensor frozen, out;
};

/// A tensor with the layout of an arena, from the arena's element `begin` on.
struct Memory {
  at::Tensor values;
  std::int64_t begin = 0;
};

/// Writes NaN into the elements of `memory` that lie in gaps of `arena`; returns their number.
std::int64_t poison(const Memory& memory, const Arena& arena) {
  if (!memory.values.defined() || memory.values.storage().nbytes() == 0) return 0;
  std::int64_t count = 0;
  const c10::NoGradGuard no_grad;
  const auto end = memory.begin + memory.values.numel();
  for (const auto& segment : arena.segments())
    for (auto i = segment.first; i < segment.last; ++i) {
      const auto first = std::max(memory.begin, arena[i].offset + arena[i].numel);
      const auto last = std::min(end, i + 1 < segment.last ? arena[i + 1].offset : segment.end);
      if (first >= last) continue;
      memory.values.narrow(0, first - memory.begin, last - first).fill_(std::numeric_limits<double>::quiet_NaN());
      count += last - first;
    }
  return count;
}

/// How many elements of a rank's memory have been set to NaN, in all steps together.
struct Poisoned {
  std::int64_t values = 0, gradients = 0, moments = 0;

  void poison_gaps(const Arena& arena) {
    for (const auto& segment : arena.segments()) {
      const auto piece = segment.begin + segment.size() / arena.pieces() * arena.piece();
      values += poison({segment.values, segment.begin}, arena);
      values += poison({segment.master, piece}, arena);
      gradients += poison({segment.gradient, piece}, arena);
    }
    if (arena.gradients().defined() && arena.gradients().numel() == arena.numel())
      gradients += poison({arena.gradients(), 0}, arena);
  }
};

/// An optimizer that gives access to its moments.
template <class O>
struct Open : O {
  Open(const typename O::Config& config, std::span<const Slice> slices) : O{config, slices} {
    for (const auto& moment : this->moments())
      for (std::size_t i = 0; i < slices.size(); ++i) memories.push_back({moment.slices[i], slices[i].begin});
  }
  static inline std::vector<Memory> memories;
};

/// One combination of types and settings to train with.
template <int kWorldSize, class S, class P = Float32, class O = AdamW>
struct Way {
  using Train = Trainer<Network, Rows, Open<O>, P, S>;
  using Optimizer = Open<O>;
  static constexpr int kRanks = kWorldSize;
  static constexpr bool kScaled = scales_loss<P>;
  static constexpr bool kKeepsGradients = !steps_in_backward<S>;
  static void set(typename Train::Config& config) {
    // The scale is so high that gradients overflow in the first steps, which are skipped.
    if constexpr (kScaled) config.precision.scaler.initial_scale = 1 << 20;
    if constexpr (requires { config.strategy.replicas; }) config.strategy.replicas = 2;
    if constexpr (requires { config.strategy.unit_bytes; }) config.strategy.unit_bytes = 0;
    if constexpr (requires { config.strategy.hook.start_step; }) config.strategy.hook.start_step = 0;
    if constexpr (requires { config.strategy.hook.min_compression_rate; })
      config.strategy.hook.min_compression_rate = 0.1;
    if constexpr (requires { config.optimizer.momentum; }) config.optimizer.momentum = 0.9;
    if constexpr (steps_in_backward<S>) config.training.grad_norm_clip = 0;
  }
};

struct Course {
  std::vector<nlohmann::json> rows;
  Snapshot snapshot;
};

template <class W>
class Gaps : public testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 12;

  static Course train(bool poisoned) {
    const TemporaryFolder folder;
    spawn_ranks(W::kRanks, [&](Group& group) {
      typename W::Train::Config config;
      config.batch_size = 8 / group.size();
      config.training = {.max_steps = kSteps,
                         .max_epochs = 0,
                         .seed = 5,
                         .grad_norm_clip = 0.5,
                         .grad_value_clip = 0.2,
                         .ema_decay = 0.9,
                         .save_dir = (folder / "run").string(),
                         .eval_every = 4,
                         .metrics = (folder / "metrics.jsonl").string()};
      config.optimizer.learning_rate = 1e-2;
      W::set(config);
      at::manual_seed(3);
      const auto model = std::make_shared<Network>();
      const auto data = std::make_shared<Rows>(), validation = std::make_shared<Rows>();
      data->before = validation->before = [] {};
      W::Optimizer::memories.clear();
      typename W::Train trainer{group, model, data, config, {}, {.validation = validation}};
      Poisoned trainable, frozen;  // a rank's piece of the frozen parameters may have no gap
      if (poisoned)
        data->before = [&] {
          trainable.poison_gaps(trainer.strategy().trainable());
          frozen.poison_gaps(trainer.strategy().frozen());
          for (const auto& memory : W::Optimizer::memories)
            trainable.moments += poison(memory, trainer.strategy().trainable());
        };
      trainer.fit();
      if (!poisoned) return;
      EXPECT_GT(trainable.values, 0);
      EXPECT_GT(trainable.moments, 0);
      if (W::kKeepsGradients) EXPECT_GT(trainable.gradients, 0);
    });
    Course course{{}, load_snapshot(folder / "run").value()};
    std::ifstream file{folder / "metrics.jsonl"};
    for (std::string line; std::getline(file, line);) course.rows.push_back(nlohmann::json::parse(line));
    return course;
  }
};
using Ways =
    testing::Types<Way<1, SingleDevice, AutocastFP16>, Way<1, DataParallel, AutocastFP16>, Way<2, DDP, AutocastFP16>,
                   Way<2, ZeRO1, AutocastFP16>, Way<2, ZeRO2, AutocastFP16>, Way<2, FSDP, AutocastFP16>,
                   Way<2, HSDP, LowPrecision<at::kHalf>>, Way<2, Recompute<FSDP>, LowPrecision<>>,
                   Way<2, DDP, AutocastBF16>, Way<2, ZeRO1, LowPrecision<at::kHalf>>, Way<2, StepInBackward<DDP>>,
                   Way<2, StepInBackward<ZeRO2>>, Way<2, DDPWith<FP16Compress>>,
                   Way<2, DDPWith<Quantize>, AutocastFP16>, Way<2, DDPWith<PowerSGD>, AutocastFP16>,
                   Way<2, DDPWith<BatchedPowerSGD>, AutocastFP16>, Way<2, DDPWith<PostLocalSGD>, Float32, SGD>>;
TYPED_TEST_SUITE(Gaps, Ways);

TYPED_TEST(Gaps, MayHoldNaN) {
  const auto plain = this->train(false), poisoned = this->train(true);
  ASSERT_EQ(poisoned.rows.size(), plain.rows.size());
  for (std::size_t i = 0; i < plain.rows.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "val_loss", "loss_scale", "skipped_steps"})
      EXPECT_EQ(poisoned.rows[i].value(key, -1.0), plain.rows[i].value(key, -1.0)) << key << " of row " << i;
  ASSERT_EQ(poisoned.snapshot.tensors.size(), plain.snapshot.tensors.size());
  for (const auto& [name, tensor] : plain.snapshot.tensors)
    EXPECT_TRUE(at::equal(poisoned.snapshot.tensors.at(name), tensor)) << name;
  if (!TypeParam::kScaled) return;
  std::int64_t skipped = 0;
  for (const auto& row : plain.rows) skipped = row.value("skipped_steps", skipped);
  EXPECT_GT(skipped, 0) << "no gradient overflowed";
  EXPECT_LT(skipped, this->kSteps - 2) << "a skipped step has damaged the steps after it";
}

}  // namespace
}  // namespace ddpxx::gaps_test
