// ddpxx/comm/meeting.hpp — the ranks that have met, as the backends connect them.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace ddpxx {

/// Ranks that have found each other, before a backend connects them.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  std::string host;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds collective_timeout{};
  bool one_host = true;  ///< All ranks are on this host.
  /// All ranks may share memory: they are CPU ranks in one PID namespace, all with comm.backend=auto.
  bool one_memory = false;
  /// The number of ranks of each host, if the ranks are on several hosts and those of a host may share memory; 0 if
  /// not, or if the hosts have different numbers of ranks.
  int ranks_of_host = 0;
  /// Some ranks would share memory if they were not in different containers of one machine.
  bool in_containers = false;
  int ranks_here = 0;   ///< The number of ranks on the host of this one; 0 if the ranks have not exchanged their hosts.
  bool checked = true;  ///< All ranks have been checked; false if some are Python programs.
  /// The address by which the other ranks reach this one: IPv4 on all ranks, or IPv6 on all; empty if the ranks have no
  /// family in common. None if the ranks have not exchanged their addresses.
  std::optional<std::string> address = {};
  /// The time by which the first group must be connected; a part of the group gets a `join_timeout` of its own.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  /// This rank's number among all ranks of the run; empty if these are all ranks of the run.
  std::optional<int> number = {};
  std::optional<int> run_size = {};  ///< The number of ranks of the run; empty if these are all ranks of the run.

  /// This rank's number in the run, which errors name.
  int rank_in_run() const { return number.value_or(rank); }
  /// The time for which a backend may connect the ranks. `join_timeout` limits it too, because a rank may die after the
  /// meeting; ranks that have met late still get some time.
  std::chrono::milliseconds time_to_connect() const;
  /// Waits until all ranks have called this with the same key, 5 s at most. Called by each rank before it throws an
  /// error that all of them find in what they have read: a rank that ended earlier would be reported as the cause, and
  /// the store may end with rank 0.
  void wait_for_readers(const std::string& key) const noexcept;
  /// Returns the meeting of a part of the ranks. `part_store` is a store of its own; this rank is `part_rank` of
  /// `part_size` there.
  Meeting part(c10::intrusive_ptr<c10d::Store> part_store, int part_rank, int part_size) const;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/meeting_inl.hpp>
#endif
