// ddpxx/train/decay_rule.hpp — which parameters of a model decay: the order of flat memory depends on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/snapshot/manifest.hpp>

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

/// The parameters of a model as a snapshot lists them: in the order in which the model registers them, each with
/// whether it decays.
inline std::vector<OptimizedParameter> optimized_parameters(const torch::nn::Module& model, const FlatModel& flat) {
  std::map<std::string, int> groups;
  for (const auto* list : {&flat.trainable(), &flat.frozen()})
    for (const auto& parameter : *list) groups.emplace(parameter.name, parameter.group);
  std::vector<OptimizedParameter> parameters;
  for (const auto& item : model.named_parameters())
    if (const auto group = groups.find(item.key()); group != groups.end())
      parameters.push_back({item.key(), group->second == static_cast<int>(DecayGroup::decay)});
  return parameters;
}

}  // namespace ddpxx
