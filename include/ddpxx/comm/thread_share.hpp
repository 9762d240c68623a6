// ddpxx/comm/thread_share.hpp — how many threads a rank computes with where several ranks share a machine.
#pragma once

#include <algorithm>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <ddpxx/comm/place.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// The cores of a machine, as a rank there sees them.
struct Cores {
  int machine = 1;  ///< That are there.
  int job = 1;      ///< That all ranks here may use together: a container or a scheduler may have given fewer.
  int own = 1;      ///< On which this rank may run: a launcher may have bound it to some of the job's.
};

/// A rank's even share of the cores, at least one thread. A rank that is bound to as many as its share takes them all.
inline int thread_share(const Cores& cores, LocalWorldSize ranks) {
  return std::max(1, std::min(cores.own, std::min(cores.job, cores.machine) / ranks.value));
}

namespace detail {

/// On how many cores a process may run (0: the calling one); `otherwise` where the system does not say.
inline int allowed_cores(pid_t process, int otherwise) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(process, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : otherwise;
}

/// The cores whose time a control group's cpu.max gives, such as "800000 100000" for eight; `otherwise` for "max" and
/// for no text.
inline int cores_of_quota(const std::string& text, int otherwise) {
  std::istringstream words{text};
  double quota = 0, period = 0;
  return words >> quota >> period && quota > 0 && period > 0
             ? static_cast<int>(std::clamp(quota / period, 1.0, static_cast<double>(otherwise)))
             : otherwise;
}

/// A rank cannot tell by its own cores whether it shares them: its launcher, which started all ranks here, has those of
/// the job. A limit of a container's time leaves the launcher all cores, and stands in the control group's file.
inline Cores count_cores() {
  const int machine = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  std::ostringstream quota;
  quota << std::ifstream{"/sys/fs/cgroup/cpu.max"}.rdbuf();
  const int own = allowed_cores(0, machine), launcher = allowed_cores(::getppid(), machine);
  return {.machine = machine, .job = std::min(launcher, cores_of_quota(quota.str(), machine)), .own = own};
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
/// A choice of the user's stays: OMP_NUM_THREADS, MKL_NUM_THREADS, or a number given to at::set_num_threads() that
/// LibTorch does not begin with by itself, which are all cores and half of them.
inline void share_cores(LocalWorldSize ranks) {
  if (ranks.value == 1 || environment("OMP_NUM_THREADS") || environment("MKL_NUM_THREADS")) return;
  const int now = at::get_num_threads(), share = thread_share(detail::count_cores(), ranks);
  if (share < now && detail::is_default(now)) at::set_num_threads(share);
}

}  // namespace ddpxx
