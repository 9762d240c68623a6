// ddp.cpp — mingpt with DDP, in every precision.
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/precision/tf32.hpp>

#include "../train.hpp"
#include "strategies.hpp"

void train_ddp(const RunConfig& config, ddpxx::Group& group, const Text& text) {
  using Strategy = ddpxx::Recompute<ddpxx::DDP>;
  const Strategy::Config strategy{config.strategy.ddp(), config.recompute_config()};
  if (config.precision == "tf32") return train<Strategy, ddpxx::TF32>(config, strategy, {}, group, text);
  if (config.precision == "bf16") return train<Strategy, ddpxx::AutocastBF16>(config, strategy, {}, group, text);
  if (config.precision == "fp16")
    return train<Strategy, ddpxx::AutocastFP16>(config, strategy, {config.scaler}, group, text);
  if (config.precision == "bf16_params")
    return train<Strategy, ddpxx::LowPrecision<>>(config, strategy, {}, group, text);
  train<Strategy, ddpxx::Float32>(config, strategy, {}, group, text);
}
