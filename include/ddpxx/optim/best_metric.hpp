// ddpxx/optim/best_metric.hpp — the best value of a metric, and the evaluations that have not improved on it.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/metric_mode.hpp>

namespace ddpxx {

/// The best value that a metric has had in the evaluations of a run, and the number of evaluations in a row that have
/// not improved on it. Snapshots hold both, so that a run that resumes goes on counting.
/// Ranks   Local; equal values give equal numbers.
class BestMetric {
 public:
  BestMetric(const std::string& metric, MetricMode mode)
      : mode_{mode}, watched_metric_{number_of(metric + (mode == MetricMode::min ? " min" : " max"))} {
    reset();
  }

  /// The best value so far; before the first one an infinite value, on which every finite one improves.
  double best() const { return number(best_); }
  /// Evaluations in a row that have not improved on the best value.
  double stagnant() const { return number(stagnant_); }

  /// Notes the value of an evaluation; the caller says whether that is an improvement.
  void note(double value, bool improves) {
    if (improves) number(best_) = value;
    number(stagnant_) = improves ? 0 : stagnant() + 1;
  }
  /// Counts the evaluations in a row anew, and keeps the best value.
  void count_anew() { number(stagnant_) = 0; }

  /// A snapshot has been read into state(). Returns whether its numbers are of this metric and mode; otherwise forgets
  /// them.
  bool resume() {
    if (number(watched_) == watched_metric_) return true;
    reset();
    return false;
  }
  /// Forgets all evaluations.
  void reset() {
    number(best_) = (mode_ == MetricMode::min ? 1 : -1) * std::numeric_limits<double>::infinity();
    number(stagnant_) = 0;
    number(watched_) = watched_metric_;
  }

  /// What a snapshot writes and reads: 0-dim float64 on the CPU.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    return {{"best", best_}, {"stagnant", stagnant_}, {"watched", watched_}};
  }

 private:
  static double number_of(const std::string& text) { return crc32c(std::as_bytes(std::span{text})); }
  static at::Tensor make_number() { return at::full({}, 0.0, at::kDouble); }
  static double& number(const at::Tensor& tensor) { return *tensor.mutable_data_ptr<double>(); }

  MetricMode mode_;
  double watched_metric_;  ///< Stands for the metric and the mode.
  at::Tensor best_ = make_number();
  at::Tensor stagnant_ = make_number();
  at::Tensor watched_ = make_number();  ///< The metric and the mode that the other numbers are about.
};

}  // namespace ddpxx
