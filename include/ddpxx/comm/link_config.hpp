// ddpxx/comm/link_config.hpp — the speed of the links between ranks, for plans.
#pragma once

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Links between ranks as a model of two numbers describes them: a message of n bytes takes latency + n / bandwidth.
struct LinkConfig {
  double latency = 0.0;    ///< In seconds.
  double bandwidth = 0.0;  ///< In bytes per second, of one rank in one direction; 0 is unknown.

  static constexpr auto describe() {
    return fields(field<&LinkConfig::latency>("Latency of a message", at_least(0.0), Unit::seconds, Resume::free),
                  field<&LinkConfig::bandwidth>("Bytes that a rank sends in a second; 0 is unknown", at_least(0.0),
                                                Unit::bytes, Resume::free));
  }
};

}  // namespace ddpxx
