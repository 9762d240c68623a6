// ddpxx/interop/torch_state_inl.hpp — the definitions of torch_state.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>
#include <ddpxx/snapshot/named_tensors.hpp>

namespace ddpxx {

namespace detail {

/// Returns the settings of Adam or AdamW, whose names are equal.
template <class Options>
PickleDict adam_settings(const Options& options, PythonAdam optimizer) {
  return to_python(AdamWSettings{.learning_rate = options.lr(),
                                 .beta1 = std::get<0>(options.betas()),
                                 .beta2 = std::get<1>(options.betas()),
                                 .epsilon = options.eps(),
                                 .weight_decay = options.weight_decay(),
                                 .optimizer = optimizer,
                                 .amsgrad = options.amsgrad()});
}

inline PickleDict settings_of(const torch::optim::OptimizerOptions& options) {
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options))
    return adam_settings(*adamw, PythonAdam::adamw);
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options))
    return adam_settings(*adam, PythonAdam::adam);
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options))
    return to_python(SGDSettings{.learning_rate = sgd->lr(),
                                 .momentum = sgd->momentum(),
                                 .dampening = sgd->dampening(),
                                 .weight_decay = sgd->weight_decay(),
                                 .nesterov = sgd->nesterov()});
  throw Error{Errc::config, "a checkpoint holds the state of AdamW, Adam or SGD, and of no other optimizer"};
}

template <class State>
PickleDict adam_state(const State& state) {
  PickleDict dict;
  dict.add("step", at::full({}, state.step(), at::kFloat));
  dict.add("exp_avg", state.exp_avg()).add("exp_avg_sq", state.exp_avg_sq());
  if (state.max_exp_avg_sq().defined()) dict.add("max_exp_avg_sq", state.max_exp_avg_sq());
  return dict;
}

inline PickleDict state_of(const torch::optim::OptimizerParamState& state) {
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(&state)) return adam_state(*adamw);
  if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(&state)) return adam_state(*adam);
  PickleDict dict;
  const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state);
  if (sgd != nullptr && sgd->momentum_buffer().defined()) dict.add("momentum_buffer", sgd->momentum_buffer());
  return dict;
}

}  // namespace detail

DDPXX_INLINE NamedTensors state_dict(const torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

DDPXX_INLINE PickleValue state_dict(const torch::optim::Optimizer& optimizer) {
  PickleDict states;
  PickleList groups;
  std::int64_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    PickleList indices;
    for (const auto& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) states.add(index, detail::state_of(*state->second));
      indices.emplace_back(index++);
    }
    groups.emplace_back(detail::settings_of(group.options()).add("params", std::move(indices)));
  }
  return PickleDict{}.add("state", std::move(states)).add("param_groups", std::move(groups));
}

}  // namespace ddpxx
