// ddpxx/precision/loss_scaler_config.hpp — settings of the scale of the loss.
#pragma once

#include <cstdint>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Settings of the loss scale; meanings and defaults are those of torch.amp.GradScaler.
struct LossScalerConfig {
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;

  bool operator==(const LossScalerConfig&) const = default;

  static constexpr auto describe() {
    return fields(
        field<&LossScalerConfig::initial_scale>("Initial factor of the loss", above(0.0),
                                                at_most(1e30)),  // the scale is a float32 and may grow
        field<&LossScalerConfig::growth_factor>("Factor of the scale after growth_interval steps without an overflow",
                                                above(1.0)),
        field<&LossScalerConfig::backoff_factor>("Factor of the scale after an overflow", above(0.0), below(1.0)),
        field<&LossScalerConfig::growth_interval>("Steps without an overflow before the scale grows", at_least(1),
                                                  Unit::steps));
  }
};

}  // namespace ddpxx
