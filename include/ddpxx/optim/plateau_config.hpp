// ddpxx/optim/plateau_config.hpp — what a user may set about a learning rate that falls where evaluations stop
// improving.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/metric_mode.hpp>

namespace ddpxx {

/// Defaults are those of torch.optim.lr_scheduler.ReduceLROnPlateau, which is off here until `metric` names one.
struct PlateauConfig {
  std::string metric = {};
  MetricMode mode = MetricMode::min;
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  std::int64_t cooldown = 0;
  double lowest_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(
        field<&PlateauConfig::metric>(
            "Metric of evaluations: the learning rate falls where it stops improving; val_loss, "
            "or val_ and a metric of the model; none if empty"),
        field<&PlateauConfig::mode>("Which direction is better"),
        field<&PlateauConfig::factor>("What the learning rate is multiplied by", above(0.0), below(1.0)),
        field<&PlateauConfig::patience>("Evaluations without improvement before the one that lowers the learning rate",
                                        at_least(0)),
        field<&PlateauConfig::threshold>("Least change that counts as an improvement, as a fraction of the best value",
                                         at_least(0.0), below(1.0)),
        field<&PlateauConfig::cooldown>("Evaluations after each reduction that do not count as lacking improvement",
                                        at_least(0)),
        field<&PlateauConfig::lowest_learning_rate>(
            "Learning rate below which it does not fall; in proportion for groups with rates of their own",
            at_least(0.0)));
  }
};

}  // namespace ddpxx
