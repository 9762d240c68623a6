// ddpxx/comm/thread_share.hpp — the number of threads of a rank if several ranks share a machine.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/control_groups.hpp>
#include <ddpxx/core/cpu_set.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// The numbers of cores that a rank may use.
struct Cores {
  int machine = 1;  ///< Cores of the machine.
  int job = 1;  ///< Cores that all ranks of this machine may use together; a container or a scheduler may allow fewer
                ///< than the machine has.
  int own = 1;  ///< Cores on which this rank may run; a launcher may have bound it to some of the job's cores.
};

/// A rank's equal share of the cores, at least one. A rank that is bound to fewer cores uses those.
inline int thread_share(const Cores& cores, LocalWorldSize ranks) {
  return std::max(1, std::min(cores.own, std::min(cores.job, cores.machine) / ranks.value));
}

namespace detail {

/// The number of cores on which a process may run (0: this process); `otherwise` if the system does not say.
inline int allowed_cores(pid_t process, int otherwise) {
  const auto allowed = allowed_cpus(process);
  return allowed.empty() ? otherwise : static_cast<int>(allowed.size());
}

/// The number of cores that a control group's quota and period of CPU time allow, such as eight for "800000 100000";
/// `otherwise` for "max", for a negative quota and for an empty text.
inline int cores_of_quota(const std::string& text, int otherwise) {
  std::istringstream words{text};
  double quota = 0, period = 0;
  return words >> quota >> period && quota > 0 && period > 0
             ? static_cast<int>(std::clamp(quota / period, 1.0, static_cast<double>(otherwise)))
             : otherwise;
}

/// The least number of cores that a control group of this process allows; at most `machine`. `root` is as in
/// control_groups().
inline int cores_of_groups(int machine, const std::filesystem::path& root = "/") {
  const auto text_of = [](const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream{file}.rdbuf();
    return text.str();
  };
  int cores = machine;
  for (const auto& group : control_groups("cpu", root)) {
    const auto version_1 = text_of(group / "cpu.cfs_quota_us") + ' ' + text_of(group / "cpu.cfs_period_us");
    for (const auto& quota : {text_of(group / "cpu.max"), version_1})
      cores = std::min(cores, cores_of_quota(quota, machine));
  }
  return cores;
}

/// A rank cannot tell from its own cores whether it shares them. The launcher has started all ranks here, so its cores
/// are those of the job. If a container limits CPU time, the launcher still has all cores, and the limit is in the
/// files of the control groups.
inline Cores count_cores() {
  const int machine = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  const int own = allowed_cores(0, machine), launcher = allowed_cores(::getppid(), machine);
  return {.machine = machine, .job = std::min(launcher, cores_of_groups(machine)), .own = own};
}

/// LibTorch starts with one thread for each core or, if MKL decides, for each physical core, which may be half as many.
inline bool is_default(int threads) {
  const int cores = at::intraop_default_num_threads();
  return threads == cores || threads == cores / 2;
}

}  // namespace detail

/// Limits the calling thread's computations to its rank's share of the machine's cores. LibTorch would use all cores in
/// each rank, and threads that wait for each other on busy cores make small steps many times slower. Numbers that the
/// user has set stay: OMP_NUM_THREADS, MKL_NUM_THREADS, or a number given to at::set_num_threads() that is not a
/// default of LibTorch, which are all cores and half of them.
inline void share_cores(LocalWorldSize ranks) {
  if (ranks.value == 1 || environment("OMP_NUM_THREADS") || environment("MKL_NUM_THREADS")) return;
  const int now = at::get_num_threads(), share = thread_share(detail::count_cores(), ranks);
  if (share < now && detail::is_default(now)) at::set_num_threads(share);
}

}  // namespace ddpxx
