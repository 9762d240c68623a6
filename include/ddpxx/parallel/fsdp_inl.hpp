// ddpxx/parallel/fsdp_inl.hpp — definitions of fsdp.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/layers/tensors_in.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/call_order.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/fsdp_unit.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/parallel/layer_units.hpp>
#include <ddpxx/parallel/same_model.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

DDPXX_INLINE FSDP::~FSDP() {
  // A forward pass without a backward pass has left nodes in the parameters, which would call this object.
  for (auto& unit : units_) {
    try {
      unit.disarm();
    } catch (...) {  // out of memory: memory cannot be returned to the pool
    }
  }
  for (auto* arena : {&trainable_, &frozen_})
    for (const auto& segment : arena->segments()) {
      const auto& unit = units_[static_cast<std::size_t>(segment.unit)];
      if (segment.values.storage().nbytes() > 0 && !unit.gathering()) continue;
      try {
        if (arena->pieces() == 1)
          restore(*arena, segment);
        else
          make_hollow(*arena, segment);
      } catch (...) {  // out of memory: the parameters have empty storage then
      }
    }
}

DDPXX_INLINE void FSDP::attach(FlatModel& model) {
  check_same_model(model, *shards_);
  if (replicas_ != nullptr) check_same_model(model, *replicas_);
  make_small_group();
  const auto send = [this](at::Tensor values) {
    broadcast(values, *shards_);
    if (replicas_ != nullptr) broadcast(values, *replicas_);
  };
  const bool offload = config_.offload == Offload::cpu;
  const bool copies = offload && model.device().is_cuda();
  if (copies) to_device_ = CopyStream{model.device()};
  ArenaOptions options{.gradients = Gradients::piece,
                       .masters = Masters::apart,
                       .pieces = shards_->size(),
                       .piece = shards_->rank(),
                       .cut = CutAt::units,
                       .offload = offload,
                       .prepare = send};
  layer_units_ = LayerUnits{model, config_.unit_bytes};
  for (std::size_t unit = 0; unit < layer_units_.size(); ++unit) units_.emplace_back(*shards_, pool_, to_device_);
  trainable_ = Arena{layer_units_.in_units(model.trainable()), options};
  options.gradients = Gradients::none;
  frozen_ = Arena{layer_units_.in_units(model.frozen()), options};
  for (std::size_t i = 0; i < trainable_.segments().size(); ++i)
    units_[static_cast<std::size_t>(trainable_.segments()[i].unit)].add(trainable_, i, Gradients::piece);
  for (std::size_t i = 0; i < frozen_.segments().size(); ++i)
    units_[static_cast<std::size_t>(frozen_.segments()[i].unit)].add(frozen_, i, Gradients::none);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].on_gradients([this, unit](const auto& gradients) { receive(unit, gradients); });
    if (unit != kRoot && small_group_) units_[unit].reshard_to(&*small_group_);
  }
  if (step_) stepped_.emplace(trainable_, step_);
  gradients_.emplace(trainable_, *shards_, replicas_, pool_, model.formats().reduction, BufferSize::own,
                     stepped_ ? &*stepped_ : nullptr, copies ? CopyStream{model.device()} : CopyStream{});
  unreduced_.resize(trainable_.segments().size());
  buffers_ = SharedBuffers{model.buffers(), *shards_,
                           config_.broadcast_buffers ? BroadcastBuffers::each_step : BroadcastBuffers::once, replicas_};
  misuse_hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor&) {
                                  throw Error{Errc::config, "parameter \"" + trainable_[i].name +
                                                                "\" was used outside of its layer's call: FSDP cannot "
                                                                "shard it there; use it inside the layer's forward"};
                                }};
}

DDPXX_INLINE void FSDP::begin_backward(Sync sync) {
  if (std::exchange(in_backward_, true)) {
    abandon();
    buffers_.abandon();
  } else {
    for (auto& unit : units_) {  // a forward pass with gradients may have had no backward pass
      if (unit.gathering()) unit.reshard();
      unit.disarm();
    }
  }
  trainable_.check_owned(Freezing::refused);  // an armed parameter would be trained on
  frozen_.check_owned();
  made_whole_ = false;
  sync_ = sync;
  buffers_.begin_backward(sync);
}

DDPXX_INLINE void FSDP::finish_backward() {
  reduce_rest();
  if (config_.check_calls && sends()) check_call("end of backward");
  gradients_->finish();
  if (sync_ == Sync::now) {
    to_device_.wait();  // the optimizer writes the pieces that these copies read
    gradients_->end_step();
  }
  reshard_all();
  in_backward_ = false;
}

DDPXX_INLINE void FSDP::finish_step() {
  made_whole_ = false;
  for (auto& unit : units_) {
    unit.reshard();
    unit.drop_small_pieces();  // an exception may have left pieces of values that are old now
  }
  trainable_.forget_changes();
  frozen_.forget_changes();
}

DDPXX_INLINE void FSDP::wait_pending() {
  for (auto& unit : units_)
    if (unit.gathering()) unit.reshard();
  to_device_.wait();
}

DDPXX_INLINE at::Tensor FSDP::sum_over_shards(at::Tensor value) const {
  auto sum = value.to(shards_->device());
  all_reduce(sum, *shards_);
  // Each row of HSDP adds by itself, and may add in another order than the first row: one row may span two hosts.
  // Copies of a shard must be clipped by the same norm, or they would drift apart.
  if (replicas_ != nullptr) broadcast(sum, *replicas_);
  return sum.to(value.device());
}

DDPXX_INLINE void FSDP::make_whole() {
  wait_pending();
  if (!config_.whole_at_end) return;
  for (auto& unit : units_) unit.gather();
  made_whole_ = true;
}

DDPXX_INLINE std::int64_t FSDP::layers_of_unit(const Config& config, std::int64_t bytes) {
  return std::max<std::int64_t>(1, bytes == 0 ? 1 : (config.unit_bytes + bytes - 1) / bytes);
}

DDPXX_INLINE void FSDP::restore(const Arena& arena, const Segment& segment) {
  const c10::NoGradGuard no_grad;
  pool_.lend(segment.values);
  segment.values.copy_(segment.master);
  arena.show(segment);
}

DDPXX_INLINE void FSDP::make_small_group() {
  const auto ranks = config_.ranks_after_forward();
  if (!ranks)
    throw Error{Errc::config, "reshard_after_forward: \"" + config_.reshard_after_forward +
                                  "\" is none of true, false, a number of ranks"};
  if (*ranks <= 1 || *ranks >= shards_->size()) return;
  if (shards_->size() % *ranks != 0)
    throw Error{Errc::config, "reshard_after_forward=" + std::to_string(*ranks) + " does not divide the " +
                                  std::to_string(shards_->size()) + " ranks that share a model: choose a divisor"};
  small_group_.emplace(
      shards_->split({.color = shards_->rank() / *ranks, .rank = shards_->rank() % *ranks, .size = *ranks}));
}

DDPXX_INLINE void FSDP::gather(std::size_t unit) {
  if (config_.check_calls && !units_[unit].whole()) check_call("gather of " + layer_units_.name_of(unit));
  units_[unit].gather();
}

DDPXX_INLINE bool FSDP::enter(std::size_t unit, std::size_t layer, bool with_gradient) {
  if (all_whole()) return true;
  const auto outlook = order_.enter(unit, layer);
  gather_ahead(outlook.next);
  return outlook.again || (outlook.last && with_gradient);
}

DDPXX_INLINE void FSDP::reshard_after_call(std::size_t unit, bool with_gradient) {
  if (!with_gradient) {
    units_[unit].reshard();
    at::autocast::clear_cache();  // its casts of the parameters would be kept until the end of the forward pass
  } else if (config_.ranks_after_forward() != 1) {
    units_[unit].reshard_after_forward();
  }
}

DDPXX_INLINE void FSDP::before_backward(const std::vector<Call>& calls) {
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    gather(call->unit);
    gather_ahead(order_.enter_backward(call->unit));
  }
}

DDPXX_INLINE void FSDP::gather_ahead(std::optional<std::size_t> unit) {
  if (unit && !config_.check_calls) units_[*unit].start_gather();
}

DDPXX_INLINE void FSDP::end_frozen(const std::vector<Call>& calls) {
  for (const auto& call : calls)
    if (units_[call.unit].end_call()) reshard_after_backward(call.unit);
}

DDPXX_INLINE void FSDP::receive(std::size_t unit, const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  const bool complete = units_[unit].end_call();
  const bool send = complete && sends();
  // Freed first, because the gradients need buffers.
  if (complete && unit != kRoot) reshard_after_backward(unit);
  if (!in_backward_) return;  // a backward pass between two steps: its gradients are dropped
  if (send) gradients_->wait_for_free_slot();
  std::size_t k = 0;
  for (const auto i : units_[unit].trainable_segments()) {
    const auto& segment = trainable_.segments()[i];
    const auto count = segment.last - segment.first;
    const std::span of_segment{gradients.data() + k, count};
    if (!unreduced_[i].defined())
      unreduced_[i] = gradients_->borrow_with(i, of_segment, sends() ? BufferUse::reduce : BufferUse::accumulate);
    else
      for (std::size_t e = 0; e < count; ++e)
        gradients_->add(unreduced_[i], trainable_[segment.first + e], of_segment[e]);
    k += count;
  }
  if (!send) return;
  for (const auto i : units_[unit].trainable_segments()) reduce(i);
}

DDPXX_INLINE void FSDP::reduce(std::size_t segment) {
  if (config_.check_calls)
    check_call("reduction of " + layer_units_.name_of(static_cast<std::size_t>(trainable_.segments()[segment].unit)));
  order_.note_reduction(segment);
  gradients_->reduce(segment, std::exchange(unreduced_[segment], {}), after_reduce());
}

DDPXX_INLINE void FSDP::reduce_rest() {
  if (!sends()) return;
  for (std::size_t i = 0; i < unreduced_.size(); ++i)
    if (unreduced_[i].defined()) reduce(i);
}

DDPXX_INLINE void FSDP::reshard_all() {
  for (auto& unit : units_) {
    unit.reshard();
    unit.disarm();
  }
}

DDPXX_INLINE void FSDP::abandon() {
  gradients_->abandon();
  for (std::size_t i = 0; i < unreduced_.size(); ++i)
    if (unreduced_[i].defined()) gradients_->give_back(i, std::exchange(unreduced_[i], {}));
  reshard_all();
}

DDPXX_INLINE void FSDP::check_call(const std::string& mine) const {
  const auto all = all_gather_text(mine, *shards_);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error{Errc::peer, "the ranks run different layers: rank 0 is at the " + all[0] + ", rank " +
                                  std::to_string(rank) + " at the " + all[rank] +
                                  "; a model must call the same layers in the same order on every rank"};
}

}  // namespace ddpxx
