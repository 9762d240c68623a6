// ddpxx/optim/sgd_config.hpp — settings of SGD.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

struct SGDConfig {
  double learning_rate = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  Schedule schedule = Schedule::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double decay_ratio = 0.1;
  std::int64_t decay_every = 0;
  std::vector<std::int64_t> decay_at = {};
  double decay_factor = 0.1;
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(field<&SGDConfig::learning_rate>("Peak learning rate", above(0.0)),
                  field<&SGDConfig::weight_decay>("Weight decay coefficient, for parameters that decay", at_least(0.0)),
                  field<&SGDConfig::momentum>(
                      "Momentum factor: decay rate of the sum of past gradients; 0 is without momentum",
                      between(0.0, 1.0)),
                  field<&SGDConfig::dampening>("Dampening of momentum: fraction of each gradient that is not added",
                                               between(0.0, 1.0)),
                  field<&SGDConfig::nesterov>("Use Nesterov momentum")) +
           schedule_fields<SGDConfig>();
  }
  double learning_rate_at(std::int64_t step) const { return scheduled_rate(*this, step); }
  std::vector<FieldError> check() const {
    auto errors = check_schedule(*this);
    if (nesterov && (momentum == 0.0 || dampening != 0.0))
      errors.push_back({"nesterov", "needs momentum above 0 and dampening=0"});
    return errors;
  }
};

}  // namespace ddpxx
