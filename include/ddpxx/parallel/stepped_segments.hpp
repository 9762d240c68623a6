// ddpxx/parallel/stepped_segments.hpp — gradient memory that exists from a segment's first gradient to its step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>

namespace ddpxx {

/// Steps the segments of an arena one by one, and gives each its gradient memory from `open` to `step`. The gradient
/// tensors of the arena stay the same objects; between steps they have no memory. Two or three segments have memory at
/// a time, unless several backward passes are added up. Segments of more than half of the largest one's size use the
/// same buffers one after the other; if more than three are open, each further one has memory of its own size.
class SteppedSegments {
 public:
  using Step = std::function<void(std::size_t segment)>;

  /// Frees the gradient memory of `arena`, which holds whole gradients or pieces, and provides it from now on.
  /// `step(i)` steps the slices of segment `i`.
  SteppedSegments(Arena& arena, Step step) : step_{std::move(step)} {
    if (arena.size() == 0) return;
    const c10::NoGradGuard no_grad;
    const auto pieces = arena.gradients().numel() == arena.numel() ? 1 : arena.pieces();
    for (auto& segment : arena.segments()) {
      const bool pinned = segment.values.is_cuda() && arena.gradients().is_cpu();
      const auto& memory = memories_.emplace_back(
          at::empty({segment.size() / pieces}, arena.gradients().options().pinned_memory(pinned)));
      const auto move = [&, begin = segment.begin / pieces](at::Tensor view) {
        view.set_(memory.storage(), view.storage_offset() - begin, view.sizes(), view.strides());
      };
      move(segment.gradient);
      for (const auto& slice : arena.slices())
        if (slice.begin >= segment.begin && slice.end <= segment.end) move(slice.gradients);
      for (auto i = segment.first; i < segment.last; ++i)
        for (const auto& view : {arena[i].gradient, arena[i].gap})
          if (view.defined()) move(view);
      BufferPool::release(memory);
    }
    at::Tensor{arena.gradients()}.set_();  // the memory that all of them were views of
    for (const auto& memory : memories_) largest_ = std::max(largest_, memory.numel());
  }
  SteppedSegments(const SteppedSegments&) = delete;
  SteppedSegments& operator=(const SteppedSegments&) = delete;

  /// The gradients of a segment that this rank holds, 1-D.
  const at::Tensor& memory(std::size_t segment) const { return memories_[segment]; }

  /// Gives a segment gradient memory of zeros, before its first gradient. Does nothing if it has memory.
  void open(std::size_t segment) {
    const auto& memory = memories_[segment];
    if (memory.numel() == 0 || memory.storage().nbytes() > 0) return;
    const c10::NoGradGuard no_grad;
    pool_.lend(memory, open_ < kMaxOpen ? BufferPool::common_size(memory.numel(), largest_) : memory.numel());
    memory.zero_();
    ++open_;
  }
  /// Steps a segment whose gradients are complete, and frees its gradient memory.
  void step(std::size_t segment) {
    step_(segment);
    drop(segment);
  }
  /// Frees the gradient memory of a segment without a step.
  void drop(std::size_t segment) {
    if (memories_[segment].storage().nbytes() > 0) --open_;
    pool_.take_back(memories_[segment]);
  }

 private:
  static constexpr int kMaxOpen = 3;

  Step step_;
  std::vector<at::Tensor> memories_;
  std::int64_t largest_ = 0;  ///< Elements of the largest segment's memory.
  int open_ = 0;              ///< Number of segments that have memory.
  BufferPool pool_;
};

}  // namespace ddpxx
