// ddpxx/core/cpu_set.hpp — the processors on which a process may run, on machines of any size.
#pragma once

#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <sched.h>
#include <set>
#include <sys/types.h>

namespace ddpxx::detail {

/// Numbers of processors.
using CpuSet = std::set<int>;

/// No machine has as many processors. A loop over their numbers ends here where the system tells something odd.
inline constexpr int kMostCpus = 1 << 20;

/// A set of processors as the system's calls take it. A variable of type cpu_set_t holds 1024 processors, and machines
/// may have more.
class CpuMask {
 public:
  /// An empty set, for processors with numbers below `room`.
  explicit CpuMask(std::size_t room) : bytes_{CPU_ALLOC_SIZE(room)}, bits_{CPU_ALLOC(room)} {
    if (bits_ == nullptr) throw std::bad_alloc{};
    CPU_ZERO_S(bytes_, bits_.get());
  }
  explicit CpuMask(const CpuSet& cpus) : CpuMask{cpus.empty() ? 1 : static_cast<std::size_t>(*cpus.rbegin()) + 1} {
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, bits_.get());
  }

  /// Reads where `process` may run. Returns false with an `errno` where the system does not tell, which is EINVAL where
  /// it has more processors than the set has room for.
  bool read(pid_t process) noexcept { return ::sched_getaffinity(process, bytes_, bits_.get()) == 0; }

  /// Lets the calling thread run on these processors only. Returns false with an `errno` where the system refuses.
  /// Safe between fork and exec.
  bool bind() const noexcept { return ::sched_setaffinity(0, bytes_, bits_.get()) == 0; }

  CpuSet cpus() const {
    CpuSet result;
    for (std::size_t cpu = 0; cpu < 8 * bytes_; ++cpu)
      if (CPU_ISSET_S(cpu, bytes_, bits_.get())) result.insert(result.end(), static_cast<int>(cpu));
    return result;
  }

 private:
  struct Free {
    void operator()(cpu_set_t* bits) const noexcept { CPU_FREE(bits); }
  };
  std::size_t bytes_;
  std::unique_ptr<cpu_set_t, Free> bits_;
};

/// The processors on which `process` may run (0: this thread); empty if the system does not tell.
inline CpuSet allowed_cpus(pid_t process = 0) {
  for (int room = CPU_SETSIZE; room <= kMostCpus; room *= 2) {
    CpuMask allowed{static_cast<std::size_t>(room)};
    if (allowed.read(process)) return allowed.cpus();
    if (errno != EINVAL) break;
  }
  return {};
}

}  // namespace ddpxx::detail
