// ddpxx/train/parameter_groups_inl.hpp — definitions of parameter_groups.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/log.hpp>
#include <ddpxx/optim/name_pattern.hpp>
#include <ddpxx/train/parameter_groups.hpp>

namespace ddpxx {

namespace detail {

/// The patterns of one setting, and which of them have set the value of a parameter.
class NamePatterns {
 public:
  NamePatterns(std::string setting, const std::map<std::string, double>& values)
      : setting_{std::move(setting)}, values_{&values} {}

  /// The value of the first pattern that matches the name.
  std::optional<double> find(const std::string& name) {
    for (const auto& [pattern, value] : *values_)
      if (matches_pattern(name, pattern)) {
        used_.insert(pattern);
        return value;
      }
    return std::nullopt;
  }

  /// Call it after find() has been called for all names.
  /// Errors  `config` for a pattern that has set no value.
  void check(const std::vector<std::string>& names) const {
    for (const auto& [pattern, value] : *values_) {
      if (used_.contains(pattern)) continue;
      const auto said = setting_ + ": \"" + harmless(pattern) + "\" ";
      for (const auto& name : names)
        if (matches_pattern(name, pattern))
          throw Error{Errc::config, said + "has no effect: patterns that sort before it, such as \"" +
                                        harmless(first_that_matches(name)) +
                                        "\", match all of its parameters, and the first one counts"};
      std::string nearest;
      for (const auto& name : nearest_names(pattern, names, 3))
        nearest += (nearest.empty() ? "" : ", ") + harmless(name);
      throw Error{Errc::config,
                  said + "matches no trainable parameter" + (nearest.empty() ? "" : " (nearest: " + nearest + ")")};
    }
  }

 private:
  const std::string& first_that_matches(const std::string& name) const {
    return std::ranges::find_if(*values_, [&](const auto& item) { return matches_pattern(name, item.first); })->first;
  }

  std::string setting_;
  const std::map<std::string, double>* values_;
  std::set<std::string> used_;
};

}  // namespace detail

DDPXX_INLINE ParameterGroups parameter_groups(const torch::nn::Module& model, GroupOf decay_rule,
                                              const ParameterGroupsConfig& config) {
  ParameterGroups groups{.group_of = std::move(decay_rule)};
  if (config == ParameterGroupsConfig{}) return groups;
  detail::NamePatterns rates{"parameter_groups.learning_rate", config.learning_rate};
  detail::NamePatterns decays{"parameter_groups.weight_decay", config.weight_decay};
  std::vector<std::string> names;
  std::set<const void*> seen;
  std::map<std::string, int> chosen;
  for (const auto& item : model.named_parameters()) {
    const auto& [name, tensor] = item.pair();
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    names.push_back(name);
    const auto rate = rates.find(name), decay = decays.find(name);
    if (!rate && !decay) continue;
    const bool does_decay = groups.table[static_cast<std::size_t>(groups.group_of(name, tensor))].decays;
    const ParameterGroup group{decay ? *decay > 0.0 : does_decay, rate, decay};
    const auto found = std::ranges::find(groups.table, group);
    chosen.emplace(name, static_cast<int>(found - groups.table.begin()));
    if (found == groups.table.end()) groups.table.push_back(group);
  }
  rates.check(names);
  decays.check(names);
  groups.group_of = [chosen = std::move(chosen), rule = std::move(groups.group_of)](const std::string& name,
                                                                                    const at::Tensor& tensor) {
    const auto found = chosen.find(name);
    return found != chosen.end() ? found->second : rule(name, tensor);
  };
  return groups;
}

}  // namespace ddpxx
