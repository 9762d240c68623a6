// ddpxx/train/recorded_settings.hpp — the settings that the snapshots of a run record.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/train/step_batches.hpp>

namespace ddpxx {

/// What the datasets want to be recorded. Another training text is another run; another validation text deserves a
/// warning, since losses before and after are not comparable.
template <MapDataset Dataset>
Settings data_settings(const Dataset& dataset, const Dataset* validation) {
  auto settings = recorded_facts(dataset);
  if (validation == nullptr) return settings;
  const auto facts = settings;
  for (auto fact : recorded_facts(*validation)) {
    const auto is_equal = [&fact](const Setting& other) {
      return other.path == fact.path && other.value == fact.value;
    };
    if (std::any_of(facts.begin(), facts.end(), is_equal)) continue;
    fact.path = "validation: " + fact.path;
    fact.resume = Resume::warn;
    settings.push_back(std::move(fact));
  }
  return settings;
}

/// The parameter groups of a config, as far as `recorded` does not have them: a program may set them in code. Snapshots
/// keep them, because they decide what a file for PyTorch can say.
Settings unrecorded_groups(const ParameterGroupsConfig& groups, const Settings& recorded);

/// The settings that snapshots record: `settings`, those of the program, and what the trainer adds to them. A run that
/// resumes compares its settings with them.
template <class Config, MapDataset Dataset>
Settings recorded_settings(Settings settings, const Config& config, const StepBatches<Dataset>& batches,
                           const Dataset* validation, std::int64_t global_batch) {
  for (auto& fact : data_settings(batches.dataset(), validation)) settings.push_back(std::move(fact));
  for (auto& setting : unrecorded_groups(config.parameter_groups, settings)) settings.push_back(std::move(setting));
  settings.push_back({"the number of training samples", std::to_string(batches.num_samples()), Resume::must_match});
  settings.push_back({"the order of the samples", batches.order_name(), Resume::must_match});
  // Where the program has no record, nothing else says that the place in the data is one in another order.
  if (std::ranges::find(settings, "training.seed", &Setting::path) == settings.end())
    settings.push_back({"training.seed", std::to_string(config.training.seed), Resume::must_match});
  settings.push_back({"global batch", std::to_string(global_batch)});
  return settings;
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/recorded_settings_inl.hpp>
#endif
