// ddpxx/parallel/fsdp_unit.hpp — the parameters that FSDP gathers and releases together: those of a layer, of some
// small layers, or the rest.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>

namespace ddpxx {

/// Parameters whose memory exists only while they are used. At rest each rank holds its pieces, and the parameters are
/// hidden; `gather` makes them whole, `release` frees them. The storage stays the same object all its life, so that
/// tensors which backward has saved, and views of them, are good again after the next gather.
/// Ranks   Gathers are collective.
class FSDPUnit {
 public:
  /// What backward has computed for the trainable parameters, in their order; undefined for those not used.
  using OnGradients = std::function<void(const std::vector<at::Tensor>&)>;

  FSDPUnit(const Group& group, BufferPool& pool) : group_{&group}, pool_{&pool} {}

  /// Takes a segment over, which stays where it is; its values are hollow from now on, until gathered.
  void add(Arena& arena, std::size_t segment, Gradients gradients) {
    const auto& added = arena.segments()[segment];
    arena.hide(added);
    BufferPool::release(added.values);
    segments_.push_back({&arena, &added});
    if (gradients == Gradients::none) return;
    for (auto i = added.first; i < added.last; ++i) trainable_.push_back(arena[i].parameter);
  }

  bool empty() const noexcept { return segments_.empty(); }
  bool whole() const noexcept { return whole_; }
  bool pending() const noexcept { return !pending_.empty(); }
  bool trainable() const noexcept { return !trainable_.empty(); }
  void on_gradients(OnGradients receive) { receive_ = std::make_shared<OnGradients>(std::move(receive)); }

  /// The small group that holds this unit between forward and backward, if there is one.
  void reshard_to(const Group* group) { small_group_ = group; }

  void start_gather() {
    if (whole_ || !pending_.empty()) return;
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const auto& segment = *segments_[i].segment;
      pool_->lend(segment.values);
      if (small_pieces_.empty())
        pending_.push_back(start_all_gather(segment.values, segment.master.to(segment.values.options()), *group_));
      else
        pending_.push_back(start_all_gather(segment.values, small_pieces_[i], *small_group_));
    }
  }
  void gather() {
    if (whole_) return;
    start_gather();
    for (auto& pending : pending_) pending.wait();
    pending_.clear();
    for (const auto& [arena, segment] : segments_) arena->show(*segment);
    whole_ = true;
  }

  void release() {
    if (!pending_.empty()) gather();  // bytes are still on their way into this memory
    if (!whole_) return;
    for (const auto& [arena, segment] : segments_) {
      arena->hide(*segment);
      pool_->take_back(segment->values);
    }
    whole_ = false;
  }
  /// After forward: releases, but keeps what the small group needs to gather again.
  void release_after_forward() {
    if (small_group_ != nullptr && whole_ && small_pieces_.empty())
      for (const auto& [arena, segment] : segments_) {
        const auto size = segment->size() / small_group_->size();
        auto piece = pool_->tensor(size, segment->values.options());
        piece.copy_(segment->values.narrow(0, size * small_group_->rank(), size));
        small_pieces_.push_back(std::move(piece));
      }
    release();
  }

  /// Before a forward call: from now on autograd hands the gradients of this call over all together, when the last of
  /// them is there. Hooks of the parameters themselves would fire before backward has done with frozen weights beside
  /// them.
  void arm() {
    if (trainable_.empty()) return;
    ++calls_;
    armed_ = true;
    const auto node = std::shared_ptr<Node>(new Node{receive_}, torch::autograd::deleteNode);
    for (const auto& parameter : trainable_)
      torch::autograd::impl::set_gradient_edge(parameter, {node, node->add_input_metadata(parameter)});
  }
  /// Backward has done with a call; true once it has done with all of them.
  bool end_call() { return --calls_ == 0; }
  /// After backward: the parameters are leaves again, and nothing is whole that a step would leave behind.
  void disarm() {
    if (std::exchange(armed_, false))
      for (const auto& parameter : trainable_) torch::autograd::impl::set_gradient_edge(parameter, {nullptr, 0});
    for (const auto& piece : small_pieces_) pool_->take_back(piece);
    small_pieces_.clear();
    calls_ = 0;
  }

 private:
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

  struct Held {
    Arena* arena;
    const Segment* segment;
  };

  const Group* group_;
  BufferPool* pool_;
  std::vector<Held> segments_;
  std::vector<at::Tensor> trainable_;
  std::shared_ptr<OnGradients> receive_;
  std::vector<Pending> pending_;
  const Group* small_group_ = nullptr;
  std::vector<at::Tensor> small_pieces_;
  bool whole_ = false;
  bool armed_ = false;
  int calls_ = 0;  ///< Of this step, that backward has not done with.
};

}  // namespace ddpxx
