// ddpxx/observe/memory.hpp — how much memory this process has needed.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace ddpxx {

/// The most bytes of memory that were ever resident for this process; 0 where /proc does not tell.
inline std::int64_t peak_resident_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace ddpxx
