// dp.cpp — mingpt with DataParallel, in every precision.
#include <variant>

#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/recompute.hpp>

#include "../every_precision.hpp"
#include "strategies.hpp"

void train_dp(const Run& run, ddpxx::Group& group, const Text& text) {
  train_in_named_precision<ddpxx::Recompute<ddpxx::DataParallel>>(
      run, {std::get<kDP>(run.config.strategy), run.config.recompute_config()}, group, text);
}
