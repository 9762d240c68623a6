// ddpxx/precision/low_precision_config.hpp — settings of parameters in 16 bits.
#pragma once

#include <array>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/precision/loss_scaler_config.hpp>

namespace ddpxx {

/// Type in which sharded gradients are summed over the ranks: float32, or the parameters' type. Gradients that are not
/// sharded are summed in the model's own type.
enum class GradientSums { float32, parameters };

constexpr auto enum_names(GradientSums) {
  return std::array{Named{GradientSums::float32, "float32"}, Named{GradientSums::parameters, "parameters"}};
}

struct LowPrecisionConfig {
  GradientSums reduction = GradientSums::float32;

  static constexpr auto describe() {
    return fields(field<&LowPrecisionConfig::reduction>(
        "Type in which sharded gradients are summed: float32, or that of the parameters, with half the traffic"));
  }
};

/// Settings of parameters in float16, whose loss is scaled.
struct ScaledLowPrecisionConfig {
  GradientSums reduction = GradientSums::float32;
  LossScalerConfig scaler = {};

  static constexpr auto describe() {
    return fields(
        field<&ScaledLowPrecisionConfig::reduction>(
            "Type in which sharded gradients are summed: float32, or that of the parameters, with half the traffic"),
        field<&ScaledLowPrecisionConfig::scaler>(
            "Scaling of the loss, so that small gradients do not become 0 in float16"));
  }
};

}  // namespace ddpxx
