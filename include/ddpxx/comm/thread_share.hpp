// ddpxx/comm/thread_share.hpp — how many threads a rank computes with where several ranks share a machine.
#pragma once

#include <algorithm>
#include <sched.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <ddpxx/comm/place.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// The cores of a machine, as a rank there sees them.
struct Cores {
  int machine = 1;  ///< That are there.
  int allowed = 1;  ///< On which this process may run: a launcher may have bound it to some.
};

/// A rank's even share of the cores, at least one thread.
inline int thread_share(const Cores& cores, LocalWorldSize ranks) {
  return std::max(1, std::min(cores.allowed, cores.machine / ranks.value));
}

namespace detail {

inline Cores count_cores() {
  const int machine = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return {machine, ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : machine};
}

/// LibTorch begins with a thread per core, or, where MKL decides, per physical core, of which there may be half as
/// many.
inline bool is_default(int threads) {
  const int cores = at::intraop_default_num_threads();
  return threads == cores || threads == cores / 2;
}

}  // namespace detail

/// Lets the calling thread compute with its rank's share of the machine's cores. LibTorch would begin with all of them
/// in each rank, and threads that wait for each other on busy cores make small steps many times slower.
/// A choice of the user's stays: OMP_NUM_THREADS, MKL_NUM_THREADS, or a number given to at::set_num_threads().
inline void share_cores(LocalWorldSize ranks) {
  if (ranks.value == 1 || environment("OMP_NUM_THREADS") || environment("MKL_NUM_THREADS")) return;
  const int now = at::get_num_threads(), share = thread_share(detail::count_cores(), ranks);
  if (share < now && detail::is_default(now)) at::set_num_threads(share);
}

}  // namespace ddpxx
