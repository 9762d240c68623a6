// ddpxx/train/decay_rule_inl.hpp — definitions of decay_rule.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/train/decay_rule.hpp>

namespace ddpxx {

DDPXX_INLINE std::vector<OptimizedParameter> optimized_parameters(const torch::nn::Module& model, const FlatModel& flat,
                                                                  std::span<const ParameterGroup> table) {
  std::map<std::string, int> groups;
  for (const auto* list : {&flat.trainable(), &flat.frozen()})
    for (const auto& parameter : *list) groups.emplace(parameter.name, parameter.group);
  std::vector<OptimizedParameter> parameters;
  for (const auto& item : model.named_parameters())
    if (const auto group = groups.find(item.key()); group != groups.end())
      parameters.push_back({item.key(), table[static_cast<std::size_t>(group->second)].decays});
  return parameters;
}

}  // namespace ddpxx
