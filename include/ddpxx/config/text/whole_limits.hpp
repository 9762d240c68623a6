// ddpxx/config/text/whole_limits.hpp — the range of an integer type.
#pragma once

#include <cstdint>

namespace ddpxx::detail {

/// The absolute values of the lowest and the highest number of an integer type.
struct WholeLimits {
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
};

}  // namespace ddpxx::detail
