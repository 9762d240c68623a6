// ddpxx/optim/lamb_config.hpp — what a user may set about LAMB.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// Weight decay and epsilon are those of the paper's experiments with BERT.
struct LAMBConfig {
  double learning_rate = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
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
               field<&LAMBConfig::learning_rate>("Peak learning rate", above(0.0)),
               field<&LAMBConfig::weight_decay>("Weight decay coefficient, for parameters that decay", at_least(0.0)),
               field<&LAMBConfig::beta1>("Decay rate of the first moment estimate", at_least(0.0), below(1.0)),
               field<&LAMBConfig::beta2>("Decay rate of the second moment estimate", at_least(0.0), below(1.0)),
               field<&LAMBConfig::epsilon>("Added to the denominator, for numerical stability", at_least(0.0))) +
           schedule_fields<LAMBConfig>();
  }
  double learning_rate_at(std::int64_t step) const { return scheduled_rate(*this, step); }
  std::vector<FieldError> check() const { return check_schedule(*this); }
};

}  // namespace ddpxx
