// ddpxx/observe/events.hpp — what a training run tells those who watch it.
#pragma once

#include <cstdint>
#include <string>

namespace ddpxx {

/// One optimizer step is complete.
struct StepDone {
  std::int64_t step = 0;  ///< From 1.
  std::int64_t epoch = 0;
  double loss = 0;       ///< Mean over the global batch.
  double grad_norm = 0;  ///< Of all ranks, before clipping.
  double learning_rate = 0;
  double tokens_per_second = 0;  ///< Of all ranks.
  double step_ms = 0;
  std::int64_t peak_memory_bytes = 0;  ///< Of this process, since its start.
  std::int64_t state_bytes = 0;        ///< This rank's parameters, gradients and optimizer state.
};

/// The model was evaluated after this step.
struct Evaluated {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double val_loss = 0;
  std::int64_t samples = 0;
};

/// A snapshot of the state after this step can be loaded.
struct SnapshotSaved {
  std::int64_t step = 0;
  std::string path = {};
  double seconds = 0;         ///< From the begin of saving until then.
  double waited_seconds = 0;  ///< As long has training stood still for it.
};

}  // namespace ddpxx
