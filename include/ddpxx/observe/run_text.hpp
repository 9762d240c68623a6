// ddpxx/observe/run_text.hpp — what a run says of itself when it begins and when it ends.
#pragma once

#include <string>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/short_text.hpp>

namespace ddpxx {

/// Three lines, each narrower than most terminals: the model and how it is computed, the data, the place of snapshots.
/// On a GPU the line `device cuda:0 NVIDIA H200, 139 GiB` follows the first.
inline std::string head_of_run(const RunBegan& run) {
  std::string text = "model with " + short_count(static_cast<double>(run.parameters), 1'000, " kMGT") +
                     " parameters, strategy " + run.strategy + ", " + counted(run.ranks, "rank") + " on " + run.device +
                     ", precision " + run.precision + '\n';
  if (!run.gpu.empty()) text += "device " + run.device + ' ' + harmless(run.gpu) + '\n';
  text += "global batch " + std::to_string(run.global_batch()) + " (" + counted(run.ranks, "rank") + " x " +
          std::to_string(run.batch_size) +
          (run.accumulation_steps > 1 ? " x " + std::to_string(run.accumulation_steps) + " accumulated" : "") + "), " +
          counted(run.samples, "sample") + ", " + counted(run.steps_per_epoch, "step") + " an epoch\n";
  return text + "seed " + std::to_string(run.seed) +
         (run.save_dir.empty() ? ", saves nothing" : ", snapshots in " + harmless(run.save_dir)) + '\n';
}

/// One line. The best evaluation is that of this start, and need not be that of the last snapshot.
inline std::string closing_line(const RunEnded& run) {
  const auto total = run.last_step > 0 ? '/' + std::to_string(run.last_step) : "";
  std::string text = (run.step < run.last_step ? "stopped at step " : "finished at step ") + std::to_string(run.step) +
                     total + ": " + counted(run.steps, "step") + " in " + short_duration(run.seconds);
  if (run.best)
    text += std::string{", best val_loss"} + (run.steps < run.step ? " of this start " : " ") +
            formatted("%.4f", run.best->val_loss) + " at step " + std::to_string(run.best->step);
  return text + (run.saved.empty() ? "; nothing saved" : "; last snapshot in " + harmless(run.saved));
}

}  // namespace ddpxx
