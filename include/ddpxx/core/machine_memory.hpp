// ddpxx/core/machine_memory.hpp — how much memory this machine lets a process have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <unistd.h>

#include <ddpxx/core/control_groups.hpp>

namespace ddpxx {

/// Bytes of memory in this machine, or what the control groups of a container or a job allow if that is less; the
/// largest number where the system does not tell. `root` is as in control_groups().
inline std::uint64_t machine_memory_bytes(const std::filesystem::path& root = "/") {
  auto bytes = std::numeric_limits<std::uint64_t>::max();
  const auto pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  for (const auto& group : control_groups("memory", root))
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      std::ifstream limit{group / name};  // a number of bytes, or the word max
      if (std::uint64_t allowed = 0; limit >> allowed) bytes = std::min(bytes, allowed);
    }
  return bytes;
}

}  // namespace ddpxx
