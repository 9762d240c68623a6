// ddpxx/train/early_stopping.hpp — stops a run whose evaluations do not improve any more.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/optim/best_metric.hpp>
#include <ddpxx/train/early_stopping_config.hpp>

namespace ddpxx {

/// Wants a run to stop once `patience` evaluations in a row have not improved the best value of a metric by more than
/// `min_delta`. A value that is not finite is not an improvement.
/// Ranks   Local; equal values give equal answers.
/// Source  Lightning's EarlyStopping.
class EarlyStopping {
 public:
  explicit EarlyStopping(EarlyStoppingConfig config)
      : config_{std::move(config)}, best_{config_.metric, config_.mode} {}

  /// Notes the metric of an evaluation, and returns whether the run is to stop.
  bool note(double value) {
    const double gain = config_.mode == MetricMode::min ? best_.best() - value : value - best_.best();
    best_.note(value, gain > config_.min_delta && std::isfinite(value));
    return wants_stop();
  }
  /// Whether the run is to stop, by the evaluations so far.
  bool wants_stop() const { return best_.stagnant() >= static_cast<double>(config_.patience); }

  /// Why the run is to stop: the metric, its best value, and how many evaluations have not improved it.
  std::string reason() const {
    const auto evaluations = static_cast<std::int64_t>(best_.stagnant());
    return config_.metric + " has not improved on " +
           (std::isfinite(best_.best()) ? std::to_string(best_.best()) : "anything") + " in " +
           std::to_string(evaluations) + (evaluations == 1 ? " evaluation" : " evaluations");
  }

  /// A snapshot has been read into state(). Forgets its evaluations if they are of another metric or mode.
  void resume() { best_.resume(); }
  /// Forgets all evaluations.
  void reset() { best_.reset(); }

  /// What a snapshot writes and reads: 0-dim float64 on the CPU.
  std::vector<std::pair<std::string, at::Tensor>> state() const { return best_.state(); }

 private:
  EarlyStoppingConfig config_;
  BestMetric best_;
};

}  // namespace ddpxx
