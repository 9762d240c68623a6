// ddpxx/train/check_trainer.hpp — what a trainer refuses before it sends anything.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/config/check_config.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/train/check_group_device.hpp>
#include <ddpxx/train/common_settings.hpp>
#include <ddpxx/train/deterministic_mode.hpp>
#include <ddpxx/train/micro_batches.hpp>
#include <ddpxx/train/same_run.hpp>
#include <ddpxx/train/trainer_config.hpp>
#include <ddpxx/train/trainer_parts.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

/// Checks the settings of a `TrainerConfig` by the rules of its parts, as parse_config does, and by those between them.
/// Errors  `config`, with all that is wrong.
template <class Config>
void check_trainer_config(const Config& config) {
  std::vector<FieldError> errors;
  const auto add = [&](const char* path, const auto& part) {
    for (auto& error : config_errors(part, path)) errors.push_back(std::move(error));
  };
  if (config.batch_size < 1)
    errors.push_back({"batch_size", std::to_string(config.batch_size) + " is out of range (allowed: at least 1)"});
  if (config.num_workers < 0)
    errors.push_back({"num_workers", std::to_string(config.num_workers) + " is out of range (allowed: at least 0)"});
  add("training", config.training);
  add("snapshot", config.snapshot);
  add("optimizer", config.optimizer);
  add("precision", config.precision);
  add("strategy", config.strategy);
  add("early_stopping", config.early_stopping);
  add("plateau", config.plateau);
  add("parameter_groups", config.parameter_groups);
  for (auto& error : config.check()) errors.push_back(std::move(error));
  throw_config_errors(errors);
}

/// Checks a global batch, for which each rank computes `count` batches.
/// Errors  `config` where the training set has fewer samples, or a CUDA graph would have more than one batch.
inline void check_global_batch(const TrainingConfig& training, std::int64_t samples, std::int64_t count) {
  const auto setting = "training.global_batch_size=" + std::to_string(training.global_batch_size);
  if (training.global_batch_size > samples)
    throw Error{Errc::config,
                setting + ": the training set has " + std::to_string(samples) + " samples: choose at most as many"};
  if (training.cuda_graph && count > 1)
    throw Error{Errc::config, "training.cuda_graph: a step is captured with one batch, and " + setting + " makes " +
                                  std::to_string(count) +
                                  " of each rank: raise the batch size, or set cuda_graph=false"};
}

/// Checks the size of the training set.
/// Errors  `data` where it has no samples, or a negative number of them.
inline void check_dataset_size(std::int64_t samples) {
  if (samples < 0)
    throw Error{Errc::data, "the size() of the training set returned " + std::to_string(samples) +
                                ": it must return the number of samples"};
  if (samples == 0)
    throw Error{Errc::data, "the training set is empty: its size() returned 0; check what the dataset has read"};
}

/// Checks that a trainer can work with what it is given, and that all ranks were given the same. `types` are the names
/// of its optimizer, precision and strategy.
/// Ranks   Collective; the first thing that a trainer sends, since a strategy may begin with collectives that another
///         one does not know.
/// Errors  `config` for a part that is missing or on another device, and for a global batch that the ranks cannot
///         compute; `data` for an empty training set; `peer` naming the settings that differ.
template <class Config, class Model, class Dataset>
void check_trainer(const Config& config, const Settings& types, const ConfigRecord& record,
                   const TrainerParts<Dataset>& parts, const Group& group, const Model* model, const Dataset* dataset) {
  if (model == nullptr || dataset == nullptr)
    throw Error{Errc::config, "a trainer needs a model and a dataset: one of them is null"};
  if (const auto parameters = model->parameters(); !parameters.empty()) {
    check_device(config.training.device, parameters.front().device());
    check_group_device(parameters.front().device(), group.device());
  }
  if (parts.storage && config.training.save_dir.empty())
    throw Error{Errc::config,
                "training.save_dir: the program hands in a storage, and the setting is its name in messages: set it"};
  if (const auto setting = config.training.evaluation_setting(); !setting.empty() && parts.validation == nullptr)
    throw Error{Errc::config, "training." + setting +
                                  ": there is no validation set to evaluate on: give the trainer one, or set " +
                                  config.training.settings_without_evaluations()};
  if (config.training.deterministic) DeterministicMode::check(group.device());
  check_same_run(common_settings(config, types, record.settings, *dataset, parts.validation.get()), group);
  check_dataset_size(dataset->size());
  check_global_batch(config.training, dataset->size(),
                     micro_batches(config.batch_size, config.training, group.size()).count);
}

}  // namespace ddpxx
