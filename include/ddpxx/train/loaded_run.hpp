// ddpxx/train/loaded_run.hpp — what a run learns from the snapshot that it was loaded from.
#pragma once

#include <ddpxx/snapshot/run_info.hpp>

namespace ddpxx {

/// The facts of a loaded run; its tensors are in the run's state already.
struct LoadedRun {
  RunInfo info;
  bool has_optimizer = true;  ///< False if the snapshot holds a model alone, without the state of an optimizer.
};

}  // namespace ddpxx
