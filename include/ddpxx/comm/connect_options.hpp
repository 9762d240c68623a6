// ddpxx/comm/connect_options.hpp — options of how a rank meets the others, and how long it waits for them.
#pragma once

#include <chrono>
#include <string>

#include <c10/core/Device.h>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/comm/store_credentials.hpp>

namespace ddpxx {

struct ConnectConfig;

struct ConnectOptions {
  ConnectOptions() = default;
  /// Errors  `config` for a timeout outside its range.
  explicit ConnectOptions(const ConnectConfig& config, at::Device where = at::kCPU);

  std::chrono::milliseconds join_timeout = std::chrono::minutes{5};  ///< Time until every rank has arrived.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes{10};
  /// Whether `RankInfo::local_world_size` is known. If not, the ranks find out when they meet whether they are on one
  /// host.
  bool local_world_known = true;
  StoreHost store_host = StoreHost::rank_zero;
  StoreCredentials credentials = {};  ///< Equal on all ranks of a run, and on no other process.
  /// True if some ranks are Python programs that call torch.distributed.init_process_group("gloo"): this rank meets
  /// them in their store, under the names that Python gives its default group. Python ranks do not take part in the
  /// checks of ddpxx's ranks, so a missing rank is only reported as a timeout. All ranks of ddpxx must set this.
  bool python_ranks = false;
  at::Device device = at::kCPU;  ///< The device of this rank's tensors.
  Backend backend = Backend::automatic;
  /// On rank 0, a socket that already listens at the port, which the group takes over; -1: rank 0 opens its own. It is
  /// closed also if the ranks do not meet.
  int listening_socket = -1;
  /// UUID of the GPU that `device` is, by which two ranks notice that they use one GPU. `connect` finds it out; empty:
  /// unknown.
  std::string gpu_uuid = {};
};

/// What `wish` means for a rank whose tensors are on `device`; never `automatic`. Ranks that `automatic` would connect
/// over Gloo share memory instead if they find out, when they meet, that they can.
/// Errors  `config` for NCCL on a CPU, and for shared memory on another device.
Backend backend_for(Backend wish, at::Device device);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/connect_options_inl.hpp>
#endif
