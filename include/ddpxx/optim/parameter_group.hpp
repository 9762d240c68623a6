// ddpxx/optim/parameter_group.hpp — the settings that the parameters of an optimizer group share.
#pragma once

#include <array>
#include <optional>

namespace ddpxx {

/// The optimizer groups of a run without settings of its own for some parameters: weights that decay, and the rest.
enum class DecayGroup : int { decay = 0, no_decay = 1 };

/// What the parameters of one optimizer group are stepped with, where it is not what the optimizer's config says.
struct ParameterGroup {
  bool decays = true;                        ///< Whether the optimizer's own weight decay applies.
  std::optional<double> learning_rate = {};  ///< Peak learning rate; none: the optimizer's.
  std::optional<double> weight_decay = {};  ///< Weight decay coefficient; none: the optimizer's, or 0 as `decays` says.

  bool operator==(const ParameterGroup&) const = default;
};

/// The two groups of `DecayGroup`, by number.
inline constexpr std::array kDecayGroups{ParameterGroup{.decays = true}, ParameterGroup{.decays = false}};

}  // namespace ddpxx
