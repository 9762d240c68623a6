// ddpxx/optim/ema_config.hpp — what a user may set about the moving average of the parameters.
#pragma once

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct EMAConfig {
  double decay = 0.999;
  bool warmup = false;

  static constexpr auto describe() {
    return fields(field<&EMAConfig::decay>("Share of the average that a step keeps", at_least(0.0), below(1.0)),
                  field<&EMAConfig::warmup>("Keep less in early steps: at most (1 + n) / (10 + n) after n of them"));
  }
};

}  // namespace ddpxx
