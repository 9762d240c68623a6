// ddpxx/comm/rendezvous_inl.hpp — the definitions of rendezvous.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/job_store.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/limited_store.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/own_addresses.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/comm/rank_introduction.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/comm/time_limit.hpp>
#include <ddpxx/comm/torchrun_roll_call.hpp>
#include <ddpxx/comm/waiting_line.hpp>
#include <ddpxx/comm/within.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/namespace_name.hpp>

namespace ddpxx {

namespace detail {

/// The part of a store in which Python's default group connects its Gloo backend.
/// Source  torch/distributed/distributed_c10d.py, init_process_group and _new_process_group_helper.
inline c10::intrusive_ptr<c10d::Store> default_group_store(c10::intrusive_ptr<c10d::Store> store) {
  for (const char* prefix : {"default_pg", "0/", "cpu/"}) store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  return store;
}

/// Logs the warning of a store in a thread, since the store's own thread must not wait for the reader of the log. The
/// thread is joined when the store is destroyed.
inline JobStoreServer::Warn warn_in_a_thread() {
  return [thread = std::make_shared<std::jthread>()](const std::string& text) {
    *thread = std::jthread{[text] { Log{0}.warn(text); }};
  };
}

/// Meets the other ranks: makes or opens the store, and calls the roll.
class Rendezvous {
 public:
  Rendezvous(Descriptor listener, std::string host, std::uint16_t port, const RankInfo& rank_info,
             const ConnectOptions& options)
      : listener_{std::move(listener)},
        host_{std::move(host)},
        port_{port},
        rank_info_{rank_info},
        options_{with_short_timeouts(options)},
        where_{store_url(host_, port)},
        one_host_{options.local_world_known && rank_info.local_world_size.value == rank_info.world_size.value} {}

  Meeting in_job_store();
  Meeting in_tcp_store();

 private:
  using Clock = std::chrono::steady_clock;

  /// The options with timeouts that can be added to the clock.
  static ConnectOptions with_short_timeouts(ConnectOptions options) {
    options.join_timeout = at_most_months(options.join_timeout);
    options.collective_timeout = at_most_months(options.collective_timeout);
    return options;
  }

  int rank() const { return rank_info_.rank.value; }
  int world_size() const { return rank_info_.world_size.value; }
  void say(const std::string& text) const { Log{rank()}.warn(text); }
  /// The listening sockets of rank 0.
  std::vector<Descriptor> listeners();
  c10::intrusive_ptr<c10d::Store> open_tcp_store();
  RankIntroduction introduction(const SocketAddress& local, std::span<const SocketAddress> master) const;
  RollCall roll_call(const RankIntroduction& facts) const;
  Meeting meeting(c10::intrusive_ptr<c10d::Store> store) const;
  /// The meeting of the ranks of `roll`.
  Meeting meeting(c10::intrusive_ptr<c10d::Store> store, const Roll& roll) const;
  /// Prefix of this start's keys in the store. The store of ddpxx-run outlives restarts, so the prefix has the
  /// restart's number, which is equal on all machines.
  std::string prefix() const {
    return options_.store_host == StoreHost::ddpxx_run ? "ddpxx/restart" + std::to_string(rank_info_.restart) + '/'
                                                       : "ddpxx/";
  }

  Descriptor listener_;  ///< The one that the program has given, if any.
  std::string host_;
  std::uint16_t port_;
  RankInfo rank_info_;
  ConnectOptions options_;
  std::string where_;
  bool one_host_;
  Clock::time_point deadline_ = Clock::now() + options_.join_timeout;
};

inline std::vector<Descriptor> Rendezvous::listeners() {
  if (!listener_) return listen_for(host_, port_, !one_host_, deadline_);
  std::vector<Descriptor> given;
  given.push_back(std::move(listener_));
  return given;
}

inline Meeting Rendezvous::in_job_store() {
  std::shared_ptr<JobStoreServer> server;
  std::vector<SocketAddress> addresses;
  // Local rank 0 of each host logs the wait, and so does rank 1, since rank 0 may serve the store itself.
  WaitingLine line;
  const bool tells = rank_info_.local_rank.value == 0 || rank() == 1;
  const auto still_trying = [&](const std::string& reason) {
    if (tells && line.take())
      say("waiting for an answer at " + where_ + ": " + reason + " (" + line.time_of(options_.join_timeout) + ')');
  };
  const bool serves_here = options_.store_host == StoreHost::rank_zero && rank() == 0;
  if (serves_here) {
    auto sockets = listeners();
    for (const auto& socket : sockets) addresses.push_back(SocketAddress::of_socket(socket.get()));
    server =
        std::make_shared<JobStoreServer>(std::move(sockets), options_.credentials, StoreLimits{}, warn_in_a_thread());
  } else {
    addresses = resolve(host_, port_, deadline_, still_trying);
  }
  auto connection = JobStoreConnection::open(
      addresses, where_, {.credentials = options_.credentials, .still_trying = still_trying}, deadline_);
  const auto facts = introduction(connection.local_address(), addresses);
  Roll roll;
  try {
    roll = call_roll(connection, roll_call(facts));
  } catch (const Error&) {
    if (options_.store_host != StoreHost::rank_zero || serves_here || !connection.lost()) throw;
    throw Error{Errc::peer, "the ranks did not all come to " + where_ +
                                ": rank 0, which serves the meeting, gave up or died; its own message says more"}
        .copied_from(0);
  }
  return meeting(c10::make_intrusive<JobStore>(std::move(connection), options_.join_timeout, std::move(server)), roll);
}

inline c10::intrusive_ptr<c10d::Store> Rendezvous::open_tcp_store() {
  c10d::TCPStoreOptions tcp;
  tcp.port = port_;
  tcp.isServer = rank() == 0 && options_.store_host != StoreHost::torchrun;
  // A Python rank 0 waits until each other rank has increased a counter, which a client does without waiting.
  tcp.waitWorkers = options_.python_ranks && !tcp.isServer;
  if (tcp.waitWorkers) tcp.numWorkers = static_cast<std::size_t>(world_size());
  tcp.timeout = options_.join_timeout;
  if (tcp.isServer) {
    auto sockets = listeners();
    // TCPStore takes one socket. On one host the first one is enough, because clients try all addresses of a name.
    if (one_host_ || sockets.size() == 1) tcp.masterListenFd = ::fcntl(sockets[0].get(), F_DUPFD_CLOEXEC, 0);
  } else {
    resolve(host_, port_, deadline_);  // c10d would try a name that does not resolve until the deadline
  }
  try {
    auto store = within(deadline_, [host = host_, tcp]() -> c10::intrusive_ptr<c10d::Store> {
      return c10::make_intrusive<c10d::TCPStore>(host, tcp);
    });
    if (store) return c10::make_intrusive<LimitedStore>(std::move(*store), options_.join_timeout);
  } catch (const std::exception& cause) {
    const std::string text = cause.what();
    if (text.find("EADDRINUSE") != std::string::npos || text.find("address already in use") != std::string::npos)
      throw Error{Errc::peer, "port in use: " + where_ + " is taken by another program; choose another port"};
    throw nobody_listens(where_, harmless(first_line(cause)));
  }
  throw nobody_listens(where_, "no answer within " + std::to_string(options_.join_timeout.count() / 1000) + " s");
}

inline Meeting Rendezvous::in_tcp_store() {
  auto store = open_tcp_store();
  if (options_.python_ranks) {
    auto unchecked = meeting(default_group_store(std::move(store)));
    unchecked.checked = false;
    return unchecked;
  }
  const auto master = resolve(host_, port_, deadline_);
  const auto local = SocketAddress::parse(local_address_towards(master.front()));
  const auto facts = introduction(local.value_or(SocketAddress{}), master);
  Roll roll;
  try {
    roll = call_roll_of_torchrun(*store, roll_call(facts));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "the ranks did not all come to " + where_ +
                                ": the launcher, which serves the store, has ended or does not answer; see its output "
                                "on the host of MASTER_ADDR"}
        .with("cause", harmless(first_line(cause)));
  }
  store->setTimeout(options_.join_timeout);
  return meeting(std::move(store), roll);
}

inline RankIntroduction Rendezvous::introduction(const SocketAddress& local,
                                                 std::span<const SocketAddress> master) const {
  auto facts = introduction_of_this_rank(world_size(), one_host_, local, master);
  facts.device = c10::DeviceTypeName(options_.device.type(), /*lower_case=*/true);
  if (backend_for(options_.backend, options_.device) == Backend::nccl) {
    facts.backend = "NCCL";
    facts.gpu = options_.gpu_uuid;
  }
  if (options_.backend == Backend::shared_memory) facts.backend = "shared-memory";
  if (options_.backend == Backend::automatic && options_.device.is_cpu()) facts.memory = namespace_name("pid");
  return facts;
}

inline RollCall Rendezvous::roll_call(const RankIntroduction& facts) const {
  return {.kind = "rank",
          .number = rank(),
          .size = world_size(),
          .prefix = prefix(),
          .facts = to_text(facts),
          .where = where_,
          .limit = options_.join_timeout,
          .deadline = deadline_,
          .say = [this](const std::string& text) { say(text); }};
}

inline Meeting Rendezvous::meeting(c10::intrusive_ptr<c10d::Store> store) const {
  return {.store = std::move(store),
          .host = host_,
          .rank = rank(),
          .world_size = world_size(),
          .join_timeout = options_.join_timeout,
          .collective_timeout = options_.collective_timeout,
          .one_host = one_host_,
          .deadline = deadline_};
}

inline Meeting Rendezvous::meeting(c10::intrusive_ptr<c10d::Store> store, const Roll& roll) const {
  std::vector<RankIntroduction> ranks;
  for (const auto& text : roll.facts) ranks.push_back(parse_introduction(text));
  for (std::size_t other = 0; other < ranks.size(); ++other)
    if (ranks[other].world_size != world_size())
      throw Error{Errc::peer, "rank " + std::to_string(other) + " was started with a world size of " +
                                  std::to_string(ranks[other].world_size) + ", but rank " + std::to_string(rank()) +
                                  " with " + std::to_string(world_size()) + ": give all ranks the same WORLD_SIZE"};
  auto result = meeting(c10::make_intrusive<c10d::PrefixStore>(roll.prefix, std::move(store)));
  try {
    check_devices(ranks);
  } catch (const Error&) {
    result.wait_for_readers("read");
    throw;
  }
  result.address = address_for_peers(ranks, static_cast<std::size_t>(rank()));
  result.ranks_here = static_cast<int>(
      std::ranges::count(ranks, ranks[static_cast<std::size_t>(rank())].host, &RankIntroduction::host));
  result.one_memory = may_share_memory(ranks);
  result.ranks_of_host = ranks_of_each_host(ranks);
  result.in_containers = are_kept_apart_by_containers(ranks);
  if (!options_.local_world_known && on_one_host(ranks)) {
    result.one_host = true;
    const auto ipv4 = local_address_towards(*SocketAddress::parse("127.0.0.1"));
    result.address = ipv4.empty() ? "::1" : ipv4;
  }
  return result;
}

}  // namespace detail

DDPXX_INLINE Meeting detail::meet_with(Descriptor listener, const std::string& host, std::uint16_t port,
                                       const RankInfo& rank_info, const ConnectOptions& options) {
  check(rank_info);
  if (options.python_ranks && backend_for(options.backend, options.device) != Backend::gloo)
    throw Error{Errc::config,
                "comm.python_ranks works over Gloo only: set comm.backend=gloo" +
                    (options.device.is_cpu() ? std::string{} : ", or device=cpu instead of " + options.device.str())};
  Rendezvous rendezvous{std::move(listener), host, port, rank_info, options};
  try {
    // Python programs and torchrun support only c10d's store.
    const bool tcp_store = options.python_ranks || options.store_host == StoreHost::torchrun;
    return tcp_store ? rendezvous.in_tcp_store() : rendezvous.in_job_store();
  } catch (Error& error) {
    throw error.with("rank", rank_info.rank);
  }
}

DDPXX_INLINE Meeting meet(const std::string& host, std::uint16_t port, const RankInfo& rank_info,
                          const ConnectOptions& options) {
  return detail::meet_with(Descriptor{options.listening_socket}, host, port, rank_info, options);
}

}  // namespace ddpxx
