// ddpxx/core/unix_time.hpp — the time of day as one number.
#pragma once

#include <chrono>
#include <cstdint>

namespace ddpxx {

/// Returns the whole seconds since 1970-01-01 00:00 UTC.
inline std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ddpxx
