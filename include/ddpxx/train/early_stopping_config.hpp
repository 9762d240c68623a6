// ddpxx/train/early_stopping_config.hpp — what a user may set about early stopping.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Defaults are those of Lightning's EarlyStopping, which is off here until `metric` names one.
struct EarlyStoppingConfig {
  std::string metric = {};
  std::int64_t patience = 3;
  double min_delta = 0.0;
  MetricMode mode = MetricMode::min;

  static constexpr auto describe() {
    return fields(
        field<&EarlyStoppingConfig::metric>(
            "Metric of evaluations that has to improve: val_loss, or val_ and a metric of the model; none if empty"),
        field<&EarlyStoppingConfig::patience>("Evaluations without improvement after which the run stops", at_least(1),
                                              Resume::free),
        field<&EarlyStoppingConfig::min_delta>("Least change that counts as an improvement", at_least(0.0),
                                               Resume::free),
        field<&EarlyStoppingConfig::mode>("Which direction is better"));
  }
};

}  // namespace ddpxx
