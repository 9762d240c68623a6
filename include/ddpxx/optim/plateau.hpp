// ddpxx/optim/plateau.hpp — lowers the learning rate where the evaluations of a run stop improving.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/metric_mode.hpp>
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
  explicit Plateau(PlateauConfig config) : config_{std::move(config)} { reset(); }

  /// Notes the metric of an evaluation.
  void note(double value) {
    if (is_better(value)) {
      number(best_) = value;
      number(stagnant_) = 0;
    } else {
      number(stagnant_) += 1;
    }
    if (number(cooldown_) > 0) {
      number(cooldown_) -= 1;
      number(stagnant_) = 0;
    }
    if (number(stagnant_) <= static_cast<double>(config_.patience)) return;
    number(scale_) *= config_.factor;
    number(cooldown_) = static_cast<double>(config_.cooldown);
    number(stagnant_) = 0;
  }

  /// The learning rate of a step for which the schedule gives `scheduled`.
  double rate(double scheduled) const {
    return std::max(scheduled * number(scale_), std::min(scheduled, config_.lowest_learning_rate));
  }
  /// A snapshot has been read into state(). Forgets its evaluations if they are of another metric or mode.
  void resume() {
    if (number(watched_) != watched()) reset();
  }

  /// Forgets all evaluations.
  void reset() {
    number(watched_) = watched();
    number(best_) = (config_.mode == MetricMode::min ? 1 : -1) * std::numeric_limits<double>::infinity();
    number(stagnant_) = number(cooldown_) = 0;
    number(scale_) = 1;
  }

  /// What a snapshot writes and reads: 0-dim float64 on the CPU.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    return {
        {"best", best_}, {"stagnant", stagnant_}, {"cooldown", cooldown_}, {"scale", scale_}, {"watched", watched_}};
  }

 private:
  static at::Tensor make_number() { return at::full({}, 0.0, at::kDouble); }
  static double& number(const at::Tensor& tensor) { return *tensor.mutable_data_ptr<double>(); }

  /// A number that stands for the metric and the mode.
  double watched() const {
    const auto text = config_.metric + (config_.mode == MetricMode::min ? " min" : " max");
    return crc32c(std::as_bytes(std::span{text}));
  }

  bool is_better(double value) const {
    const auto best = number(best_);
    return config_.mode == MetricMode::min ? value < best * (1 - config_.threshold)
                                           : value > best * (1 + config_.threshold);
  }

  PlateauConfig config_;
  at::Tensor best_ = make_number();
  at::Tensor stagnant_ = make_number();  ///< Evaluations in a row that have not improved.
  at::Tensor cooldown_ = make_number();  ///< Evaluations that are left of the cooldown.
  at::Tensor scale_ = make_number();
  at::Tensor watched_ = make_number();  ///< What the other numbers are about: see watched().
};

}  // namespace ddpxx
