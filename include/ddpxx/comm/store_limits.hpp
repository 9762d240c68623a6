// ddpxx/comm/store_limits.hpp — the limits of the clients of a job's store.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <sys/resource.h>

#include <ddpxx/comm/keep_alive.hpp>

namespace ddpxx {

/// The limits of the server. A client that exceeds one loses its connection, or its request is refused; other clients
/// are not affected.
struct StoreLimits {
  std::chrono::milliseconds hello_time{5'000};  ///< Time from the connection to the end of its hello.
  std::size_t newcomers = 256;    ///< Number of connections without a hello; when there are more, the oldest is closed.
  std::size_t clients = 262'144;  ///< Number of connections after their hello; fewer if `ulimit -n` is low.
  std::size_t key_bytes = 4U << 10U;
  std::size_t value_bytes = 16U << 20U;
  std::size_t message_bytes = 64U << 20U;    ///< Size of one request or one answer.
  std::size_t wait_keys = 131'072;           ///< Number of keys of one wait.
  std::size_t will_keys = 16;                ///< Number of keys that one client asks to set when its connection ends.
  std::size_t total_bytes = 1U << 30U;       ///< Size of all keys, values and clients' data beyond a small buffer.
  std::optional<KeepAlive> keep_alive = {};  ///< When a silent client is lost; none: never.
};

namespace detail {

/// Memory of a key in addition to its bytes.
inline constexpr std::size_t kBytesPerKey = 64;

/// Returns `limits` with fewer connections where this process may have few descriptors: connections without a hello use
/// at most a quarter of them, clients five eighths; the rest is for the process itself.
inline StoreLimits within_descriptors(StoreLimits limits) {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) return limits;
  const auto at_most = [&](std::size_t wanted, std::size_t eighths) {
    return std::min(wanted, std::max<std::size_t>(descriptors.rlim_cur / 8 * eighths, 1));
  };
  limits.newcomers = at_most(limits.newcomers, 2);
  limits.clients = at_most(limits.clients, 5);
  return limits;
}

}  // namespace detail

}  // namespace ddpxx
