// ddpxx/optim/adamw_config.hpp — settings of AdamW and Adam.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// Where weight decay acts: on the weight itself (AdamW), or through the gradient (Adam).
enum class WeightDecay { decoupled, through_gradient };

/// Settings of AdamW or Adam. Defaults are those of torch.optim.AdamW and torch.optim.Adam.
template <WeightDecay kDecay>
struct FusedAdamConfig {
  double learning_rate = 1e-3;
  double weight_decay = kDecay == WeightDecay::decoupled ? 0.01 : 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  Schedule schedule = Schedule::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double decay_ratio = 0.1;
  std::int64_t decay_every = 0;
  std::vector<std::int64_t> decay_at = {};
  double decay_factor = 0.1;
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    using Config = FusedAdamConfig;
    return fields(field<&Config::learning_rate>("Peak learning rate", above(0.0)),
                  field<&Config::weight_decay>("Weight decay coefficient, for parameters that decay", at_least(0.0)),
                  field<&Config::beta1>("Decay rate of the first moment estimate", at_least(0.0), below(1.0)),
                  field<&Config::beta2>("Decay rate of the second moment estimate", at_least(0.0), below(1.0)),
                  field<&Config::epsilon>("Added to the denominator, for numerical stability", at_least(0.0))) +
           schedule_fields<Config>();
  }
  double learning_rate_at(std::int64_t step) const { return scheduled_rate(*this, step); }
  std::vector<FieldError> check() const { return check_schedule(*this); }
};

using AdamWConfig = FusedAdamConfig<WeightDecay::decoupled>;
using AdamConfig = FusedAdamConfig<WeightDecay::through_gradient>;

}  // namespace ddpxx
