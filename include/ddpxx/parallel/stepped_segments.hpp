// ddpxx/parallel/stepped_segments.hpp — gradients that live from a segment's first one to its step, inside backward.
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

/// Steps the segments of an arena one by one, and lends each its gradient memory for so long as it needs it: from
/// `open` to `step`. The tensors of the arena stay the same objects; between steps those of the gradients are hollow.
/// Two or three segments of a model have memory at a time, unless several backward passes are added up. Those of more
/// than half of the largest one's size use the same buffers one after the other; what comes on top of three has memory
/// of its own size.
class SteppedSegments {
 public:
  using Step = std::function<void(std::size_t segment)>;

  /// Takes the gradients of `arena` over, whole ones or pieces. `step(i)` steps the slices of segment `i`.
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
    at::Tensor{arena.gradients()}.set_();  // what they all were views of
    for (const auto& memory : memories_) largest_ = std::max(largest_, memory.numel());
  }
  SteppedSegments(const SteppedSegments&) = delete;
  SteppedSegments& operator=(const SteppedSegments&) = delete;

  /// The gradients of a segment that this rank holds, 1-D.
  const at::Tensor& memory(std::size_t segment) const { return memories_[segment]; }

  /// Before a segment's first gradient: zeros. Nothing if it has been opened.
  void open(std::size_t segment) {
    const auto& memory = memories_[segment];
    if (memory.numel() == 0 || memory.storage().nbytes() > 0) return;
    const c10::NoGradGuard no_grad;
    pool_.lend(memory, open_ < kMostAtATime ? BufferPool::common_room(memory.numel(), largest_) : memory.numel());
    memory.zero_();
    ++open_;
  }
  /// All gradients of a segment are there: steps it, and takes its memory back.
  void step(std::size_t segment) {
    step_(segment);
    drop(segment);
  }
  /// Takes a segment's memory back; its step does not come.
  void drop(std::size_t segment) {
    if (memories_[segment].storage().nbytes() > 0) --open_;
    pool_.take_back(memories_[segment]);
  }

  /// How many gradient memories there have ever been at a time, of all sizes.
  std::size_t buffers_made() const noexcept { return pool_.buffers_made(); }

 private:
  static constexpr int kMostAtATime = 3;

  Step step_;
  std::vector<at::Tensor> memories_;
  std::int64_t largest_ = 0;  ///< Of the memories, in elements.
  int open_ = 0;              ///< Segments that have memory.
  BufferPool pool_;
};

}  // namespace ddpxx
