// The tensors that a step allocates, and the memory that it takes from the system. LibTorch allocates the memory of
// each tensor anew, so these are counted. A program that keeps freed blocks takes that memory from the system only
// once.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/heap.hpp>
#include <ddpxx/core/vector_instructions.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/train_step.hpp>

namespace ddpxx::allocations_test {
namespace {

using Step = TrainStep<GPT, AdamW, Float32, DDP>;

constexpr std::int64_t kVocabulary = 17;

std::shared_ptr<GPT> model(std::int64_t layers, std::int64_t tokens) {
  const GPTConfig config{.n_layer = layers, .n_head = 2, .n_embd = 64, .dropout = 0.0, .fused = true};
  return std::make_shared<GPT>(config, kVocabulary, tokens);
}

Batch batch(std::int64_t samples, std::int64_t tokens) {
  const auto ids = at::arange(samples * tokens, at::kLong).view({samples, tokens}) % kVocabulary;
  return {ids, ids, ids.numel()};
}

/// What the tensors of this thread have allocated and freed while the object was in use.
struct TensorMemory final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    allocations += bytes > 0 ? 1 : 0;
    held += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t allocations = 0;
  std::int64_t held = 0;  ///< Bytes that are allocated and not yet freed.
};

/// The tensors that a step under DDP allocates, on one of `ranks` ranks.
std::int64_t allocations(std::int64_t layers, std::int64_t tokens, int ranks) {
  at::set_num_threads(1);
  const auto memory = std::make_shared<TensorMemory>();
  const c10::DebugInfoGuard in_use{c10::DebugInfoKind::PROFILER_STATE, memory};
  auto group = recording_group(0, ranks, std::make_shared<Recording>());
  std::int64_t counted = 0;
  {
    Step step{group, model(layers, tokens), {}};
    const auto example = batch(2, tokens);
    const auto count = [&] {
      const auto before = memory->allocations;
      step.step(std::span{&example, 1});
      return memory->allocations - before;
    };
    for (int i = 0; i < 4; ++i) count();  // the numbers of a step are read two steps later
    const auto held = memory->held;
    counted = count();
    EXPECT_EQ(memory->held, held) << "a step keeps memory";
    EXPECT_EQ(count(), counted) << "a step allocates more or fewer tensors than the step before";
  }
  group.leave();
  return counted;
}

TEST(Allocations, AreAsManyOnMoreRanksAndForMoreTokens) {
  const auto on_two_ranks = allocations(2, 12, 2);
  EXPECT_EQ(allocations(2, 12, 1024), on_two_ranks);
  EXPECT_EQ(allocations(2, 96, 2), on_two_ranks);
}

TEST(Allocations, OfAFusedBlockAreAtMost45) {
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "without AVX2 a block is computed by the plain operations";
  EXPECT_LE(allocations(3, 12, 2) - allocations(2, 12, 2), 45);
}

TEST(Allocations, OutsideOfTheBlocksAreAtMost60) {
  EXPECT_LE(3 * allocations(2, 12, 2) - 2 * allocations(3, 12, 2), 60);
}

TEST(Allocations, GrowByEquallyManyForEachLayer) {
  const auto of_a_layer = allocations(3, 12, 2) - allocations(2, 12, 2);
  EXPECT_EQ(allocations(5, 12, 2), allocations(2, 12, 2) + 3 * of_a_layer);  // all in one bucket
}

TEST(Allocations, TakeNoMemoryFromTheSystemInASteadyStep) {
  if (!detail::glibc_allocates() || !detail::heap_may_grow()) GTEST_SKIP() << "the heap cannot keep freed blocks here";
  spawn_ranks(2, [](Group& group) {
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // a huge page would hide that the system gives 512 pages
    keep_freed_blocks();
    constexpr int kSteps = 5;
    Step step{group, model(1, 128), {}};
    const auto example = batch(8, 128);
    const auto run = [&] {
      for (int i = 0; i < kSteps; ++i) step.step(std::span{&example, 1});
    };
    const auto page_faults = [&] {
      ::rusage before{}, after{};
      ::getrusage(RUSAGE_SELF, &before);
      run();
      ::getrusage(RUSAGE_SELF, &after);
      return after.ru_minflt - before.ru_minflt;
    };
    for (int i = 0; i < 12; ++i) run();  // until the freed blocks have room for all tensors of a step
    // Without kept blocks a step gets hundreds of pages. The system may give a page for other reasons, now and
    // then.
    const auto faults = std::min({page_faults(), page_faults(), page_faults()});
    EXPECT_LT(faults, kSteps);
  });
}

}  // namespace
}  // namespace ddpxx::allocations_test
