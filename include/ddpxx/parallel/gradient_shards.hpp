// ddpxx/parallel/gradient_shards.hpp — gradients that come whole, segment by segment, and stay as this rank's pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

/// What whole gradients are borrowed for: to be sent as they are, or to sum several batches first, in the type of the
/// parameters before any was converted.
enum class Borrow { to_send, to_sum };

/// Of what size the memory is that is borrowed: of the segment's own, or of the largest segment's for all that come
/// near it, so that segments of different sizes can use one buffer one after the other.
enum class BufferSize { own, common };

/// What is done with the pieces of a segment once they have come.
enum class Then { keep, step };

/// Averages the gradients of segments over the ranks and leaves each rank its piece, while backward is running.
/// The sum of a step's backward passes lies in the pieces; the first one of a step replaces what the last step left.
/// Ranks   `reduce` and `finish` are collective, in the same order on all ranks.
class GradientShards {
 public:
  /// Gradients are summed over `shards`, and their pieces over `replicas`, ranks that hold the same pieces. If given,
  /// `stepped` lends the pieces their memory and steps them.
  GradientShards(Arena& arena, const Group& shards, const Group* replicas, BufferPool& pool,
                 std::optional<at::ScalarType> reduction, BufferSize size = BufferSize::own,
                 SteppedSegments* stepped = nullptr)
      : arena_{&arena},
        shards_{&shards},
        replicas_{replicas},
        pool_{&pool},
        stepped_{stepped},
        device_options_{arena.segments().front().values.options().dtype(arena.options().dtype())},
        type_{reduction.value_or(c10::typeMetaToScalarType(arena.options().dtype()))},
        scale_{1.0 / (shards.size() * (replicas != nullptr ? replicas->size() : 1))},
        written_(arena.segments().size(), false),
        was_stepped_(arena.segments().size(), false) {
    std::int64_t largest = 0;
    for (const auto& segment : arena.segments()) largest = std::max(largest, segment.size());
    for (const auto& segment : arena.segments())
      rooms_.push_back(size == BufferSize::common && segment.size() > largest / 2 ? largest : segment.size());
  }

  /// Memory for the whole gradients of a segment, zeros; it goes back with `reduce`.
  at::Tensor borrow(std::size_t segment, Borrow purpose = Borrow::to_send) {
    const auto type = purpose == Borrow::to_send ? type_ : c10::typeMetaToScalarType(device_options_.dtype());
    auto memory =
        pool_->tensor(rooms_[segment], device_options_.dtype(type)).narrow(0, 0, arena_->segments()[segment].size());
    memory.zero_();
    return memory;
  }
  /// Adds a gradient, scaled, where it belongs in a segment's memory; an undefined one counts as zeros.
  void add(const at::Tensor& memory, const ArenaEntry& entry, const at::Tensor& gradient) const {
    if (!gradient.defined()) return;
    const c10::NoGradGuard no_grad;
    Arena::part(memory, entry, arena_->segments()[entry.segment].begin).add_(gradient, scale_);
  }

  /// Waits until the next reduction can start at once: before memory for it is borrowed, one buffer less is needed.
  void make_room() {
    const c10::NoGradGuard no_grad;
    while (under_way_.size() >= kMostUnderWay) finish_oldest();
  }

  /// Starts the reduction of a segment whose gradients are all written. Only one is under way, beside the backward pass
  /// of what comes next, so that memory does not grow with the depth of the model.
  /// Errors  `config` for a segment that has been stepped in this step already.
  void reduce(std::size_t i, at::Tensor memory, Then then = Then::keep) {
    const c10::NoGradGuard no_grad;
    if (was_stepped_[i])
      throw Error{Errc::config, "parameter \"" + (*arena_)[arena_->segments()[i].first].name +
                                    "\" got gradients after it was stepped in backward: run one backward pass a step, "
                                    "or take the strategy without StepInBackward"};
    make_room();
    if (memory.scalar_type() != type_) {
      const auto sum = std::exchange(memory, pool_->tensor(memory.numel(), memory.options().dtype(type_)));
      memory.copy_(sum);
      pool_->take_back(sum);
    }
    auto& segment = arena_->segments()[i];
    if (stepped_ != nullptr) stepped_->open(i);
    const bool direct = !written_[i] && segment.gradient.scalar_type() == type_ &&
                        segment.gradient.device() == device_options_.device();
    auto piece = direct ? segment.gradient : pool_->tensor(segment.gradient.numel(), memory.options());
    auto pending = start_reduce_scatter(piece, memory, *shards_);
    under_way_.push_back({i, std::move(memory), std::move(piece), direct, then, std::move(pending)});
    written_[i] = written_[i] || direct;
  }

  /// Waits until everything that was started lies in the pieces.
  void finish() {
    const c10::NoGradGuard no_grad;
    while (!under_way_.empty()) finish_oldest();
  }

  /// Drops what the step has brought so far.
  void abandon() {
    for (auto& each : under_way_) {
      each.pending.wait();
      pool_->take_back(each.memory);
      if (!each.direct) pool_->take_back(each.piece);
    }
    under_way_.clear();
    drop();
  }

  /// Ends the step: what was never written is zero, and what the last backward pass did not bring is stepped now.
  void end_step() {
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (stepped_ == nullptr) {
        if (!written_[i]) arena_->segments()[i].gradient.zero_();
      } else if (!was_stepped_[i]) {
        stepped_->open(i);
        stepped_->step(i);
      }
      written_[i] = was_stepped_[i] = false;
    }
  }
  /// Ends the step in an error: what is kept is not used.
  void drop() {
    written_.assign(written_.size(), false);
    was_stepped_.assign(written_.size(), false);
    for (std::size_t i = 0; stepped_ != nullptr && i < written_.size(); ++i) stepped_->drop(i);
  }

 private:
  static constexpr std::size_t kMostUnderWay = 1;
  struct UnderWay {
    std::size_t segment;
    at::Tensor memory;
    at::Tensor piece;
    bool direct;
    Then then;
    Pending pending;
  };

  void finish_oldest() {
    auto oldest = std::move(under_way_.front());
    under_way_.pop_front();
    oldest.pending.wait();
    pool_->take_back(oldest.memory);
    if (replicas_ != nullptr) all_reduce(oldest.piece, *replicas_);
    if (!oldest.direct) collect(oldest);
    if (oldest.then == Then::keep) return;
    was_stepped_[oldest.segment] = true;
    stepped_->step(oldest.segment);
  }
  void collect(const UnderWay& oldest) {
    auto& gradient = arena_->segments()[oldest.segment].gradient;
    if (written_[oldest.segment])
      gradient.add_(oldest.piece.to(gradient.device()));
    else
      gradient.copy_(oldest.piece);
    written_[oldest.segment] = true;
    pool_->take_back(oldest.piece);
  }

  Arena* arena_;
  const Group* shards_;
  const Group* replicas_;
  BufferPool* pool_;
  SteppedSegments* stepped_;
  at::TensorOptions device_options_;
  at::ScalarType type_;
  double scale_;
  std::vector<bool> written_;
  std::vector<bool> was_stepped_;
  std::vector<std::int64_t> rooms_;  ///< Of each segment's buffer, in elements.
  std::deque<UnderWay> under_way_;
};

}  // namespace ddpxx
