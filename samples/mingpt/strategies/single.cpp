// single.cpp — mingpt with SingleDevice, in every precision.
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_single(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::SingleDevice>>(run, {{}, run.config.recompute_config()}, group,
                                                                  text);
}
