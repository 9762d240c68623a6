// every_precision.hpp — one strategy, compiled with every precision; the configuration chooses the precision by name.
#pragma once

#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/precision/tf32.hpp>

#include "train.hpp"

template <class Strategy>
void train_in_named_precision(const Run& run, const typename Strategy::Config& strategy, ddpxx::Group& group,
                              const std::shared_ptr<const TrainingText>& text) {
  switch (run.config.precision) {
    case PrecisionName::fp32:
      return train<Strategy, ddpxx::Float32>(run, strategy, {}, group, text);
    case PrecisionName::tf32:
      return train<Strategy, ddpxx::TF32>(run, strategy, {}, group, text);
    case PrecisionName::bf16:
      return train<Strategy, ddpxx::AutocastBF16>(run, strategy, {}, group, text);
    case PrecisionName::fp16:
      return train<Strategy, ddpxx::AutocastFP16>(run, strategy, {run.config.scaler}, group, text);
    case PrecisionName::bf16_params:
      return train<Strategy, ddpxx::LowPrecision<>>(run, strategy, {}, group, text);
  }
}
