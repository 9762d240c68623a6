// hsdp.cpp — mingpt with HSDP, in every precision.
#include <variant>

#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_hsdp(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::HSDP>>(
      run, {std::get<kHSDP>(run.config.strategy), run.config.recompute_config()}, group, text);
}
