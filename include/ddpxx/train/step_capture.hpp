// ddpxx/train/step_capture.hpp — how a device records the operations of a step, to start them again by one call.
#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace ddpxx {

/// Starts the recorded operations again. They read and write the memory that they had when they were recorded.
using Replay = std::function<void()>;

/// Records operations on a device. What the host computes in between, and numbers that it hands to the operations, are
/// not computed again in a replay.
class StepCapture {
 public:
  StepCapture() = default;
  StepCapture(const StepCapture&) = delete;
  StepCapture& operator=(const StepCapture&) = delete;
  virtual ~StepCapture() = default;

  /// Runs `work` where its operations can be recorded. They run behind those that were started before, and before those
  /// that are started afterwards.
  virtual void run(const std::function<void()>& work) = 0;

  /// Runs `work`, and records the operations that it starts. Called inside of run().
  /// Errors  `config` where they cannot be recorded, as those that wait for the device.
  virtual Replay capture(const std::function<void()>& work) = 0;
};

/// Makes the StepCapture of a device.
using MakeStepCapture = std::function<std::unique_ptr<StepCapture>(at::Device)>;

}  // namespace ddpxx
