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
  void add(Arena& arena, std::size_t segment, Gradients gradients) {
    const auto& added = arena.segments()[segment];
    arena.hide(added);
    BufferPool::release(added.values);
    segments_.push_back({&arena, &added});
    if (gradients == Gradients::none) return;
    trainable_segments_.push_back(segment);
    for (auto i = added.first; i < added.last; ++i) trainable_.push_back(arena[i].parameter);
  }

  bool whole() const noexcept { return state_ == State::whole; }
  bool gathering() const noexcept { return state_ == State::gathering; }
  bool trainable() const noexcept { return !trainable_.empty(); }
  /// The segments of the trainable arena that belong to this unit, in order.
  const std::vector<std::size_t>& trainable_segments() const noexcept { return trainable_segments_; }
  void on_gradients(OnGradients receive) { receive_ = std::make_shared<OnGradients>(std::move(receive)); }

  /// The small group that holds this unit between forward and backward, if there is one.
  void reshard_to(const Group* group) { small_group_ = group; }

  void start_gather() {
    if (state_ != State::sharded) return;
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const auto& segment = *segments_[i].segment;
      pool_->lend(segment.values);
      started_ = copies_->run([&] {
        if (small_pieces_.empty())
          pending_.push_back(start_all_gather(segment.values, piece_on_device(segment), *group_));
        else
          pending_.push_back(start_all_gather(segment.values, small_pieces_[i], *small_group_));
      });
      state_ = State::gathering;
    }
  }
  void gather() {
    if (state_ == State::whole) return;
    start_gather();
    for (auto& pending : pending_) pending.wait();
    pending_.clear();
    copies_->order_after(std::exchange(started_, {}));
    for (const auto& [arena, segment] : segments_) arena->show(*segment);
    state_ = State::whole;
  }

  void reshard() {
    if (state_ == State::gathering) gather();  // the collective still writes into this memory
    if (state_ == State::sharded) return;
    for (const auto& [arena, segment] : segments_) {
      arena->hide(*segment);
      pool_->take_back(segment->values);
    }
    state_ = State::sharded;
  }
  /// reshard() after forward, which keeps the pieces that the small group needs for the next gather.
  void reshard_after_forward() {
    if (small_group_ != nullptr && state_ == State::whole && small_pieces_.empty())
      for (const auto& [arena, segment] : segments_) {
        const auto size = segment->size() / small_group_->size();
        auto piece = pool_->tensor(size, segment->values.options());
        piece.copy_(segment->values.narrow(0, size * small_group_->rank(), size));
        small_pieces_.push_back(std::move(piece));
      }
    reshard();
  }

  /// Called before a forward call: autograd then gives all gradients of this call to `on_gradients` together, when the
  /// last of them has been computed. Hooks of the parameters would run earlier, while backward still reads the frozen
  /// parameters of the layer.
  void arm() {
    if (trainable_.empty()) return;
    ++open_calls_;
    armed_ = true;
    const auto node = detail::make_node<Node>(receive_);
    for (const auto& parameter : trainable_)
      torch::autograd::impl::set_gradient_edge(parameter, {node, node->add_input_metadata(parameter)});
  }
  /// Called when backward has finished a call; returns whether it was the last one of this step.
  bool end_call() { return --open_calls_ == 0; }
  /// Called after backward: the parameters are leaves again, and the pieces for the small group are freed.
  void disarm() {
    if (std::exchange(armed_, false))
      for (const auto& parameter : trainable_) torch::autograd::impl::set_gradient_edge(parameter, {nullptr, 0});
    for (const auto& piece : small_pieces_) pool_->take_back(piece);
    small_pieces_.clear();
    open_calls_ = 0;
  }

 private:
  /// This rank's piece in the type and on the device of the values. It is copied before it is cast, because only a copy
  /// of equal types is asynchronous.
  static at::Tensor piece_on_device(const Segment& segment) {
    const auto copied = segment.master.to(segment.values.device(), segment.master.scalar_type(), /*non_blocking=*/true);
    return copied.to(segment.values.scalar_type());
  }

  class Node : public torch::autograd::Node {
   public:
    explicit Node(std::shared_ptr<OnGradients> receive) : receive_{std::move(receive)} {}
    torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
      (*receive_)(gradients);
      return {};
    }

   private:
    std::shared_ptr<OnGradients> receive_;
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
  CopyStream::Mark started_;  ///< Of the last segment's gather that is under way.
  std::vector<ArenaSegment> segments_;
  std::vector<std::size_t> trainable_segments_;
  std::vector<at::Tensor> trainable_;
  std::shared_ptr<OnGradients> receive_;
  std::vector<Pending> pending_;
  const Group* small_group_ = nullptr;
  std::vector<at::Tensor> small_pieces_;
  State state_ = State::sharded;
  bool armed_ = false;
  int open_calls_ = 0;  ///< Calls of this step that backward has not finished.
};

}  // namespace ddpxx
