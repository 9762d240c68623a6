// ddpxx/optim/parameter_group.hpp — the settings that the parameters of an optimizer group share.
#pragma once

#include <array>
#include <optional>

namespace ddpxx {

/// The first two optimizer groups of each run: parameters with weight decay, and those without.
enum class DecayGroup : int { decay = 0, no_decay = 1 };

/// The settings of one optimizer group that take the place of those of the optimizer's config.
struct ParameterGroup {
  bool decays = true;  ///< Whether weight decay applies; if `weight_decay` is set, whether that is above 0.
  std::optional<double> learning_rate = {};  ///< Peak learning rate; none: the optimizer's.
  /// Weight decay coefficient; none: the optimizer's if the group decays, else 0.
  std::optional<double> weight_decay = {};

  bool operator==(const ParameterGroup&) const = default;
};

/// The two groups of `DecayGroup`, by number.
inline constexpr std::array kDecayGroups{ParameterGroup{.decays = true}, ParameterGroup{.decays = false}};

}  // namespace ddpxx
