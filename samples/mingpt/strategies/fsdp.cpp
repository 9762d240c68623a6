// fsdp.cpp — mingpt with FSDP, in every precision.
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/precision/tf32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_fsdp(const Run& run, ddpxx::Group& group, const Text& text) {
  using Strategy = ddpxx::Recompute<ddpxx::FSDP>;
  const Strategy::Config strategy{run.config.strategy.fsdp(), run.config.recompute_config()};
  if (run.config.precision == PrecisionName::tf32) return train<Strategy, ddpxx::TF32>(run, strategy, {}, group, text);
  if (run.config.precision == PrecisionName::bf16)
    return train<Strategy, ddpxx::AutocastBF16>(run, strategy, {}, group, text);
  if (run.config.precision == PrecisionName::fp16)
    return train<Strategy, ddpxx::AutocastFP16>(run, strategy, {run.config.scaler}, group, text);
  if (run.config.precision == PrecisionName::bf16_params)
    return train<Strategy, ddpxx::LowPrecision<>>(run, strategy, {}, group, text);
  train<Strategy, ddpxx::Float32>(run, strategy, {}, group, text);
}
