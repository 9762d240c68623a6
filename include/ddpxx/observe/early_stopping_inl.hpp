// ddpxx/observe/early_stopping_inl.hpp — definitions of early_stopping.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/early_stopping.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/watched_value.hpp>

namespace ddpxx {

DDPXX_INLINE void check_early_stopping(const EarlyStoppingConfig& config, const Evaluated& event) {
  if (!config.metric.empty()) watched_value("early_stopping.metric", config.metric, event);
}

DDPXX_INLINE EarlyStopping::EarlyStopping(EarlyStoppingConfig config, Log log) : config_{std::move(config)}, log_{log} {
  if (config_.metric.empty())
    throw Error{Errc::config, "early_stopping.metric: name the metric that has to improve, val_loss for example"};
}

DDPXX_INLINE std::string EarlyStopping::name() const { return "early stopping"; }

DDPXX_INLINE void EarlyStopping::on_begin(const RunBegan&) {
  best_.reset();
  evaluations_without_ = 0;
}

DDPXX_INLINE Verdict EarlyStopping::on_evaluated(const Evaluated& event) {
  const auto value = watched_value("early_stopping.metric", config_.metric, event);
  const bool improves =
      !best_ || (config_.mode == MetricMode::min ? *best_ - value : value - *best_) > config_.min_delta;
  if (improves && std::isfinite(value)) {
    best_ = value;
    evaluations_without_ = 0;
    return Verdict::go_on;
  }
  if (++evaluations_without_ < config_.patience) return Verdict::go_on;
  // The evaluation at the end of the run follows the one that has asked to stop, and is no further reason.
  if (evaluations_without_ == config_.patience)
    log_.info("early stopping: " + config_.metric + " has not improved on " +
              (best_ ? std::to_string(*best_) : "anything") + " in " + std::to_string(evaluations_without_) +
              (evaluations_without_ == 1 ? " evaluation" : " evaluations"));
  return Verdict::stop;
}

}  // namespace ddpxx
