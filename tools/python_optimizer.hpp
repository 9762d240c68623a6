// python_optimizer.hpp — converts a snapshot's optimizer to the form in which a Python program would have saved it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

namespace python_optimizer {

/// A setting of the run, or `otherwise` if it is not recorded.
inline std::string setting(const ddpxx::Snapshot& snapshot, std::string_view path, std::string_view otherwise) {
  for (const auto& setting : snapshot.run.settings)
    if (setting.path == path) return setting.value;
  return std::string{otherwise};
}
inline double number(const ddpxx::Snapshot& snapshot, std::string_view path, double otherwise) {
  const auto decimal = ddpxx::parse_decimal(setting(snapshot, path, ""));
  return decimal ? ddpxx::to_real<double>(*decimal).value_or(otherwise) : otherwise;
}

inline ddpxx::AdamWSettings adamw_settings(const ddpxx::Snapshot& snapshot) {
  const ddpxx::AdamWSettings known;
  return {.learning_rate = number(snapshot, "optimizer.learning_rate", known.learning_rate),
          .beta1 = number(snapshot, "optimizer.beta1", known.beta1),
          .beta2 = number(snapshot, "optimizer.beta2", known.beta2),
          .epsilon = number(snapshot, "optimizer.epsilon", known.epsilon),
          .weight_decay = number(snapshot, "optimizer.weight_decay", known.weight_decay),
          // A snapshot without the optimizer's name was almost always made with AdamW.
          .optimizer = snapshot.run.optimizer == "Adam" ? ddpxx::PythonAdam::adam : ddpxx::PythonAdam::adamw};
}
inline ddpxx::SGDSettings sgd_settings(const ddpxx::Snapshot& snapshot) {
  const ddpxx::SGDSettings known;
  return {.learning_rate = number(snapshot, "optimizer.learning_rate", known.learning_rate),
          .momentum = number(snapshot, "optimizer.momentum", known.momentum),
          .dampening = number(snapshot, "optimizer.dampening", known.dampening),
          .weight_decay = number(snapshot, "optimizer.weight_decay", known.weight_decay),
          .nesterov = setting(snapshot, "optimizer.nesterov", "false") == "true"};
}

/// Whether the snapshot records the optimizer's settings; otherwise the file gets Python's defaults.
inline bool knows_settings(const ddpxx::Snapshot& snapshot) {
  return !setting(snapshot, "optimizer.learning_rate", "").empty();
}

/// Whether only some of the parameters have weight decay, which one group of Python cannot express.
inline bool decays_in_part(const ddpxx::Snapshot& snapshot) {
  const auto decays = [](const ddpxx::OptimizedParameter& parameter) { return parameter.decays; };
  return std::ranges::any_of(snapshot.run.parameters, decays) && !std::ranges::all_of(snapshot.run.parameters, decays);
}

/// The groups that the programs of the layout make: minGPT's two, by name; in the others one, in the order of the
/// model. That group has weight decay if any of its parameters has.
template <class OptimizerSettings>
std::vector<ddpxx::OptimizerGroup> groups(const ddpxx::Snapshot& snapshot, ddpxx::CheckpointLayout layout,
                                          OptimizerSettings settings) {
  std::vector<std::string> names;
  std::map<std::string, bool> decays;
  for (const auto& parameter : snapshot.run.parameters) {
    names.push_back(parameter.name);
    decays[parameter.name] = parameter.decays;
  }
  if (layout == ddpxx::CheckpointLayout::mingpt_ddp)
    return ddpxx::mingpt_groups(
        names, [&](const std::string& name) { return decays.at(name); }, settings);
  if (std::ranges::none_of(decays, [](const auto& each) { return each.second; })) settings.weight_decay = 0.0;
  return {{names, ddpxx::to_python(settings)}};
}

/// Whether the run set learning rates or weight decays for parameters chosen by their names.
inline bool has_own_groups(const ddpxx::Snapshot& snapshot) {
  return setting(snapshot, "parameter_groups.learning_rate", "{}") != "{}" ||
         setting(snapshot, "parameter_groups.weight_decay", "{}") != "{}";
}

/// The optimizer's state_dict(); none if the layout has no place for it, or if the snapshot has no state of AdamW, Adam
/// or SGD or does not record the order of the parameters.
/// Errors  `config` for a run with its own parameter groups, for which the layouts have no param_groups.
inline std::optional<ddpxx::PickleValue> state_dict(const ddpxx::Snapshot& snapshot, ddpxx::CheckpointLayout layout) {
  const auto has = [&](std::string_view moment) {
    const auto front = "optimizer." + std::string{moment} + '.';
    const auto found = snapshot.tensors.lower_bound(front);
    return found != snapshot.tensors.end() && found->first.starts_with(front);
  };
  if (!ddpxx::has_optimizer(layout) || snapshot.run.parameters.empty()) return std::nullopt;
  const auto& name = snapshot.run.optimizer;  // older versions recorded none of Muon, Lion and LAMB
  const bool has_both = has("exp_avg") && has("momentum_buffer");  // as Muon has
  if ((!name.empty() && name != "AdamW" && name != "Adam" && name != "SGD") || has_both) return std::nullopt;
  if (has_own_groups(snapshot) && (has("exp_avg") || has("momentum_buffer")))
    throw ddpxx::Error{ddpxx::Errc::config,
                       "parameter_groups gave some parameters of this run their own learning rate or weight decay, and "
                       "the param_groups of a .pt file cannot say so: layout=state_dict converts the weights alone"};
  if (has("exp_avg"))
    return ddpxx::optimizer_to_python(snapshot.tensors, groups(snapshot, layout, adamw_settings(snapshot)));
  if (has("momentum_buffer"))
    return ddpxx::optimizer_to_python(snapshot.tensors, groups(snapshot, layout, sgd_settings(snapshot)));
  return std::nullopt;
}

}  // namespace python_optimizer
