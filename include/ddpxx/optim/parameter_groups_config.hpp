// ddpxx/optim/parameter_groups_config.hpp — learning rates and weight decays for parameters chosen by their names.
#pragma once

#include <map>
#include <string>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Settings for the parameters whose names match a pattern. Names are those of the model, such as
/// `transformer.wte.weight`; a parameter that is registered under several names is matched by the first one. Patterns
/// are those of fnmatch(3): `*` stands for any characters, including dots, and `?` for one character. If several
/// patterns match a name, the first one in the order of the map counts. The map sorts patterns by their characters, and
/// `*` comes before letters.
struct ParameterGroupsConfig {
  std::map<std::string, double> learning_rate = {};
  std::map<std::string, double> weight_decay = {};

  static constexpr auto describe() {
    using Config = ParameterGroupsConfig;
    return fields(
        field<&Config::learning_rate>(
            "Peak learning rates of parameters, by patterns of their names such as 'transformer.wte.*'; the "
            "optimizer's "
            "schedule scales them; of several patterns that match, the first in the order of characters counts",
            at_least(0.0)),
        field<&Config::weight_decay>(
            "Weight decay coefficients of parameters, by patterns as in learning_rate, also for parameters that "
            "otherwise do not decay",
            at_least(0.0)));
  }
  bool operator==(const ParameterGroupsConfig&) const = default;
};

}  // namespace ddpxx
