// ddpxx/comm/keep_alive.hpp — how long a connection may be silent before its other end counts as lost.
#pragma once

#include <algorithm>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ddpxx {

/// The system asks the other end of a silent connection for a sign of life. The defaults are those of torchelastic.
struct KeepAlive {
  std::chrono::milliseconds interval{5'000};  ///< Silence before the first question, and between questions.
  int attempts = 3;                           ///< Number of questions without an answer after which the end is lost.
};

/// Makes the system close the connection of `socket` if its other end, or the way to it, is lost. A process that ends
/// closes its connections itself; this finds a host that has no power, or a broken network.
inline void set_keep_alive(int socket, const KeepAlive& times) {
  const auto set = [&](int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof value); };
  constexpr std::chrono::milliseconds kMaxInterval{30'000'000};  // the system takes at most 32767 s
  const auto interval = std::clamp(times.interval, std::chrono::milliseconds{1}, kMaxInterval);
  const int seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(interval).count());
  const int attempts = std::clamp(times.attempts, 1, 127);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, attempts);
  // Data that is not confirmed stops the questions; it has as much time as they have.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, std::min(seconds, 1'000'000 / attempts) * 1'000 * attempts);
}

}  // namespace ddpxx
