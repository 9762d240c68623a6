// ddpxx/launch/join_inl.hpp — the definitions of join.hpp.
#pragma once

#include <string>

#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx {

DDPXX_INLINE ConnectOptions detail::options_for(const Launch& launch, ConnectOptions options) {
  options.store_host = launch.store_host;
  options.local_world_known = launch.local_world_known;
  options.credentials = {launch.token, launch.run_id};
  // Python programs do not use the agent's store: they meet at MASTER_ADDR, where rank 0 serves a store.
  if (launch.store_host == StoreHost::ddpxx_run && options.python_ranks) options.store_host = StoreHost::rank_zero;
  return options;
}

DDPXX_INLINE std::string detail::meeting_address(const Launch& launch, const ConnectOptions& options) {
  return options.store_host == StoreHost::ddpxx_run ? "tcp://" + launch.store : store_url(launch.address, launch.port);
}

}  // namespace ddpxx
