#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>

using Twice = ddpxx::Recompute<ddpxx::Recompute<ddpxx::SingleDevice>>;
void use(Twice& strategy) { strategy.finish_step(); }
