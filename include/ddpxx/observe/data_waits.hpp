// ddpxx/observe/data_waits.hpp — whether training waits for its batches for a large part of the time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ddpxx/observe/events.hpp>

namespace ddpxx {

/// Sums the waits for batches over windows of at least 10 steps and 10 s: one slow batch, such as the first of an
/// epoch, must not decide alone, and in a run of a few seconds no wait is worth a warning.
class DataWaits {
 public:
  struct Finding {
    std::int64_t steps = 0;      ///< The number of steps in the window.
    double waited_fraction = 0;  ///< The part of their time that was spent waiting.
  };

  /// Adds a step. Returns the window that it ends if the waits take more than a fifth of its time.
  std::optional<Finding> add(const StepDone& step) {
    static constexpr std::int64_t kSteps = 10;
    static constexpr double kMilliseconds = 10'000, kLargePart = 0.2;
    ++steps_;
    step_ms_ += step.step_ms;
    data_ms_ += step.data_ms;
    if (steps_ < kSteps || step_ms_ < kMilliseconds) return std::nullopt;
    const auto [steps, step_ms, data_ms] = std::exchange(*this, {});
    if (data_ms <= kLargePart * step_ms) return std::nullopt;
    return Finding{steps, data_ms / step_ms};
  }

 private:
  std::int64_t steps_ = 0;
  double step_ms_ = 0;
  double data_ms_ = 0;
};

}  // namespace ddpxx
