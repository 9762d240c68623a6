// ddpxx/interop/torch_state_inl.hpp — the definitions of torch_state.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/model_tensors.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>

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

DDPXX_INLINE UnmatchedNames load_state_dict(torch::nn::Module& model, const NamedTensors& tensors, Strict strict) {
  const ModelTensors own{model};
  NamedTensors found;  // by the first names of the model's tensors
  for (const auto& item : tensors)
    if (!own.further_names.contains(item.first)) found.insert(item);
  for (const auto& [name, first] : own.further_names)
    if (const auto tensor = tensors.find(name); tensor != tensors.end()) found.emplace(first, tensor->second);

  UnmatchedNames unmatched;
  NamedTensors shared;
  for (const auto& [name, tensor] : own.tensors)
    if (found.contains(name))
      shared.emplace(name, tensor);
    else
      unmatched.missing.push_back(name);
  for (const auto& [name, tensor] : found)
    if (!shared.contains(name)) unmatched.unexpected.push_back(name);
  if (strict == Strict::no)
    for (const auto& name : unmatched.unexpected) found.erase(name);
  const auto& needed = strict == Strict::yes ? own.tensors : shared;
  if (const auto differences = shape_differences(shapes_of(found), shapes_of(needed), "the file"); !differences.empty())
    throw Error{Errc::storage, "these are not the tensors of this model:" + differences};

  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : shared) tensor.copy_(found.at(name));
  return unmatched;
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
