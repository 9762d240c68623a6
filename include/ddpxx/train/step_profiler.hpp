// ddpxx/train/step_profiler.hpp — records what a rank does in some steps, into a file for trace viewers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

/// Profiles a few steps with LibTorch's profiler, as torch.profiler does: the operations of the CPU, on a GPU its
/// kernels and copies, and the spans of the step (data, forward, backward, optimizer, waits for collectives). The file
/// has Chrome's trace format, which ui.perfetto.dev, chrome://tracing and TensorBoard's profiler plugin show.
///
/// A thread has at most one profiler at a time. If LibTorch cannot start or end the profile, or write the file, that is
/// a warning, and the training goes on. An error of the device, for which begin_step(), end_step() and finish() wait,
/// is thrown.
class StepProfiler {
 public:
  struct Options {
    std::filesystem::path folder;
    std::int64_t after = 10;  ///< Number of steps before the first one that is profiled.
    std::int64_t steps = 3;   ///< Number of steps that are profiled.
    int rank = 0;
    c10::Device device = at::kCPU;
  };

  /// Makes the folder. On a CPU, in a `ProgramFrame`, it sets the environment's KINETO_LOG_LEVEL unless that is set, so
  /// that the profiler does not report a missing GPU as an error.
  /// Errors  `config` if the folder cannot be made.
  explicit StepProfiler(Options options);
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;
  ~StepProfiler() { drop(); }

  /// A training begins, or goes on from a snapshot: counts steps anew, and drops a profile that is under way.
  void begin();
  /// Step `number` begins; if it is the first one to be profiled, starts the profile. Returns whether it has.
  bool begin_step(std::int64_t number);
  /// The step is done; if it is the last one to be profiled, ends the profile and writes
  /// `rank-R.steps-A-B.pt.trace.json` to the folder. Returns whether it has.
  bool end_step();
  /// The training ends: writes the profile that is under way, and says so if no step was profiled.
  void finish();

 private:
  void drop() noexcept;
  void write();
  /// Waits until the kernels that were started have ended: those of a step must not run in the profile of another one.
  void wait_for_device() const;

  Options options_;
  Log log_;
  std::int64_t done_ = 0;      ///< Steps done since begin().
  std::int64_t first_ = 0;     ///< The number of the profile's first step.
  std::int64_t profiled_ = 0;  ///< Steps done in the profile.
  bool is_under_way_ = false;
  bool has_profiled_ = false;  ///< A profile has been started since begin().
};

namespace detail {

/// Makes the profiler that `training` asks for; null if it asks for none. All ranks have equal settings of it.
/// Ranks   Collective.
/// Errors  `config` on every rank if one of them cannot make its folder.
std::unique_ptr<StepProfiler> make_profiler(const TrainingConfig& training, const Group& group, c10::Device device);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/step_profiler_inl.hpp>
#endif
