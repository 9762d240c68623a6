// The operations of LibTorch that a step calls. Each costs about a microsecond beside what it computes, and that is
// most of the time of a small step. So these are counted instead of timed.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/train/train_step.hpp>

#include "../counted_operations.hpp"

namespace ddpxx::operations_test {
namespace {

struct Sizes {
  std::int64_t layers = 2, tokens = 12;
  int ranks = 2;
};

/// The operations of one step of a GPT under DDP, on one of the ranks, with AdamW and clipping. A backward pass on the
/// CPU runs in the thread that calls it.
std::int64_t operations(const Sizes& sizes, bool fused) {
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);  // with several, a block computes small products by an operation of LibTorch
  auto group = recording_group(0, sizes.ranks, std::make_shared<Recording>());
  std::int64_t counted = 0;
  {
    auto model = std::make_shared<GPT>(
        GPTConfig{.n_layer = sizes.layers, .n_head = 2, .n_embd = 16, .dropout = 0.0, .fused = fused}, 17,
        sizes.tokens);
    TrainStep<GPT, AdamW, Float32, DDP> step{group, model, {}};
    const auto ids = at::arange(2 * sizes.tokens, at::kLong).view({2, sizes.tokens}) % 17;
    const Batch batch{ids, ids, ids.numel()};
    const auto count = [&] {
      const CountedOperations all;
      step.step(std::span{&batch, 1});
      return CountedOperations::count();
    };
    for (int i = 0; i < 3; ++i) count();  // the numbers of a step are read two steps later
    counted = count();
    EXPECT_EQ(count(), counted) << "a step starts more or fewer operations than the step before";
  }
  group.leave();
  at::set_num_threads(threads);
  return counted;
}

TEST(Operations, OfAFusedBlockAreAtMost100) {
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "without AVX2 a block is computed by the plain operations";
  EXPECT_LE(operations({.layers = 3}, true) - operations({.layers = 2}, true), 100);
}

TEST(Operations, OfAPlainBlockAreAtMost450) {
  EXPECT_LE(operations({.layers = 3}, false) - operations({.layers = 2}, false), 450);
}

TEST(Operations, OutsideOfTheBlocksAreAtMost240) {
  EXPECT_LE(3 * operations({.layers = 2}, false) - 2 * operations({.layers = 3}, false), 240);
}

TEST(Operations, AreAsManyOnMoreRanksAndForMoreTokens) {
  for (const bool fused : {false, true}) {
    const auto few = operations({}, fused);
    EXPECT_EQ(operations({.ranks = 1024}, fused), few);
    EXPECT_EQ(operations({.tokens = 96}, fused), few);
  }
}

TEST(Operations, GrowByEquallyManyForEachLayer) {
  for (const bool fused : {false, true}) {
    const auto of_a_layer = operations({.layers = 3}, fused) - operations({.layers = 2}, fused);
    EXPECT_EQ(operations({.layers = 12}, fused), operations({.layers = 2}, fused) + 10 * of_a_layer);
  }
}

}  // namespace
}  // namespace ddpxx::operations_test
