// ddpxx/train/idle_snapshot_settings.hpp — warnings for settings of snapshots that do nothing in a training.
#pragma once

#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

/// Warnings for settings of snapshots that have no effect with these settings of a training.
inline std::vector<FieldError> idle_snapshot_settings(const TrainingConfig& training, const SnapshotConfig& snapshot) {
  if (training.save_dir.empty() && (snapshot.keep_best > 0 || snapshot.keep_every > 0))
    return {{"snapshot", "keep_best and keep_every do nothing without training.save_dir: nothing is saved",
             Severity::warning}};
  if (snapshot.keep_best > 0 && !training.evaluates())
    return {{"snapshot.keep_best",
             "does nothing without training.eval_every or eval_every_epochs: no loss says which are the best",
             Severity::warning}};
  return {};
}

}  // namespace ddpxx
