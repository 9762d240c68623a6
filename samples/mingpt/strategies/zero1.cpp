// zero1.cpp — mingpt with ZeRO1, in every precision.
#include <variant>

#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/zero.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_zero1(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::ZeRO1>>(
      run, {std::get<kZeRO1>(run.config.strategy), run.config.recompute_config()}, group, text);
}
