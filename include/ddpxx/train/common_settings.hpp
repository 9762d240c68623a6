// ddpxx/train/common_settings.hpp — the settings by which all ranks must act alike.
#pragma once

#include <string>
#include <utility>

#include <ddpxx/config/part_settings.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/train/recorded_settings.hpp>

namespace ddpxx {

namespace detail {

/// The settings of `common` without those that the ranks may have of their own, then what the datasets record, then the
/// settings of `recorded` that a resumed run must not change and that are not in `common`.
Settings common_of_all(Settings common, const Settings& of_data, const Settings& recorded);

}  // namespace detail

/// Settings that must be equal on all ranks; otherwise a collective would hang, or they would train different models.
/// `types` are the trainer's types, `recorded` the settings of the program. A resumed run may change some of them.
///
/// Devices, worker threads and the path of the metrics may differ, and so may limits of time, which the ranks vote on,
/// or of which rank 0 decides. All settings of a strategy must be equal: an offload reduces the gradients' norm on the
/// CPU, for example, where ranks without it use the GPU's backend, and a Recompute around FSDP gathers again.
template <class Config, MapDataset Dataset>
Settings common_settings(const Config& config, const Settings& types, const Settings& recorded, const Dataset& dataset,
                         const Dataset* validation) {
  Settings common = types;
  common.push_back({"the number of training samples", std::to_string(dataset.size())});
  common.push_back({"the number of validation samples", std::to_string(validation ? validation->size() : 0)});
  common.push_back({"batch_size", std::to_string(config.batch_size)});
  common.push_back({"whether metrics are written", config.training.metrics.empty() ? "no" : "yes"});
  const auto add = [&](const Settings& settings) {
    for (const auto& setting : settings) common.push_back({setting.path, shortened(setting.value)});
  };
  add(part_settings(config.training, "training"));
  add(part_settings(config.snapshot, "snapshot"));
  add(part_settings(config.optimizer, "optimizer"));
  add(part_settings(config.parameter_groups, "parameter_groups"));
  add(part_settings(config.early_stopping, "early_stopping"));
  add(part_settings(config.plateau, "plateau"));
  add(part_settings(config.precision, "precision"));
  add(part_settings(config.strategy, "strategy"));
  return detail::common_of_all(std::move(common), data_settings(dataset, validation), recorded);
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/common_settings_inl.hpp>
#endif
