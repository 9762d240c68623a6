// zero2.cpp — mingpt with ZeRO2, in every precision.
#include <variant>

#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/zero.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_zero2(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::ZeRO2>>(
      run, {std::get<kZeRO2>(run.config.strategy), run.config.recompute_config()}, group, text);
}
