// ddpxx/observe/early_stopping.hpp — stops a run whose evaluations do not improve any more.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/early_stopping_config.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

/// The number of an evaluation that `early_stopping.metric` names.
/// Errors  `config` where the evaluation has no such number.
inline double watched_value(const EarlyStoppingConfig& config, const Evaluated& event) {
  if (config.metric == "val_loss") return event.val_loss;
  std::string names = "val_loss";
  for (const auto& metric : event.metrics) {
    if (config.metric == "val_" + metric.name) return metric.value;
    names += ", val_" + metric.name;
  }
  throw Error{Errc::config,
              "early_stopping.metric: an evaluation has no " + harmless(config.metric) + " (it has: " + names + ")"};
}

/// Throws where early stopping is on and the evaluation does not have its metric. All ranks have the same evaluation,
/// so that they throw together.
inline void check_early_stopping(const EarlyStoppingConfig& config, const Evaluated& event) {
  if (!config.metric.empty()) watched_value(config, event);
}

/// Votes to stop once `patience` evaluations in a row have not improved the best value of a metric by more than
/// `min_delta`. A value that is not finite is no improvement. A resumed run begins to count anew.
class EarlyStopping : public Observer {
 public:
  /// Errors  `config` for a config without a metric.
  explicit EarlyStopping(EarlyStoppingConfig config, Log log = Log{0}) : config_{std::move(config)}, log_{log} {
    if (config_.metric.empty())
      throw Error{Errc::config, "early_stopping.metric: name the metric that has to improve, val_loss for example"};
  }

  std::string name() const override { return "early stopping"; }

  void on_begin(const RunBegan&) override {
    best_.reset();
    evaluations_without_ = 0;
  }

  /// Errors  `config` where an evaluation has no metric of that name.
  Verdict on_evaluated(const Evaluated& event) override {
    const auto value = watched_value(config_, event);
    const bool improves =
        !best_ || (config_.mode == MetricMode::min ? *best_ - value : value - *best_) > config_.min_delta;
    if (improves && std::isfinite(value)) {
      best_ = value;
      evaluations_without_ = 0;
      return Verdict::go_on;
    }
    if (++evaluations_without_ < config_.patience) return Verdict::go_on;
    log_.info("early stopping: " + config_.metric + " has not improved on " +
              (best_ ? std::to_string(*best_) : "anything") + " in " + std::to_string(evaluations_without_) +
              " evaluations");
    return Verdict::stop;
  }

 private:
  EarlyStoppingConfig config_;
  Log log_;
  std::optional<double> best_;
  std::int64_t evaluations_without_ = 0;
};

}  // namespace ddpxx
