// ddpxx/train/parameter_groups.hpp — the optimizer groups of a run: which parameter is in which group, with which
// settings. The order of flat memory depends on it.
#pragma once

#include <vector>

#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>

namespace ddpxx {

/// The optimizer groups of a model, a pure function of model and configuration. Groups 0 and 1 are those of
/// `DecayGroup`; parameters that a pattern of the configuration matches are in others.
struct ParameterGroups {
  std::vector<ParameterGroup> table{kDecayGroups.begin(), kDecayGroups.end()};  ///< The groups by number.
  GroupOf group_of = {};                                                        ///< The number of a parameter's group.
};

/// The groups of a model whose parameters decay as `decay_rule` says, a function of the groups of `DecayGroup`. Frozen
/// parameters are in groups 0 and 1 only.
/// Errors  `config` for a pattern that matches no trainable parameter, and for one that only matches what patterns
///         before it match.
ParameterGroups parameter_groups(const torch::nn::Module& model, GroupOf decay_rule,
                                 const ParameterGroupsConfig& config);

/// Refuses settings that the optimizer would not apply.
/// Errors  `config` for patterns and an optimizer that does not take groups.
template <class Optimizer>
void check_parameter_groups(const ParameterGroupsConfig& config) {
  if (!TakesParameterGroups<Optimizer> && !(config == ParameterGroupsConfig{}))
    throw Error{Errc::config,
                "parameter_groups: " + type_name<Optimizer>() +
                    " steps all parameters with one learning rate: add a last parameter "
                    "`std::span<const ddpxx::ParameterGroup>` to the constructor of this optimizer, and apply its "
                    "settings as ddpxx::GroupTable gives them, or leave parameter_groups out"};
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/parameter_groups_inl.hpp>
#endif
