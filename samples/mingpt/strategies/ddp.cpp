// ddp.cpp — mingpt with DDP, in every precision.
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/recompute.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_ddp(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::DDP>>(
      run, {run.config.strategy.ddp(), run.config.recompute_config()}, group, text);
}
