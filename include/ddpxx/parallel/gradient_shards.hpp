// ddpxx/parallel/gradient_shards.hpp — reduces whole gradients, segment by segment, to the pieces that ranks keep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

/// What a buffer of whole gradients is for. reduce: it is sent after one backward pass, and has the type that gradients
/// are reduced in. accumulate: several backward passes are added up in it first, in the type that the parameters had
/// before any was converted.
enum class BufferUse { reduce, accumulate };

/// The size of a segment's buffer. own: the size of the segment. common: the size of the largest segment for all
/// segments of more than half of it, so that they can use the same buffers one after the other.
enum class BufferSize { own, common };

/// What happens to the pieces of a segment after its reduction.
enum class AfterReduce { keep, step };

/// Averages the gradients of segments over the ranks while backward is running; each rank keeps its piece of them.
/// The pieces hold the sum over a step's backward passes; the first pass of a step overwrites those of the last step.
/// Ranks   `reduce` and `finish` are collective; all ranks reduce the same segments in the same order.
class GradientShards {
 public:
  /// Gradients are summed over `shards`, and their pieces over `replicas`, the ranks that hold the same pieces. If
  /// given, `stepped` provides the memory of the pieces and steps them. `copies` orders copies of pieces to pinned
  /// memory.
  GradientShards(Arena& arena, const Group& shards, const Group* replicas, BufferPool& pool,
                 std::optional<at::ScalarType> reduction, BufferSize size = BufferSize::own,
                 SteppedSegments* stepped = nullptr, CopyStream copies = {})
      : arena_{&arena},
        shards_{&shards},
        replicas_{replicas},
        pool_{&pool},
        stepped_{stepped},
        copies_{std::move(copies)},
        device_options_{arena.segments().front().values.options().dtype(arena.options().dtype())},
        type_{reduction.value_or(c10::typeMetaToScalarType(arena.options().dtype()))},
        scale_{1.0 / (shards.size() * (replicas != nullptr ? replicas->size() : 1))},
        written_(arena.segments().size(), false),
        was_stepped_(arena.segments().size(), false) {
    std::int64_t largest = 0;
    for (const auto& segment : arena.segments()) largest = std::max(largest, segment.size());
    for (const auto& segment : arena.segments())
      buffer_sizes_.push_back(size == BufferSize::common && segment.size() > largest / 2 ? largest : segment.size());
  }

  /// A buffer of zeros for the whole gradients of a segment; `reduce` takes it back.
  at::Tensor borrow(std::size_t segment, BufferUse use = BufferUse::reduce) {
    const auto type = use == BufferUse::reduce ? type_ : c10::typeMetaToScalarType(device_options_.dtype());
    auto memory = pool_->tensor(buffer_sizes_[segment], device_options_.dtype(type))
                      .narrow(0, 0, arena_->segments()[segment].size());
    memory.zero_();
    return memory;
  }
  /// Adds a gradient, scaled, to its parameter's range of a segment's buffer; an undefined gradient counts as zeros.
  void add(const at::Tensor& memory, const ArenaEntry& entry, const at::Tensor& gradient) const {
    if (!gradient.defined()) return;
    const c10::NoGradGuard no_grad;
    Arena::part(memory, entry, arena_->segments()[entry.segment].begin).add_(gradient, scale_);
  }

  /// Waits until the next reduction can start at once. Called before the buffer for it is borrowed, it saves one
  /// buffer.
  void wait_for_free_slot() {
    const c10::NoGradGuard no_grad;
    end_scatter();
  }

  /// Starts the reduction of a segment whose gradients are all written. Only one reduce-scatter runs at a time, while
  /// backward computes the next gradients, so that memory does not grow with the depth of the model. With replicas the
  /// sum of the pieces of the segment before runs beside it.
  /// Errors  `config` for a segment that has been stepped in this step already.
  void reduce(std::size_t i, at::Tensor memory, AfterReduce after = AfterReduce::keep) {
    const c10::NoGradGuard no_grad;
    if (was_stepped_[i])
      throw Error{Errc::config, "parameter \"" + (*arena_)[arena_->segments()[i].first].name +
                                    "\" got gradients after it was stepped in backward: run one backward pass a step, "
                                    "or take the strategy without StepInBackward"};
    wait_for_free_slot();
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
    scattering_ = UnderWay{i, std::move(memory), std::move(piece), direct, after, std::move(pending)};
    written_[i] = written_[i] || direct;
  }

  /// Waits for all reductions that were started; their results are then in the pieces, also for the host.
  void finish() {
    const c10::NoGradGuard no_grad;
    end_scatter();
    end_sum();
    free_copied();
    copies_.wait();
  }

  /// Drops the gradients of this step, after an exception has ended its backward pass.
  void abandon() {
    free_copied();
    copies_.wait();
    for (auto* each : {&summing_, &scattering_}) {
      if (!*each) continue;
      auto dropped = std::move(**each);
      each->reset();
      dropped.pending.wait();
      if (dropped.memory.defined()) pool_->take_back(dropped.memory);
      if (!dropped.direct) pool_->take_back(dropped.piece);
    }
    drop();
  }

  /// Ends the step: pieces that no backward pass has written become zeros. Under StepInBackward, segments that the last
  /// backward pass has not reduced are stepped now.
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
  /// Ends a step that fails: the gradients in the pieces are not used.
  void drop() {
    written_.assign(written_.size(), false);
    was_stepped_.assign(written_.size(), false);
    for (std::size_t i = 0; stepped_ != nullptr && i < written_.size(); ++i) stepped_->drop(i);
  }

 private:
  struct UnderWay {
    std::size_t segment;
    at::Tensor memory;  ///< The whole gradients, until the reduce-scatter has ended.
    at::Tensor piece;
    bool direct;  ///< The piece is that of the arena, and not a buffer.
    AfterReduce after;
    Pending pending;
  };

  /// Waits for the reduce-scatter that is under way. Its piece is then complete, or its sum over the replicas starts.
  void end_scatter() {
    if (!scattering_) return;
    auto done = std::move(*scattering_);
    scattering_.reset();
    done.pending.wait();
    pool_->take_back(std::exchange(done.memory, {}));
    if (replicas_ == nullptr) return complete(done);
    end_sum();
    done.pending = start_all_reduce(done.piece, *replicas_);
    summing_ = std::move(done);
  }
  /// Waits for the sum over the replicas that is under way.
  void end_sum() {
    if (!summing_) return;
    auto done = std::move(*summing_);
    summing_.reset();
    done.pending.wait();
    complete(done);
  }
  void complete(const UnderWay& done) {
    if (!done.direct) collect(done);
    if (done.after == AfterReduce::keep) return;
    copies_.wait();  // a step of pieces in pinned memory is the host's work
    was_stepped_[done.segment] = true;
    stepped_->step(done.segment);
  }
  void collect(const UnderWay& done) {
    auto& gradient = arena_->segments()[done.segment].gradient;
    if (gradient.device() != done.piece.device()) return copy_out(gradient, done);
    if (written_[done.segment])
      gradient.add_(done.piece);
    else
      gradient.copy_(done.piece);
    written_[done.segment] = true;
    pool_->take_back(done.piece);
  }

  /// Copies a piece to the pinned memory of its gradient, which has its values after copies_.wait().
  void copy_out(at::Tensor& gradient, const UnderWay& done) {
    free_copied();
    const bool adds = written_[done.segment];
    const auto target = adds ? at::empty(gradient.sizes(), gradient.options().pinned_memory(true)) : gradient;
    const auto copied = copies_.run([&] {
      // Cast on the GPU, because only a copy of equal types is asynchronous.
      at::Tensor{target}.copy_(done.piece.to(target.scalar_type()), /*non_blocking=*/true);
    });
    copying_ = Copying{done.piece, copied};
    written_[done.segment] = true;
    if (!adds) return;
    copies_.wait();
    gradient.add_(target);
  }
  /// Takes back the piece of the last copy: the stream that computes writes it again after the copy only.
  void free_copied() {
    if (!copying_) return;
    copies_.order_after(copying_->end);
    pool_->take_back(copying_->piece);
    copying_.reset();
  }

  struct Copying {
    at::Tensor piece;
    CopyStream::Mark end;
  };

  Arena* arena_;
  const Group* shards_;
  const Group* replicas_;
  BufferPool* pool_;
  SteppedSegments* stepped_;
  CopyStream copies_;
  std::optional<Copying> copying_;  ///< To pinned memory.
  at::TensorOptions device_options_;
  at::ScalarType type_;
  double scale_;
  std::vector<bool> written_;
  std::vector<bool> was_stepped_;
  std::vector<std::int64_t> buffer_sizes_;  ///< In elements, for each segment.
  std::optional<UnderWay> scattering_;      ///< Summed over the shards.
  std::optional<UnderWay> summing_;         ///< Summed over the replicas; of an earlier segment than scattering_.
};

}  // namespace ddpxx
