// ddpxx/parallel/data_parallel_inl.hpp — definitions of data_parallel.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/GradMode.h>
#include <c10/util/irange.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/layers/changes_in_place.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/data_parallel_config.hpp>
#include <ddpxx/parallel/whole_model.hpp>

namespace ddpxx {

DDPXX_INLINE DataParallel::DataParallel(const Config& config, Group& group) : config_{config} {
  check(config);
  if (group.size() > 1)
    throw Error{Errc::config, "strategy dp runs one process on all devices, but this group has " +
                                  std::to_string(group.size()) + "; choose ddp, or start one process"};
}

DDPXX_INLINE void DataParallel::check(const Config& config) {
  if (config.replicas < 0 || config.replicas > Config::kMaxReplicas)
    throw Error{Errc::config, "strategy dp: replicas=" + std::to_string(config.replicas) + " is not between 0 and " +
                                  std::to_string(Config::kMaxReplicas)};
}

DDPXX_INLINE void DataParallel::attach(FlatModel& model) {
  for (const auto device : other_devices(model.device())) {
    replicas_.push_back(std::make_unique<Replica>());
    replicas_.back()->model = clone(model.module(), device);
  }
  trainable_ = Arena{model.trainable()};
  frozen_ = Arena{model.frozen(), {.gradients = Gradients::none}};
  buffers_ = model.buffers();
  sum_.emplace(trainable_);
  hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor& gradient) { add(i, gradient); }};
  for (auto& replica : replicas_) fill(*replica, model);
  copied_changes_ = num_changes();
}

DDPXX_INLINE void DataParallel::begin_backward(Sync sync) {
  const bool is_interrupted = std::exchange(in_backward_, true);  // an exception has ended the last pass
  if (is_interrupted) sum_->drop();
  check_owned();
  const bool begins_step = is_interrupted || sync_ == Sync::now;
  if (begins_step && num_changes() != copied_changes_) copy_to_replicas();
  sync_ = sync;
  sum_->begin_pass();
}

DDPXX_INLINE void DataParallel::finish_backward() {
  if (sync_ == Sync::now) sum_->publish();
  in_backward_ = false;
}

DDPXX_INLINE void DataParallel::finish_step() {
  WholeModel::finish_step();
  copy_to_replicas();
}

DDPXX_INLINE void DataParallel::copy_to_replicas() {
  const c10::NoGradGuard no_grad;
  const auto copy = [](const Arena& from, Arena& into) {
    for (std::size_t i = 0; i < from.segments().size(); ++i)
      into.segments()[i].values.copy_(from.segments()[i].values, /*non_blocking=*/true);
  };
  for (const auto& replica : replicas_) {
    copy(trainable_, replica->trainable);
    copy(frozen_, replica->frozen);
    for (auto into = replica->model->buffers(); const auto i : c10::irange(buffers_.size()))
      into[i].copy_(buffers_[i], /*non_blocking=*/true);
  }
  copied_changes_ = num_changes();
}

DDPXX_INLINE std::int64_t DataParallel::num_changes() const {
  std::int64_t changes = 0;
  for (const auto* arena : {&trainable_, &frozen_})
    for (const auto& entry : arena->entries()) changes += detail::changes_in_place(entry.parameter);
  for (const auto& buffer : buffers_) changes += detail::changes_in_place(buffer);
  return changes;
}

DDPXX_INLINE std::vector<std::vector<const Layer*>> DataParallel::layers_of_replicas() const {
  std::vector<std::vector<const Layer*>> all;
  for (const auto& replica : replicas_) {
    auto& layers = all.emplace_back();
    for (const auto& child : replica->model->modules(/*include_self=*/false))
      if (const auto* layer = dynamic_cast<const Layer*>(child.get())) layers.push_back(layer);
  }
  return all;
}

DDPXX_INLINE std::vector<at::Device> DataParallel::other_devices(at::Device first) const {
  const std::int64_t gpus = first.is_cuda() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (first.is_cuda() && config_.replicas > gpus)
    throw Error{Errc::config, "strategy dp: replicas=" + std::to_string(config_.replicas) + ", but there are " +
                                  std::to_string(gpus) + " GPUs"};
  std::vector<at::Device> devices;
  const auto count = first.is_cuda() && config_.replicas == 0 ? gpus : config_.replicas;
  for (int i = 0; std::ssize(devices) + 1 < count; ++i)
    if (!first.is_cuda() || i != first.index())
      devices.push_back(first.is_cuda() ? at::Device{at::kCUDA, static_cast<c10::DeviceIndex>(i)} : first);
  return devices;
}

DDPXX_INLINE std::shared_ptr<torch::nn::Module> DataParallel::clone(const torch::nn::Module& model, at::Device device) {
  try {
    return model.clone(device);
  } catch (const c10::Error&) {
    throw Error{Errc::config,
                "DataParallel copies the model: derive it, and every module in it, from "
                "torch::nn::Cloneable, or choose another strategy"};
  }
}

DDPXX_INLINE void DataParallel::copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  to.train(from.is_training());
  const auto ours = from.modules(/*include_self=*/false), theirs = to.modules(/*include_self=*/false);
  if (ours.size() != theirs.size())
    throw Error{Errc::config,
                "a module was added to the model after DataParallel had copied it: add all modules before the trainer "
                "takes the model"};
  // A module comes before those inside it, which train() sets too.
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (theirs[i]->is_training() != ours[i]->is_training()) theirs[i]->train(ours[i]->is_training());
}

DDPXX_INLINE void DataParallel::fill(Replica& replica, const FlatModel& model) {
  const auto named = replica.model->named_parameters();
  std::set<const void*> originals, copies;
  for (const auto* list : {&model.trainable(), &model.frozen()})
    for (const auto& parameter : *list) originals.insert(parameter.tensor.unsafeGetTensorImpl());
  for (const auto& item : named) copies.insert(item.value().unsafeGetTensorImpl());
  // clone() of a module may also keep the original of a parameter that another module owns.
  const bool has_original = std::ranges::any_of(copies, [&](const void* copy) { return originals.contains(copy); });
  if (has_original || copies.size() != originals.size())
    throw Error{Errc::config,
                "DataParallel copies the model by clone(), which does not copy a parameter that modules share: choose "
                "another strategy"};
  const auto arena = [&](std::vector<NamedParameter> parameters) {
    for (auto& parameter : parameters) parameter.tensor = named[parameter.name];
    return Arena{parameters, {.gradients = Gradients::none}};
  };
  replica.trainable = arena(model.trainable());
  for (const auto& parameter : model.frozen())
    named[parameter.name].set_requires_grad(false);  // clone() makes all require one
  replica.frozen = arena(model.frozen());
  replica.hooks = GradientHooks{replica.trainable, [this](std::size_t i, const at::Tensor& gradient) {
                                  add(i, gradient.defined() ? gradient.to(trainable_.options().device()) : gradient);
                                }};
}

DDPXX_INLINE void DataParallel::add(std::size_t i, const at::Tensor& gradient) {
  if (!in_backward_) return;
  const std::lock_guard lock{mutex_};
  const c10::NoGradGuard no_grad;
  sum_->add(i, gradient);
}

}  // namespace ddpxx
