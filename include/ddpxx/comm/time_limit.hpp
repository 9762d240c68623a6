// ddpxx/comm/time_limit.hpp — the longest time for which a rank waits.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddpxx::detail {

/// Three months. The clock overflows where a limit of years, such as milliseconds::max(), is added to it.
inline constexpr std::chrono::milliseconds kMaxTimeLimit = std::chrono::hours{2'500};

/// `limit`, or kMaxTimeLimit if `limit` is longer.
constexpr std::chrono::milliseconds at_most_months(std::chrono::milliseconds limit) {
  return std::min(limit, kMaxTimeLimit);
}
static_assert(at_most_months(std::chrono::milliseconds::max()) == kMaxTimeLimit);

/// The limit that c10d's stores mean by `timeout`, at most kMaxTimeLimit: zero means no limit there.
constexpr std::chrono::milliseconds limit_of_store(std::chrono::milliseconds timeout) {
  return timeout <= std::chrono::milliseconds::zero() ? kMaxTimeLimit : at_most_months(timeout);
}
static_assert(limit_of_store(std::chrono::milliseconds::zero()) == kMaxTimeLimit);

}  // namespace ddpxx::detail
