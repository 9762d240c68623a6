// ddpxx/launch/torchrun_environment.hpp — reads a rank's launch from the variables that torchrun sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddpxx/comm/rank_info.hpp>

namespace ddpxx {

/// What a launcher tells a rank: its numbers, and where the ranks meet.
struct Launch {
  RankInfo rank_info = {};
  bool local_world_known = true;  ///< True if LOCAL_WORLD_SIZE was set.
  std::string address = {};       ///< Host name or IP address; an IPv6 address is without brackets.
  std::uint16_t port = 0;
  StoreHost store_host = StoreHost::rank_zero;
  std::string store = {};  ///< `host:port` of the store that ddpxx-run serves; empty for none.
  std::string token = {};  ///< Secret of the run; empty for none. Never printed.
  std::string run_id = {};
  int round = 0;  ///< Counts every start of the ranks by ddpxx-run, after a failure or when machines come or go.

  friend bool operator==(const Launch&, const Launch&) = default;
};

/// This process's launch, from variables that torchrun, ddpxx-run or a script has set; none if no variable is set, so
/// that the world has one rank. LOCAL_RANK and LOCAL_WORLD_SIZE default to RANK and WORLD_SIZE, as on one machine. Only
/// ddpxx-run sets DDPXX_STORE.
/// Errors  `peer` if only some of the variables are set (the text names the missing ones) or one has an invalid value.
/// Source  torch.distributed's `env://` rendezvous, with its rule for TORCHELASTIC_USE_AGENT_STORE.
std::optional<Launch> torchrun_environment();

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/launch/torchrun_environment_inl.hpp>
#endif
