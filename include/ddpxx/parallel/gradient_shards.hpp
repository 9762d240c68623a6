// ddpxx/parallel/gradient_shards.hpp — reduces whole gradients, segment by segment, to the pieces that ranks keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
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
                 SteppedSegments* stepped = nullptr, CopyStream copies = {});

  /// A buffer of zeros for the whole gradients of a segment; `reduce` or `give_back` takes it back. In a group of one
  /// rank it is the segment's own memory of gradients, unless they are cast or copied to the host, an earlier pass of
  /// the step has written there, or segments are stepped in backward.
  at::Tensor borrow(std::size_t segment, BufferUse use = BufferUse::reduce);
  /// borrow() and add() of all gradients of the segment, in their order.
  at::Tensor borrow_with(std::size_t segment, std::span<const at::Tensor> gradients, BufferUse use = BufferUse::reduce);
  /// Takes back a buffer that is not reduced.
  void give_back(std::size_t segment, const at::Tensor& memory);
  /// Adds a gradient, scaled, to its parameter's range of a segment's buffer; an undefined gradient counts as zeros.
  void add(const at::Tensor& memory, const ArenaEntry& entry, const at::Tensor& gradient) const;

  /// Waits until the next reduction can start at once. Called before the buffer for it is borrowed, it saves one
  /// buffer.
  void wait_for_free_slot();

  /// Starts the reduction of a segment whose gradients are all written. Only one reduce-scatter runs at a time, while
  /// backward computes the next gradients, so that memory does not grow with the depth of the model. With replicas the
  /// sum of the pieces of the segment before runs beside it.
  /// Errors  `config` for a segment that has been stepped in this step already.
  void reduce(std::size_t i, at::Tensor memory, AfterReduce after = AfterReduce::keep);

  /// Waits for all reductions that were started; their results are then in the pieces, also for the host.
  void finish();

  /// Drops the gradients of this step, after an exception has ended its backward pass.
  void abandon();

  /// Ends the step: pieces that no backward pass has written become zeros. Under StepInBackward, segments that the last
  /// backward pass has not reduced are stepped now.
  void end_step();

 private:
  /// A buffer with any values.
  at::Tensor take(std::size_t segment, BufferUse use);
  bool is_own(std::size_t segment, const at::Tensor& memory) const;
  /// Writes a segment's gradients to `memory` by as few operations as possible, and zeros around them.
  void fill(const at::Tensor& memory, const Segment& segment, std::span<const at::Tensor> gradients) const;

  struct UnderWay {
    std::size_t segment;
    at::Tensor memory;  ///< The whole gradients, until the reduce-scatter has ended.
    at::Tensor piece;
    bool direct;  ///< The piece is that of the arena, and not a buffer.
    AfterReduce after;
    Pending pending;
  };

  /// Waits for the reduce-scatter that is under way. Its piece is then complete, or its sum over the replicas starts.
  void end_scatter();
  /// Waits for the sum over the replicas that is under way.
  void end_sum();
  /// Forgets what this step has reduced: the gradients in the pieces are not used.
  void drop();
  void complete(const UnderWay& done);
  void collect(const UnderWay& done);

  /// Copies a piece to the pinned memory of its gradient, which has its values after copies_.wait().
  void copy_out(at::Tensor& gradient, const UnderWay& done);
  /// Takes back the piece of the last copy: the stream that computes writes it again after the copy only.
  void free_copied();

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

#ifndef DDPXX_CORE
#include <ddpxx/parallel/gradient_shards_inl.hpp>
#endif
