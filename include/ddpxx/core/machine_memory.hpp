// ddpxx/core/machine_memory.hpp — how much memory this machine lets a process have.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
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

/// Bytes of memory that programs can still get: those of the machine, or what is left in a control group if that is
/// less. Memory that holds files counts as free where it can be taken back. `root` is as in control_groups().
inline std::uint64_t free_memory_bytes(const std::filesystem::path& root = "/") {
  // The number behind `name` in a file with a name and a number on each line; 0 if it is not there.
  const auto number_of = [](const std::filesystem::path& path, std::string_view name) {
    std::ifstream file{path};
    std::uint64_t number = 0;
    for (std::string word; file >> word;)
      if (word == name) return file >> number ? number : 0;
    return std::uint64_t{0};
  };
  auto bytes = number_of(root / "proc/meminfo", "MemAvailable:") * 1024;
  struct Files {
    const char *limit, *used, *files_that_can_go;
  };
  constexpr std::array kVersions{Files{"memory.max", "memory.current", "inactive_file"},
                                 Files{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};
  for (const auto& group : control_groups("memory", root))
    for (const auto& [limit_file, used_file, files] : kVersions) {
      std::ifstream limit{group / limit_file}, use{group / used_file};
      std::uint64_t allowed = 0, used = 0;
      if (!(limit >> allowed) || !(use >> used)) continue;
      used -= std::min(used, number_of(group / "memory.stat", files));
      bytes = std::min(bytes, allowed - std::min(allowed, used));
    }
  return bytes;
}

}  // namespace ddpxx
