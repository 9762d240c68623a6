#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>

using Twice = ddpxx::Recompute<ddpxx::StepInBackward<ddpxx::Recompute<ddpxx::SingleDevice>>>;
void use_twice_around_steps(Twice& strategy) { strategy.finish_step(); }
