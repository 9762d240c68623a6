// ddpxx/optim/sgd_config.hpp — what a user may set about SGD.
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
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(
        field<&SGDConfig::learning_rate>("Peak step size", above(0.0)),
        field<&SGDConfig::weight_decay>("Decay of the weights that decay", at_least(0.0)),
        field<&SGDConfig::momentum>("Memory of past steps", between(0.0, 1.0)),
        field<&SGDConfig::dampening>("Share of a gradient that momentum leaves out", between(0.0, 1.0)),
        field<&SGDConfig::nesterov>("Look ahead along the momentum"),
        field<&SGDConfig::schedule>("How the step size goes on after warm-up; none has no warm-up either"),
        field<&SGDConfig::warmup_steps>("Linear warm-up, in optimizer steps", at_least(0), Unit::steps),
        field<&SGDConfig::decay_steps>("Optimizer step at which the schedule ends", at_least(0), Unit::steps),
        field<&SGDConfig::decay_ratio>("Share of decay_steps over which schedule=wsd falls", above(0.0), at_most(1.0)),
        field<&SGDConfig::final_learning_rate>("Step size from decay_steps on", at_least(0.0)));
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
