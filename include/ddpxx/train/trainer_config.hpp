// ddpxx/train/trainer_config.hpp — what a user may set about a training, in one struct that programs compose.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/optim/plateau_config.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/default_types.hpp>
#include <ddpxx/train/early_stopping_config.hpp>
#include <ddpxx/train/idle_snapshot_settings.hpp>
#include <ddpxx/train/training_config.hpp>

namespace ddpxx {

/// The settings of a trainer with these types. A program composes it as a field, or flattens it:
///
///     using Train = Trainer<Net, Rows>;
///     struct Config {
///       RowsConfig data;
///       Train::Config train;
///       static constexpr auto describe() { return fields(flatten<&Config::train>()); }
///     };
template <class Optimizer = AdamW, class Precision = Float32, class Strategy = DDP>
struct TrainerConfig {
  std::int64_t batch_size = 8;
  std::int64_t num_workers = 0;
  TrainingConfig training = {};
  SnapshotConfig snapshot = {};
  typename Optimizer::Config optimizer = {};
  typename Precision::Config precision = {};
  typename Strategy::Config strategy = {};
  EarlyStoppingConfig early_stopping = {};
  PlateauConfig plateau = {};
  ParameterGroupsConfig parameter_groups = {};

  static constexpr auto describe() {
    return fields(
        field<&TrainerConfig::batch_size>("Samples in each batch of a rank", at_least(1), Unit::samples, Resume::free),
        field<&TrainerConfig::num_workers>("Threads that prepare the next batches during a step; with 0 the training "
                                           "thread prepares them between steps",
                                           between(0, 1024), Unit::threads, Resume::free));
  }
  std::vector<FieldError> check() const {
    auto errors = idle_snapshot_settings(training, snapshot);
    for (const auto& [setting, metric] :
         {std::pair{"early_stopping.metric", &early_stopping.metric}, std::pair{"plateau.metric", &plateau.metric}})
      if (!metric->empty() && !training.evaluates())
        errors.push_back({setting, "nothing is evaluated: set training.eval_every, or training.eval_every_epochs"});
    return errors;
  }
};

/// Compares the device of a model with `training.device`. A program obeys that setting by two calls:
/// `join(torchrun_environment(), config.training.device)`, and `make_model<Model>(seed, group.device(), ...)`.
/// Errors  `config` for a model that is on another kind of device than the setting names.
inline void check_device(const std::string& wish, at::Device device) {
  if (wish != "auto" && at::Device{wish}.type() != device.type())
    throw Error{Errc::config, "training.device=" + wish + ": the model is on " + device.str() +
                                  "; call join(environment, training.device), and make the model on group.device()"};
}

}  // namespace ddpxx
