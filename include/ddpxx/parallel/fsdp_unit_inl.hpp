// ddpxx/parallel/fsdp_unit_inl.hpp — definitions of fsdp_unit.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/layers/has_hook.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/fsdp_unit.hpp>

namespace ddpxx {

DDPXX_INLINE void FSDPUnit::add(Arena& arena, std::size_t segment, Gradients gradients) {
  const auto& added = arena.segments()[segment];
  arena.hide(added);
  BufferPool::release(added.values);
  segments_.push_back({&arena, &added});
  if (gradients == Gradients::none) return;
  trainable_segments_.push_back(segment);
  for (auto i = added.first; i < added.last; ++i) trainable_.push_back(&arena[i]);
}

DDPXX_INLINE void FSDPUnit::start_gather() {
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

DDPXX_INLINE void FSDPUnit::gather() {
  if (state_ == State::whole) return;
  start_gather();
  // The copies come first, so that WaitClock does not count them as a wait for other ranks.
  copies_->order_after(std::exchange(started_, {}));
  for (auto& pending : pending_) pending.wait();
  pending_.clear();
  for (const auto& [arena, segment] : segments_) arena->show(*segment);
  state_ = State::whole;
}

DDPXX_INLINE void FSDPUnit::reshard() {
  if (state_ == State::gathering) gather();  // the collective still writes into this memory
  if (state_ == State::sharded) return;
  for (const auto& [arena, segment] : segments_) {
    arena->hide(*segment);
    pool_->take_back(segment->values);
  }
  state_ = State::sharded;
}

DDPXX_INLINE void FSDPUnit::reshard_after_forward() {
  if (small_group_ != nullptr && state_ == State::whole && small_pieces_.empty())
    for (const auto& [arena, segment] : segments_) {
      const auto size = segment->size() / small_group_->size();
      auto piece = pool_->tensor(size, segment->values.options());
      piece.copy_(segment->values.narrow(0, size * small_group_->rank(), size));
      small_pieces_.push_back(std::move(piece));
    }
  reshard();
}

DDPXX_INLINE void FSDPUnit::drop_small_pieces() {
  for (const auto& piece : small_pieces_) pool_->take_back(piece);
  small_pieces_.clear();
}

DDPXX_INLINE void FSDPUnit::arm() {
  if (trainable_.empty()) return;
  ++open_calls_;
  armed_ = true;
  const auto node = detail::make_node<Node>(receive_);
  for (const auto* entry : trainable_) {
    const auto& parameter = entry->parameter;
    if (detail::has_hook(parameter))
      throw Error{Errc::config, "parameter \"" + entry->name +
                                    "\" has a hook from register_hook(), which would never run under FSDP: change "
                                    "gradients in before_optimizer_step (of TrainStep or of an Observer), or register "
                                    "the hook on an activation"};
    torch::autograd::impl::set_gradient_edge(parameter, {node, node->add_input_metadata(parameter)});
  }
}

DDPXX_INLINE void FSDPUnit::disarm() {
  if (std::exchange(armed_, false))
    for (const auto* entry : trainable_) torch::autograd::impl::set_gradient_edge(entry->parameter, {nullptr, 0});
  drop_small_pieces();
  open_calls_ = 0;
}

DDPXX_INLINE at::Tensor FSDPUnit::piece_on_device(const Segment& segment) {
  const auto copied = segment.master.to(segment.values.device(), segment.master.scalar_type(), /*non_blocking=*/true);
  return copied.to(segment.values.scalar_type());
}

}  // namespace ddpxx
