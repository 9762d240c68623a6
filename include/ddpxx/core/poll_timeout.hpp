// ddpxx/core/poll_timeout.hpp — the timeout of poll() and epoll_wait() for a time at which to go on.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddpxx {

/// The milliseconds from now to `until`, at most 1000 s: 0 if the time has come. Callers look at the clock again after
/// the wait.
inline int poll_timeout(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1'000'000));
}

}  // namespace ddpxx
