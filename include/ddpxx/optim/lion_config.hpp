// ddpxx/optim/lion_config.hpp — settings of Lion.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// Settings of Lion. Learning rate and betas are the defaults of the paper, whose experiments use a weight decay of 0.1
/// to 10.
struct LionConfig {
  double learning_rate = 1e-4;
  double weight_decay = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  Schedule schedule = Schedule::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double decay_ratio = 0.1;
  std::int64_t decay_every = 0;
  std::vector<std::int64_t> decay_at = {};
  double decay_factor = 0.1;
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(
               field<&LionConfig::learning_rate>("Peak learning rate: the change of each weight in a step", above(0.0)),
               field<&LionConfig::weight_decay>("Weight decay coefficient, for parameters that decay", at_least(0.0)),
               field<&LionConfig::beta1>("Weight of the momentum in the sum whose sign is the direction of a step",
                                         at_least(0.0), below(1.0)),
               field<&LionConfig::beta2>("Decay rate of the momentum", at_least(0.0), below(1.0))) +
           schedule_fields<LionConfig>();
  }
  double learning_rate_at(std::int64_t step) const { return scheduled_rate(*this, step); }
  std::vector<FieldError> check() const { return check_schedule(*this); }
};

}  // namespace ddpxx
