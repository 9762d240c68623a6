// ddpxx/optim/plateau.hpp — lowers the learning rate where the evaluations of a run stop improving.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/optim/best_metric.hpp>
#include <ddpxx/optim/plateau_config.hpp>

namespace ddpxx {

/// Multiplies what the schedule gives by a scale. An evaluation improves if its metric is better than the best one so
/// far, and the difference is larger than `threshold` times the best one. When more than `patience` evaluations in a
/// row have not improved, the scale is multiplied by `factor`, and the next `cooldown` evaluations do not count as
/// lacking improvement. A metric that is not a number does not improve.
///
/// Ranks   Local; equal values give equal rates.
/// Source  torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode="rel" and eps=0.
class Plateau {
 public:
  explicit Plateau(PlateauConfig config) : config_{std::move(config)}, best_{config_.metric, config_.mode} { reset(); }

  /// Notes the metric of an evaluation.
  void note(double value) {
    best_.note(value, is_better(value));
    if (number(cooldown_) > 0) {
      number(cooldown_) -= 1;
      best_.count_anew();
    }
    if (best_.stagnant() <= static_cast<double>(config_.patience)) return;
    number(scale_) *= config_.factor;
    number(cooldown_) = static_cast<double>(config_.cooldown);
    best_.count_anew();
  }

  /// The learning rate of a step for which the schedule gives `scheduled`.
  double rate(double scheduled) const {
    return std::max(scheduled * number(scale_), std::min(scheduled, config_.lowest_learning_rate));
  }
  /// A snapshot has been read into state(). Forgets its evaluations if they are of another metric or mode.
  void resume() {
    if (!best_.resume()) forget_reductions();
  }
  /// Forgets all evaluations.
  void reset() {
    best_.reset();
    forget_reductions();
  }

  /// What a snapshot writes and reads: 0-dim float64 on the CPU.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    auto state = best_.state();
    state.emplace_back("cooldown", cooldown_);
    state.emplace_back("scale", scale_);
    return state;
  }

 private:
  static at::Tensor make_number() { return at::full({}, 0.0, at::kDouble); }
  static double& number(const at::Tensor& tensor) { return *tensor.mutable_data_ptr<double>(); }

  void forget_reductions() {
    number(cooldown_) = 0;
    number(scale_) = 1;
  }

  bool is_better(double value) const {
    const auto best = best_.best();
    return config_.mode == MetricMode::min ? value < best * (1 - config_.threshold)
                                           : value > best * (1 + config_.threshold);
  }

  PlateauConfig config_;
  BestMetric best_;
  at::Tensor cooldown_ = make_number();  ///< Evaluations that are left of the cooldown.
  at::Tensor scale_ = make_number();
};

}  // namespace ddpxx
