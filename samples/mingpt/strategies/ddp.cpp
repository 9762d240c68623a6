// ddp.cpp — mingpt with DDP, in every precision.
#include <variant>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/recompute.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_ddp(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::DDP>>(
      run, {std::get<kDDP>(run.config.strategy), run.config.recompute_config()}, group, text);
}
