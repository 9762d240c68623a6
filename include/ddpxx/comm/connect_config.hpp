// ddpxx/comm/connect_config.hpp — what a user may set about how ranks meet and how long they wait for each other.
#pragma once

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct ConnectConfig {
  double join_timeout = 300.0;
  double collective_timeout = 1800.0;

  static constexpr auto describe() {
    return fields(field<&ConnectConfig::join_timeout>("How long a rank waits at the start for the others", above(0.0),
                                                      Unit::seconds, Resume::free),
                  field<&ConnectConfig::collective_timeout>("How long a rank waits for the others in a step",
                                                            above(0.0), Unit::seconds, Resume::free));
  }
};

}  // namespace ddpxx
