// ddpxx/comm/connect_options.hpp — how a rank meets the others, and how long it waits for them.
#pragma once

#include <chrono>

#include <c10/core/Device.h>

#include <ddpxx/comm/place.hpp>
#include <ddpxx/comm/store_credentials.hpp>

namespace ddpxx {

struct ConnectConfig;

struct ConnectOptions {
  ConnectOptions() = default;
  /// Errors  `config` for a time-out outside its range.
  explicit ConnectOptions(const ConnectConfig& config, at::Device where = at::kCPU);

  std::chrono::milliseconds join_timeout = std::chrono::minutes{5};  ///< Until every rank has come.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes{30};
  /// Whether `Place::local_world_size` was told. If not, the ranks find out as they meet whether they are on one host.
  bool local_world_known = true;
  StoreHost store_host = StoreHost::rank_zero;
  StoreCredentials credentials = {};  ///< Equal on all ranks of a run, and on no other process.
  /// Some ranks are Python programs that call torch.distributed.init_process_group("gloo"): this rank meets them in
  /// their store, under the names that Python gives its default group. Python ranks know nothing of the check that
  /// ranks of ddpxx make, so a rank that never comes is then only told as a time-out. All ranks of ddpxx set this.
  bool python_ranks = false;
  at::Device device = at::kCPU;  ///< Where this rank's tensors lie; a GPU takes NCCL.
  /// A socket that already listens at the port, for rank 0, which takes it over; -1: rank 0 opens its own.
  int listening_socket = -1;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/connect_options_inl.hpp>
#endif
