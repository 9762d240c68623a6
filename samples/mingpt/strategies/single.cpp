// single.cpp — mingpt with SingleDevice, in float32.
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/precision/float32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_single(const Run& run, ddpxx::Group& group, const Text& text) {
  train<ddpxx::Recompute<ddpxx::SingleDevice>, ddpxx::Float32>(run, {{}, run.config.recompute_config()}, {}, group,
                                                               text);
}
