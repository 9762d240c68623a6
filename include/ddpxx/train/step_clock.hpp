// ddpxx/train/step_clock.hpp — how long the steps of a rank take, and how much of that it waits for other ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <ddpxx/comm/wait_clock.hpp>

namespace ddpxx {

/// Measures from one step to the next.
class StepClock {
 public:
  struct Lap {
    double step_ms = 0;  ///< Milliseconds since the last lap.
    double own_ms = 0;   ///< Those of them in which this rank did not wait for collectives.
  };

  /// Lets `waits` count for the life of this clock. Where it is null, own_ms is step_ms.
  explicit StepClock(std::shared_ptr<WaitClock> waits) : waits_{std::move(waits)} {
    if (!waits_) return;
    waits_->start();
    waited_ = waits_->milliseconds();
  }
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;
  ~StepClock() {
    if (waits_) waits_->stop();
  }

  /// Begins a lap; what has passed since the last one counts for none.
  void restart() {
    take();
    excess_ = 0;
  }

  /// Ends a lap, and begins the next one. On a GPU the waits are those that its stream has passed by now, which may
  /// belong to the step before. Where they are longer than the lap, the next lap gets the rest, so that the sum over
  /// many steps is right.
  Lap take() {
    const auto now = Clock::now();
    const auto waited = waits_ ? waits_->milliseconds() : 0;
    const std::chrono::duration<double, std::milli> passed = now - std::exchange(begun_, now);
    const auto own = passed.count() - (waited - std::exchange(waited_, waited)) - excess_;
    excess_ = std::max(-own, 0.0);
    return {passed.count(), std::max(own, 0.0)};
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<WaitClock> waits_;  ///< Null where waits are not counted.
  Clock::time_point begun_ = Clock::now();
  double waited_ = 0;  ///< What `waits_` showed when the lap began.
  double excess_ = 0;  ///< Waits that were longer than the last lap.
};

}  // namespace ddpxx
