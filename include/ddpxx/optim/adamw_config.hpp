// ddpxx/optim/adamw_config.hpp — what a user may set about AdamW and Adam.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// Defaults are minGPT's.
struct AdamWConfig {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  Schedule schedule = Schedule::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double decay_ratio = 0.1;
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(
        field<&AdamWConfig::learning_rate>("Peak step size", above(0.0)),
        field<&AdamWConfig::weight_decay>("Decay of the weights that decay", at_least(0.0)),
        field<&AdamWConfig::beta1>("Memory of the gradient's mean", between(0.0, 1.0)),
        field<&AdamWConfig::beta2>("Memory of the gradient's square", between(0.0, 1.0)),
        field<&AdamWConfig::epsilon>("Added to the denominator", at_least(0.0)),
        field<&AdamWConfig::schedule>("How the step size goes on after warm-up"),
        field<&AdamWConfig::warmup_steps>("Linear warm-up, in optimizer steps", at_least(0), Unit::steps),
        field<&AdamWConfig::decay_steps>("Optimizer step at which the schedule ends", at_least(0), Unit::steps),
        field<&AdamWConfig::decay_ratio>("Share of decay_steps over which schedule=wsd falls", above(0.0),
                                         at_most(1.0)),
        field<&AdamWConfig::final_learning_rate>("Step size from decay_steps on", at_least(0.0)));
  }
  std::vector<FieldError> check() const { return check_schedule(*this); }
};

}  // namespace ddpxx
