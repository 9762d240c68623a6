// ddpxx/train/loaded_run.hpp — what a run learns from the snapshot that it was loaded from.
#pragma once

#include <cstdint>

#include <ddpxx/snapshot/run_info.hpp>

namespace ddpxx {

/// The parts of a run's state that a snapshot holds. A part is false if the run has it and the snapshot has not: it
/// begins anew then.
struct HeldState {
  bool optimizer = true;       ///< The moments of the optimizer.
  bool average = true;         ///< The moving average of the parameters.
  bool scale = true;           ///< The loss scale.
  bool spikes = true;          ///< The average of the gradients' norms.
  bool plateau = true;         ///< What the evaluations so far say about the learning rate.
  bool early_stopping = true;  ///< The best value and the count of early stopping.
};

/// The facts of a loaded run; its tensors are in the run's state already.
struct LoadedRun {
  RunInfo info;
  HeldState held = {};
  std::int64_t saved_at = 0;  ///< Seconds since 1970-01-01 UTC; 0 if unknown.
};

}  // namespace ddpxx
