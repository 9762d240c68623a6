// ddpxx/core/machine_memory.hpp — how much memory this machine lets a process have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <unistd.h>

namespace ddpxx {

/// Bytes of memory in this machine, or what the control group of a container allows if that is less; the largest number
/// where the system does not tell.
inline std::uint64_t machine_memory_bytes() {
  auto bytes = std::numeric_limits<std::uint64_t>::max();
  const auto pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  std::ifstream limit{"/sys/fs/cgroup/memory.max"};  // a number of bytes, or the word max
  if (std::uint64_t allowed = 0; limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

}  // namespace ddpxx
