// dp.cpp — mingpt with DataParallel, in float32.
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/precision/float32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_dp(const Run& run, ddpxx::Group& group, const Text& text) {
  train<ddpxx::Recompute<ddpxx::DataParallel>, ddpxx::Float32>(
      run, {run.config.strategy.dp(), run.config.recompute_config()}, {}, group, text);
}
