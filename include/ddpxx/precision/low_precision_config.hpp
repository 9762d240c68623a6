// ddpxx/precision/low_precision_config.hpp — what a user may set about parameters held in 16 bits.
#pragma once

#include <array>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/precision/loss_scaler_config.hpp>

namespace ddpxx {

/// What gradients are summed in, over ranks that hold a shard of them each; whole gradients are summed in the model's
/// own type.
enum class GradientSums { float32, parameters };

constexpr auto enum_names(GradientSums) {
  return std::array{Named{GradientSums::float32, "float32"}, Named{GradientSums::parameters, "parameters"}};
}

struct LowPrecisionConfig {
  GradientSums reduction = GradientSums::float32;

  static constexpr auto describe() {
    return fields(field<&LowPrecisionConfig::reduction>(
        "What gradients are summed in where they are sharded: float32, or as the parameters, in half the traffic"));
  }
};

/// The same for float16, whose gradients need a scale.
struct ScaledLowPrecisionConfig {
  GradientSums reduction = GradientSums::float32;
  LossScalerConfig scaler = {};

  static constexpr auto describe() {
    return fields(
        field<&ScaledLowPrecisionConfig::reduction>(
            "What gradients are summed in where they are sharded: float32, or as the parameters, in half the traffic"),
        field<&ScaledLowPrecisionConfig::scaler>("How the loss is scaled, against gradients too small for float16"));
  }
};

}  // namespace ddpxx
