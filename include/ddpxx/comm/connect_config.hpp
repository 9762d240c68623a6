// ddpxx/comm/connect_config.hpp — settings of how ranks meet and how long they wait for each other.
#pragma once

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct ConnectConfig {
  /// Limits of timeouts in seconds: the backends count in milliseconds, and add a timeout to the time of day.
  static constexpr double kMinTimeout = 0.001, kMaxTimeout = 1e7;

  double join_timeout = 300.0;
  double collective_timeout = 600.0;
  bool python_ranks = false;
  Backend backend = Backend::automatic;

  static constexpr auto describe() {
    constexpr auto range = between(kMinTimeout, kMaxTimeout);
    return fields(
        field<&ConnectConfig::join_timeout>("How long a rank waits at the start for the others", range, Unit::seconds,
                                            Resume::free),
        field<&ConnectConfig::collective_timeout>("How long a rank waits for the others in a step", range,
                                                  Unit::seconds, Resume::free),
        field<&ConnectConfig::python_ranks>(
            "Some ranks are Python programs: meet them as torch.distributed does, over Gloo", Resume::free),
        field<&ConnectConfig::backend>(
            "What carries the collectives; auto: nccl for GPUs, shm where all ranks are on one host, shm within and "
            "gloo between hosts that have equally many ranks, otherwise gloo. With gloo, which copies through the "
            "host's memory, several ranks may share a GPU. shm is "
            "memory that the ranks of one host share, for CPUs",
            Resume::free));
  }
};

}  // namespace ddpxx
