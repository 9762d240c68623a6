// ddpxx/train/decay_rule.hpp — which parameters of a model decay: the order of flat memory depends on it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/snapshot/manifest.hpp>

namespace ddpxx {

/// Returns a function that gives the optimizer group of a parameter: decays() of the model decides, and where it has
/// none, tensors of two or more dimensions decay. The function refers to `model`.
template <class Model>
GroupOf decay_rule(const Model& model) {
  const auto decays = [&model](const std::string& name, const at::Tensor& parameter) {
    if constexpr (KnowsDecay<Model>) return model.decays(name, parameter);
    static_cast<void>(model);
    return parameter.dim() >= 2;
  };
  return [decays](const std::string& name, const at::Tensor& parameter) {
    return static_cast<int>(decays(name, parameter) ? DecayGroup::decay : DecayGroup::no_decay);
  };
}

/// The parameters of a model as a snapshot lists them: in the order in which the model registers them, each with
/// whether it decays. `table` has the settings of each group of `flat`.
std::vector<OptimizedParameter> optimized_parameters(const torch::nn::Module& model, const FlatModel& flat,
                                                     std::span<const ParameterGroup> table);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/decay_rule_inl.hpp>
#endif
