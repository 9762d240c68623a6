// ddpxx/optim/group_table.hpp — the learning rate and the weight decay of each group that an optimizer steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// The groups of an optimizer by number, with the settings of its config where a group has none of its own.
/// Errors  `config` if a group has its own learning rate and the optimizer's is 0: a group follows the schedule in
///         proportion to the two.
class GroupTable {
 public:
  /// `learning_rate` is the peak of the optimizer's schedule, `weight_decay` its coefficient.
  GroupTable(std::span<const ParameterGroup> groups, double learning_rate, double weight_decay)
      : groups_{groups.begin(), groups.end()}, learning_rate_{learning_rate}, weight_decay_{weight_decay} {
    const auto has_rate = [](const ParameterGroup& group) { return group.learning_rate.has_value(); };
    if (learning_rate == 0.0 && std::ranges::any_of(groups_, has_rate))
      throw Error{Errc::config,
                  "some parameters have their own learning rate, and the optimizer's learning_rate is 0: a group "
                  "follows the schedule in proportion to it, so set it above 0"};
  }

  std::size_t size() const noexcept { return groups_.size(); }

  /// The index of a slice's group.
  /// Errors  `config` for a number that no group has.
  std::size_t index_of(int group) const {
    if (group < 0 || static_cast<std::size_t>(group) >= groups_.size())
      throw Error{Errc::config, "a parameter was put into optimizer group " + std::to_string(group) +
                                    ", but this optimizer has the groups 0 (weights that decay)" +
                                    (groups_.size() > 2 ? " to " + std::to_string(groups_.size() - 1) + " only"
                                                        : " and 1 (the rest) only")};
    return static_cast<std::size_t>(group);
  }

  /// Refuses slices of groups that the optimizer does not have.
  ///
  /// Errors  those of index_of().
  void check(std::span<const Slice> slices) const {
    for (const auto& slice : slices) index_of(slice.group);
  }

  /// The learning rate of a group in a step for which the schedule gives `scheduled`, as torch's LambdaLR computes it.
  double learning_rate(std::size_t group, double scheduled) const {
    const auto& own = groups_[group].learning_rate;
    return own ? *own * (scheduled / learning_rate_) : scheduled;
  }
  double weight_decay(std::size_t group) const {
    return groups_[group].weight_decay.value_or(groups_[group].decays ? weight_decay_ : 0.0);
  }

 private:
  std::vector<ParameterGroup> groups_;
  double learning_rate_;
  double weight_decay_;
};

}  // namespace ddpxx
