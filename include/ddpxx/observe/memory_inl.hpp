// ddpxx/observe/memory_inl.hpp — definitions of memory.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <ddpxx/observe/memory.hpp>

namespace ddpxx {

DDPXX_INLINE std::int64_t peak_resident_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace ddpxx
