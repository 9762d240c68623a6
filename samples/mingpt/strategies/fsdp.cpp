// fsdp.cpp — mingpt with FSDP, in every precision.
#include <variant>

#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_fsdp(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::FSDP>>(
      run, {std::get<kFSDP>(run.config.strategy), run.config.recompute_config()}, group, text);
}
