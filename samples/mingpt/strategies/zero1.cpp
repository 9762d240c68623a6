// zero1.cpp — mingpt with ZeRO1, in float32.
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/float32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_zero1(const Run& run, ddpxx::Group& group, const Text& text) {
  train<ddpxx::Recompute<ddpxx::ZeRO1>, ddpxx::Float32>(
      run, {run.config.strategy.zero(), run.config.recompute_config()}, {}, group, text);
}
