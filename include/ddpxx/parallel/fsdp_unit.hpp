// ddpxx/parallel/fsdp_unit.hpp — the parameters that FSDP gathers and frees together: those of one layer, of several
// small layers, or those that belong to no layer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/parallel/copy_stream.hpp>

namespace ddpxx {

namespace detail {

/// Makes a node of autograd that has no next node, in the kind of pointer by which this version of LibTorch shares
/// nodes: 2.11 by std::shared_ptr, 2.15 by c10::intrusive_ptr.
template <class Node, class... Arguments>
auto make_node(Arguments&&... arguments) {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}

}  // namespace detail

/// Parameters whose memory exists only while they are used. Between uses each rank holds its pieces, and the parameters
/// are hidden. The storage of the values stays the same object all the time, so that tensors which backward has saved,
/// and views of the parameters, are valid again after the next gather.
///
///     sharded --start_gather()--> gathering --gather()--> whole --reshard()--> sharded
///
/// gather() and reshard() may be called in every state, start_gather() has no effect unless the unit is sharded.
/// Ranks   Gathers are collective.
class FSDPUnit {
 public:
  /// Receives what backward has computed for the trainable parameters, in their order; undefined for unused ones.
  using OnGradients = std::function<void(const std::vector<at::Tensor>&)>;

  /// `copies` orders copies of pieces that lie in pinned memory.
  FSDPUnit(const Group& group, BufferPool& pool, CopyStream& copies) : group_{&group}, pool_{&pool}, copies_{&copies} {}

  /// Adds a segment of `arena`, which must stay where it is. Its values have no memory from now on, until gathered.
  void add(Arena& arena, std::size_t segment, Gradients gradients);

  bool whole() const noexcept { return state_ == State::whole; }
  bool gathering() const noexcept { return state_ == State::gathering; }
  bool trainable() const noexcept { return !trainable_.empty(); }
  /// The segments of the trainable arena that belong to this unit, in order.
  const std::vector<std::size_t>& trainable_segments() const noexcept { return trainable_segments_; }
  void on_gradients(OnGradients receive) { receive_ = std::make_shared<OnGradients>(std::move(receive)); }

  /// The small group that holds this unit between forward and backward, if there is one.
  void reshard_to(const Group* group) { small_group_ = group; }

  void start_gather();
  void gather();

  void reshard();
  /// reshard() after forward, which keeps the pieces that the small group needs for the next gather.
  void reshard_after_forward();
  /// Frees the pieces for the small group: the next gather is one of all ranks. Called when the values have changed.
  void drop_small_pieces();

  /// Called before a forward call: autograd then gives all gradients of this call to `on_gradients` together, when the
  /// last of them has been computed. Hooks of the parameters would run earlier, while backward still reads the frozen
  /// parameters of the layer.
  void arm();
  /// Called before a forward call of a unit without trainable parameters, for which arm() does nothing.
  void begin_call() { ++open_calls_; }
  /// Called when backward has finished a call; returns whether it was the last one of this step.
  bool end_call() { return --open_calls_ == 0; }
  /// Called after backward: the parameters are leaves again, and the pieces for the small group are freed.
  void disarm();

 private:
  /// This rank's piece in the type and on the device of the values. It is copied before it is cast, because only a copy
  /// of equal types is asynchronous.
  static at::Tensor piece_on_device(const Segment& segment);

  class Node : public torch::autograd::Node {
   public:
    explicit Node(const std::shared_ptr<OnGradients>& receive) : receive_{receive} {}
    torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
      // The gradients of a graph that outlives the strategy are dropped.
      if (const auto receive = receive_.lock()) (*receive)(gradients);
      return {};
    }

   private:
    std::weak_ptr<OnGradients> receive_;
  };

  enum class State {
    sharded,    ///< The values have no memory; this rank holds its pieces.
    gathering,  ///< The values have memory, which a collective is writing.
    whole,      ///< The model can use the parameters.
  };
  struct ArenaSegment {
    Arena* arena;
    const Segment* segment;
  };

  const Group* group_;
  BufferPool* pool_;
  CopyStream* copies_;
  CopyStream::Mark started_;  ///< The end of the last segment's copy, while its gather is under way.
  std::vector<ArenaSegment> segments_;
  std::vector<std::size_t> trainable_segments_;
  std::vector<const ArenaEntry*> trainable_;
  std::shared_ptr<OnGradients> receive_;
  std::vector<Pending> pending_;
  const Group* small_group_ = nullptr;
  std::vector<at::Tensor> small_pieces_;
  State state_ = State::sharded;
  bool armed_ = false;
  int open_calls_ = 0;  ///< Calls of this step that backward has not finished.
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/fsdp_unit_inl.hpp>
#endif
