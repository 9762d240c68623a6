// ddpxx/launch/join.hpp — connects the ranks that a launcher has started.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx {

/// Connects the ranks that a launcher has started; without a launcher, makes a world of one rank. A process joins once;
/// further groups, also of all ranks, are made from this one by Group::part().
/// Ranks   Collective.
/// Errors  those of `connect`.
inline Group join(const std::optional<Launch>& launch, ConnectOptions options = {}) {
  if (!launch) return connect("", Place{}, options);
  options.store_host = launch->store_host;
  options.local_world_known = launch->local_world_known;
  options.credentials = {launch->token, launch->run_id};
  auto address = store_url(launch->address, launch->port);
  if (launch->store_host == StoreHost::ddpxx_run) {
    // Python programs do not use the agent's store: they meet at MASTER_ADDR, where rank 0 serves a store.
    if (options.python_ranks)
      options.store_host = StoreHost::rank_zero;
    else
      address = "tcp://" + launch->store;
  }
  return connect(address, launch->place, options);
}

/// Connects the ranks on the device that `pick_device` chooses for `device`: auto, cpu or cuda.
inline Group join(const std::optional<Launch>& launch, std::string_view device, const ConnectConfig& config = {}) {
  return join(launch, ConnectOptions{config, pick_device(device, launch ? launch->place : Place{})});
}

}  // namespace ddpxx
