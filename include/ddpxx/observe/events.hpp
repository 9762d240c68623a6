// ddpxx/observe/events.hpp — what a training run reports to its observers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddpxx/core/setting.hpp>
#include <ddpxx/observe/rank_time.hpp>

namespace ddpxx {

/// A number of a model's own beside the loss: its mean, as the loss is a mean.
struct Metric {
  std::string name;
  double value = 0;
};
using Metrics = std::vector<Metric>;

/// When something happened.
struct EventTime {
  double time = 0;     ///< Seconds since the beginning of 1970, UTC.
  double elapsed = 0;  ///< Seconds since this start of the program began to train.
};

/// The first step of this start of the program comes next.
struct RunBegan {
  std::int64_t parameters = 0;  ///< Elements of all parameters of the model, trained or frozen.
  std::string strategy = {};
  std::string precision = {};
  std::string device = {};
  std::string gpu = {};  ///< Name and memory of rank 0's GPU; empty on a CPU.
  std::int64_t ranks = 1;
  std::vector<std::string> hosts = {};  ///< Host name of each rank; empty where the ranks' times are not measured.
  std::int64_t batch_size = 0;          ///< Samples that a rank takes at once.
  std::int64_t accumulation_steps = 1;
  std::int64_t samples = 0;  ///< Size of the training set.
  std::int64_t steps_per_epoch = 0;
  std::uint64_t seed = 0;
  std::string save_dir = {};  ///< Empty: nothing is saved.
  std::int64_t step = 0;      ///< Steps that are done already.
  bool goes_on = false;       ///< The run goes on from a snapshot in save_dir, or from earlier steps of this trainer.
  /// When the snapshot that it goes on with was saved, in seconds since 1970-01-01 UTC; 0 for none, or if not known.
  std::int64_t saved_at = 0;
  std::int64_t last_step = 0;  ///< Where the run ends; 0 when that is not known.
  double seconds_allowed = 0;  ///< The run ends after that time in any case; 0 means no limit.
  Settings settings = {};      ///< The configuration, as snapshots record it.

  std::int64_t global_batch() const { return batch_size * accumulation_steps * ranks; }
};

/// Memory of a GPU as LibTorch's allocator counts it for this process, in bytes.
struct GPUMemory {
  std::int64_t allocated_bytes = 0;  ///< Memory of the tensors that exist now.
  std::int64_t reserved_bytes = 0;   ///< Held by the allocator, for tensors or free.
  std::int64_t peak_bytes = 0;       ///< Maximum of allocated_bytes since the start of the process.
  std::int64_t retries = 0;          ///< Allocations that had to free the allocator's unused memory first.
};

/// One optimizer step is complete.
struct StepDone {
  std::int64_t step = 0;  ///< From 1.
  std::int64_t epoch = 0;
  double loss = 0;  ///< Mean over the global batch.
  /// Norm of the averaged gradient before clipping; where ranks step alone, the mean of their norms.
  double grad_norm = 0;
  double learning_rate = 0;
  /// What the loss was multiplied by, on rank 0; none where the precision does not scale the loss.
  std::optional<double> loss_scale = {};
  /// Steps left out since this start, since their gradients were not finite or too large; none where none can be.
  std::optional<std::int64_t> skipped_steps = {};
  double tokens_per_second = 0;  ///< Targets that all ranks together train on in a second.
  double step_ms = 0;
  /// The part of step_ms in which this rank's training thread waited for the batches of the step, or made them; 0 for
  /// batches that a loop passes to `Trainer::step(batches)`.
  double data_ms = 0;
  std::int64_t peak_memory_bytes = 0;     ///< Largest resident memory of this process since its start.
  std::int64_t state_bytes = 0;           ///< This rank's parameters, gradients and optimizer state.
  std::optional<GPUMemory> gpu = {};      ///< None on a CPU.
  std::int64_t samples = 0;               ///< Samples that all ranks together have trained on since step 0.
  std::int64_t tokens = 0;                ///< Targets that all ranks together have trained on since step 0.
  Metrics metrics = {};                   ///< The model's own, over the global batch.
  std::vector<RankTime> rank_times = {};  ///< Of the ranks in order; empty where they are not measured.
  EventTime at = {};
};

/// An evaluation is under way.
struct Evaluating {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< Samples that all ranks together have evaluated so far.
  std::int64_t all_samples = 0;
};

/// The model was evaluated after this step.
struct Evaluated {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double val_loss = 0;
  std::int64_t samples = 0;  ///< Samples of the validation set that were evaluated.
  Metrics metrics = {};      ///< The model's own, over the validation set.
  EventTime at = {};
};

/// A snapshot of the state after this step can be loaded.
struct SnapshotSaved {
  std::int64_t step = 0;
  std::string path = {};
  double seconds = 0;         ///< From the begin of saving until then.
  double waited_seconds = 0;  ///< Seconds that training was blocked by this save.
  EventTime at = {};
};

/// The run has come to its end, or this start of the program to the end of its part of the run.
struct RunEnded {
  std::int64_t step = 0;       ///< The last one that was done.
  std::int64_t last_step = 0;  ///< Where the run was to end; 0 when that was not known.
  std::int64_t steps = 0;      ///< Done by this start of the program.
  double seconds = 0;
  std::optional<Evaluated> best = {};  ///< The evaluation of this start that has the lowest loss.
  std::string saved = {};              ///< The last snapshot; empty where none was saved.
};

}  // namespace ddpxx
