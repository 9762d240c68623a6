// ddpxx/comm/rendezvous.hpp — where ranks meet: a TCP store whose keys carry the restart generation.
#pragma once

#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/place.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

inline std::chrono::milliseconds timeout_of(const char* name, double seconds) {
  if (seconds >= ConnectConfig::kMinTimeout && seconds <= ConnectConfig::kMaxTimeout)
    return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1000)};
  std::ostringstream text;
  text << name << " is " << seconds << " s; it must be " << ConnectConfig::kMinTimeout << " to "
       << ConnectConfig::kMaxTimeout << " s";
  throw Error{Errc::config, text.str()};
}

}  // namespace detail

struct ConnectOptions {
  ConnectOptions() = default;
  /// Errors  `config` for a time-out outside its range.
  explicit ConnectOptions(const ConnectConfig& config, at::Device where = at::kCPU)
      : join_timeout{detail::timeout_of("comm.join_timeout", config.join_timeout)},
        collective_timeout{detail::timeout_of("comm.collective_timeout", config.collective_timeout)},
        python_ranks{config.python_ranks},
        device{where} {}

  std::chrono::milliseconds join_timeout = std::chrono::minutes{5};  ///< Until every rank has come.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes{30};
  StoreHost store_host = StoreHost::rank_zero;
  /// Some ranks are Python programs that call torch.distributed.init_process_group("gloo"): this rank meets them in
  /// their store, under the names that Python gives its default group. Python ranks know nothing of the check that
  /// ranks of ddpxx make, so a rank that never comes is then only told as a time-out. All ranks of ddpxx set this.
  bool python_ranks = false;
  at::Device device = at::kCPU;  ///< Where this rank's tensors lie; a GPU takes NCCL.
  int listening_socket = -1;     ///< A socket that already listens at the port, for rank 0; -1: rank 0 opens one.
};

/// Ranks that have found each other, before a backend connects them.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  std::string host;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds collective_timeout{};
  bool one_host = true;  ///< All ranks are on this host.
  bool checked = true;   ///< All ranks have been seen; false where some are Python programs.

  /// The meeting of some of the ranks, who know each other already.
  Meeting part(c10::intrusive_ptr<c10d::Store> part_store, int part_rank, int part_size) const {
    auto meeting = *this;
    meeting.store = std::move(part_store);
    meeting.rank = part_rank;
    meeting.world_size = part_size;
    return meeting;
  }
};

namespace detail {

inline Error meeting_error(const std::string& where, int rank, const std::exception& cause) {
  const std::string text = cause.what();
  if (text.find("EADDRINUSE") != std::string::npos || text.find("address already in use") != std::string::npos)
    return Error{Errc::peer, "port in use: " + where + " is taken by another program; choose another port"}.with("rank",
                                                                                                                 rank);
  return Error{Errc::peer, "no answer at " + where +
                               ": rank 0 never came there, or the address is wrong or not reachable from this host"}
      .with("rank", rank)
      .with("cause", first_line(cause));
}

/// The part of a store in which Python's default group connects its Gloo backend.
/// Source  torch/distributed/distributed_c10d.py, init_process_group and _new_process_group_helper.
inline c10::intrusive_ptr<c10d::Store> default_group_store(c10::intrusive_ptr<c10d::Store> store) {
  for (const char* prefix : {"default_pg", "0/", "cpu/"}) store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  return store;
}

inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace detail

/// Meets all ranks of `place.world_size` at host:port; rank 0 hosts the store unless the agent does.
/// Ranks   Collective.
/// Errors  `peer`: port in use, nobody at the address, ranks that never came (named), a rank that came twice, ranks
///         that disagree about the world's size; of these only the first two where some ranks are Python programs.
inline Meeting meet(const std::string& host, std::uint16_t port, const Place& place, const ConnectOptions& options) {
  check(place);
  if (options.python_ranks && !options.device.is_cpu())
    throw Error{Errc::config,
                "comm.python_ranks works over Gloo only: it needs device=cpu, not " + options.device.str()};
  const int rank = place.rank.value;
  const int world_size = place.world_size.value;
  const std::string where = "tcp://" + host + ":" + std::to_string(port);

  c10::intrusive_ptr<c10d::Store> store;
  try {
    c10d::TCPStoreOptions tcp;
    tcp.port = port;
    tcp.isServer = rank == 0 && options.store_host == StoreHost::rank_zero;
    // A Python rank 0 waits until each other rank has counted itself, which a client does without waiting.
    tcp.waitWorkers = options.python_ranks && !tcp.isServer;
    if (tcp.waitWorkers) tcp.numWorkers = static_cast<std::size_t>(world_size);
    tcp.timeout = options.join_timeout;
    if (tcp.isServer && options.listening_socket >= 0) tcp.masterListenFd = options.listening_socket;
    store = c10::make_intrusive<c10d::TCPStore>(host, tcp);
  } catch (const std::exception& cause) {
    throw detail::meeting_error(where, rank, cause);
  }
  const bool one_host = place.local_world_size == LocalWorldSize{world_size};
  if (options.python_ranks)
    return {.store = detail::default_group_store(std::move(store)),
            .host = host,
            .rank = rank,
            .world_size = world_size,
            .join_timeout = options.join_timeout,
            .collective_timeout = options.collective_timeout,
            .one_host = one_host,
            .checked = false};
  // A launcher that restarts the ranks keeps its store: keys of an earlier generation must not be met again.
  store = c10::make_intrusive<c10d::PrefixStore>("ddpxx/restart" + std::to_string(place.restart), store);

  std::vector<std::string> keys;
  for (int other = 0; other < world_size; ++other) keys.push_back("rank" + std::to_string(other));
  const auto mine = static_cast<std::size_t>(rank);
  try {
    if (store->add(keys[mine] + "/count", 1) > 1)
      throw Error{Errc::peer, "two processes came to " + where + " as rank " + std::to_string(rank) +
                                  ": each needs a RANK of its own"};
    store->set(keys[mine], std::to_string(world_size));
    store->wait(keys, options.join_timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& cause) {
    std::vector<int> missing;
    try {
      for (int other = 0; other < world_size; ++other)
        if (!store->check({keys[static_cast<std::size_t>(other)]})) missing.push_back(other);
    } catch (const std::exception&) {
      // Rank 0 has closed the store, but it may not have ended. A launcher takes the first rank that ends for the
      // cause.
      std::this_thread::sleep_for(std::chrono::seconds{1});
      throw Error{Errc::peer, "the ranks did not all come to " + where +
                                  ": rank 0, which serves the meeting, gave up or died; its own message says more"}
          .with("rank", rank);
    }
    throw Error{Errc::peer, "rank " + detail::rank_list(missing) + " never came to " + where + " within " +
                                std::to_string(options.join_timeout.count() / 1000) + " s"}
        .with("rank", rank)
        .with("world_size", world_size);
  }
  for (int other = 0; other < world_size; ++other)
    if (const auto size = store->get_to_str(keys[static_cast<std::size_t>(other)]); size != std::to_string(world_size))
      throw Error{Errc::peer, "rank " + std::to_string(other) + " believes in a world of " + size + ", rank " +
                                  std::to_string(rank) + " in one of " + std::to_string(world_size) +
                                  ": give all ranks the same WORLD_SIZE"};
  return {store, host, rank, world_size, options.join_timeout, options.collective_timeout, one_host};
}

}  // namespace ddpxx
