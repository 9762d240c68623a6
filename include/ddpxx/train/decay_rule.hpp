// ddpxx/train/decay_rule.hpp — which parameters of a model decay: the order of flat memory depends on it.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/concept.hpp>

namespace ddpxx {

/// The optimizer group of each parameter: as the model says, else matrices decay. Lives no longer than the model.
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

}  // namespace ddpxx
