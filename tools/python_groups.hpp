// python_groups.hpp — finds which parameters the groups of a Python optimizer hold, whose state numbers them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "python_optimizer.hpp"

namespace python_groups {

inline constexpr std::string_view kModel = "model.";

using Groups = std::vector<ddpxx::OptimizerGroup>;

/// The groups of torch.optim's state_dict(); empty without an optimizer.
inline std::vector<ddpxx::PickleDict> saved_in(const ddpxx::PickleValue& optimizer) {
  std::vector<ddpxx::PickleDict> saved;
  const auto* dict = optimizer.get_if<ddpxx::PickleDict>();
  if (const auto* groups = dict != nullptr ? dict->find("param_groups") : nullptr)
    for (const auto& group : groups->get<ddpxx::PickleList>("param_groups"))
      saved.push_back(group.get<ddpxx::PickleDict>("a group"));
  return saved;
}

/// Whether the groups are the two that nanoGPT makes.
inline bool are_nanogpts(const ddpxx::TrainingCheckpoint& checkpoint) {
  return checkpoint.layout == ddpxx::CheckpointLayout::nanogpt && saved_in(checkpoint.optimizer).size() == 2;
}

/// nanoGPT's groups, each in the order of the model: matrices with weight decay, and all other parameters without.
inline Groups nanogpt_groups(ddpxx::Snapshot& snapshot) {
  Groups groups(2);
  for (auto& [name, decays] : snapshot.run.parameters) {
    decays = snapshot.tensors.at(std::string{kModel} + name).dim() >= 2;
    groups[decays ? 0 : 1].parameters.push_back(name);
  }
  return groups;
}

/// A number of a group; 0 where it has none of this name.
inline double number_of(const ddpxx::PickleDict& group, std::string_view name) {
  const auto* value = group.find(name);
  if (value == nullptr) return 0.0;
  if (const auto* count = value->get_if<std::int64_t>()) return static_cast<double>(*count);
  const auto* number = value->get_if<double>();
  return number != nullptr ? *number : 0.0;
}
inline double weight_decay(const ddpxx::PickleDict& group) { return number_of(group, "weight_decay"); }

/// Whether groups have different learning rates, or different weight decays other than none.
inline bool differ_in_rates(const std::vector<ddpxx::PickleDict>& saved) {
  std::set<double> rates, decays;
  for (const auto& group : saved) {
    rates.insert(number_of(group, "lr"));
    if (weight_decay(group) != 0) decays.insert(weight_decay(group));
  }
  return rates.size() > 1 || decays.size() > 1;
}

/// The parameter that a name of the file means. The fronts of wrappers, which the names of the snapshot lack, may
/// precede it.
/// Errors  `storage` if there is none.
inline ddpxx::OptimizedParameter& named(ddpxx::Snapshot& snapshot, const std::string& name) {
  ddpxx::OptimizedParameter* found = nullptr;
  for (auto& parameter : snapshot.run.parameters) {
    const bool is_meant = name == parameter.name || name.ends_with('.' + parameter.name);
    if (is_meant && (found == nullptr || parameter.name.size() > found->name.size())) found = &parameter;
  }
  if (found == nullptr)
    throw ddpxx::Error{ddpxx::Errc::storage, "the optimizer names a parameter " + name + ", which the model lacks"};
  return *found;
}

/// The groups under the names that the file has for their parameters; none where Python's program gave it no names.
inline Groups named_groups(ddpxx::Snapshot& snapshot, const std::vector<ddpxx::PickleDict>& saved) {
  Groups groups;
  for (const auto& group : saved) {
    const auto* names = group.find("param_names");
    if (names == nullptr || names->is_none()) return {};
    groups.emplace_back();
    for (const auto& name : names->get<ddpxx::PickleList>("param_names")) {
      auto& parameter = named(snapshot, name.get<std::string>("an entry of param_names"));
      parameter.decays = weight_decay(group) > 0;
      groups.back().parameters.push_back(parameter.name);
    }
  }
  return groups;
}

/// All groups that the file may mean: those that it names; one in the order of the model; minGPT's two, each by name;
/// nanoGPT's two; in files of other programs two as in minGPT, each by name or in the order of the model.
inline std::vector<Groups> possible_groups(ddpxx::Snapshot& snapshot, const ddpxx::TrainingCheckpoint& checkpoint) {
  using ddpxx::CheckpointLayout;
  const auto saved = saved_in(checkpoint.optimizer);
  if (auto groups = named_groups(snapshot, saved); !groups.empty()) return {std::move(groups)};
  if (are_nanogpts(checkpoint)) return {nanogpt_groups(snapshot)};
  if (saved.size() != 2) {
    for (auto& parameter : snapshot.run.parameters) parameter.decays = weight_decay(saved.front()) > 0;
    return {python_optimizer::groups(snapshot, CheckpointLayout::guide, ddpxx::AdamWSettings{})};
  }
  std::vector<Groups> possible{
      python_optimizer::groups(snapshot, CheckpointLayout::mingpt_ddp, ddpxx::AdamWSettings{})};
  if (checkpoint.layout == CheckpointLayout::mingpt_ddp) return possible;
  Groups in_order(2);
  for (const auto& [name, decays] : snapshot.run.parameters) in_order[decays ? 0 : 1].parameters.push_back(name);
  const auto is_same = [](const auto& group, const auto& other) { return group.parameters == other.parameters; };
  if (!std::ranges::equal(in_order, possible.front(), is_same)) possible.push_back(std::move(in_order));
  return possible;
}

/// Whether each moment has the shape of its parameter.
inline bool fits(const ddpxx::NamedTensors& state, const ddpxx::Snapshot& snapshot) {
  return std::ranges::none_of(snapshot.run.parameters, [&](const ddpxx::OptimizedParameter& parameter) {
    const auto& values = snapshot.tensors.at(std::string{kModel} + parameter.name);
    return std::ranges::any_of(std::array{"exp_avg", "exp_avg_sq", "momentum_buffer"}, [&](const char* moment) {
      const auto found = state.find(std::string{"optimizer."} + moment + '.' + parameter.name);
      return found != state.end() && found->second.sizes() != values.sizes();
    });
  });
}

/// The optimizer's state, under the names of the snapshot's parameters.
/// Errors  `storage` if no order of the parameters fits the state, or two that differ.
inline ddpxx::NamedTensors state_by_name(ddpxx::Snapshot& snapshot, const ddpxx::TrainingCheckpoint& checkpoint) {
  std::vector<ddpxx::NamedTensors> fitting;
  try {
    for (const auto& groups : possible_groups(snapshot, checkpoint)) {
      auto state = ddpxx::optimizer_from_python(checkpoint.optimizer, groups);
      if (state.empty()) return state;  // before the first step, or of SGD without momentum
      if (fits(state, snapshot)) fitting.push_back(std::move(state));
    }
  } catch (const ddpxx::Error& error) {
    throw ddpxx::Error{error.code(), std::string{error.what()} + "; what=model converts the model alone"};
  }
  if (fitting.empty())
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "the optimizer's state does not fit the model: its parameters must be in two groups as in "
                       "minGPT, or in one, as the model lists them; what=model converts the model alone"};
  if (fitting.size() > 1)
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "the file does not say whether the parameters in the optimizer's two groups are in the order of "
                       "the model or of their names, and its state fits both: give torch.optim named parameters and "
                       "save again, or convert the model alone, with what=model"};
  return std::move(fitting.front());
}

}  // namespace python_groups
