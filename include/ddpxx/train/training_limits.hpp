// ddpxx/train/training_limits.hpp — when a training is to evaluate, to save and to end, as its settings want it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

/// Counts of steps and epochs are given; the time is measured here, from start_clocks() on.
class TrainingLimits {
 public:
  explicit TrainingLimits(const TrainingConfig& config) : config_{config} {}

  void start_clocks() { started_ = saved_ = Clock::now(); }
  /// Begins to count the time until the next snapshot.
  void restart_save_clock() { saved_ = Clock::now(); }

  /// Whether max_time is over on this rank.
  bool is_out_of_time() const { return is_over(config_.max_time, started_); }
  /// Whether save_every_time is over on this rank.
  bool is_time_to_save() const { return is_over(config_.save_every_time, saved_); }

  bool reached(std::int64_t steps, std::int64_t epochs) const {
    return (config_.max_steps > 0 && steps >= config_.max_steps) ||
           (config_.max_epochs > 0 && epochs >= config_.max_epochs);
  }
  /// Where the training ends, if `steps_left` steps are left of max_epochs; 0 for no end.
  std::int64_t last_step(std::int64_t steps, std::int64_t steps_left) const {
    if (config_.max_epochs == 0) return config_.max_steps;
    return config_.max_steps == 0 ? steps + steps_left : std::min(config_.max_steps, steps + steps_left);
  }

  // `epochs` is the number of epochs that have ended, if the last step has ended one; else none.
  bool wants_evaluation(std::int64_t steps, std::optional<std::int64_t> epochs) const {
    return divides(config_.eval_every, steps) || (epochs && divides(config_.eval_every_epochs, *epochs));
  }
  bool wants_snapshot(std::int64_t steps, std::optional<std::int64_t> epochs) const {
    return divides(config_.save_every, steps) || (epochs && divides(config_.save_every_epochs, *epochs));
  }
  bool wants_check_of_replicas(std::int64_t steps) const { return divides(config_.check_replicas_every, steps); }

 private:
  using Clock = std::chrono::steady_clock;

  static bool divides(std::int64_t every, std::int64_t count) { return every > 0 && count > 0 && count % every == 0; }
  static bool is_over(double seconds, Clock::time_point since) {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - since).count() >= seconds;
  }

  TrainingConfig config_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point saved_ = started_;
};

}  // namespace ddpxx
