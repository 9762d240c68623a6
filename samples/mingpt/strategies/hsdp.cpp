// hsdp.cpp — mingpt with HSDP, in float32.
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/precision/float32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_hsdp(const Run& run, ddpxx::Group& group, const Text& text) {
  train<ddpxx::Recompute<ddpxx::HSDP>, ddpxx::Float32>(run, {run.config.strategy.hsdp(), run.config.recompute_config()},
                                                       {}, group, text);
}
