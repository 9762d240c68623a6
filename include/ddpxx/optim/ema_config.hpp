// ddpxx/optim/ema_config.hpp — settings of the moving average of the parameters.
#pragma once

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct EMAConfig {
  double decay = 0.999;
  bool warmup = false;

  static constexpr auto describe() {
    return fields(
        field<&EMAConfig::decay>("Decay rate of the moving average: its factor in each step", at_least(0.0),
                                 below(1.0)),
        field<&EMAConfig::warmup>("Use a smaller decay rate in early steps: at most (1 + n) / (10 + n) after n steps"));
  }
};

}  // namespace ddpxx
