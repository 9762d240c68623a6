// ddpxx/comm/keep_alive.hpp — how long a connection may be silent before its other end counts as lost.
#pragma once

#include <algorithm>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ddpxx {

/// A connection is lost after `attempts` times `interval` without a sign of life. The names and the defaults are those
/// of torchelastic.
struct KeepAlive {
  std::chrono::milliseconds interval{5'000};
  int attempts = 3;

  /// The time of silence after which the other end is lost.
  std::chrono::seconds limit() const {
    constexpr std::chrono::hours kMax{24};
    const auto each = std::clamp<std::chrono::milliseconds>(interval, std::chrono::milliseconds{1}, kMax);
    return std::min<std::chrono::seconds>(kMax, std::chrono::ceil<std::chrono::seconds>(each * std::max(attempts, 1)));
  }
};

/// Makes the system close the connection of `socket` if its other end, or the network between, is lost. A process that
/// ends closes its connections itself; keep-alive probes find a host that has no power, or a broken network.
inline void set_keep_alive(int socket, const KeepAlive& times) {
  const auto set = [&](int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof value); };
  constexpr int kMaxQuestions = 127;  // the system's limit
  const int limit = static_cast<int>(times.limit().count());
  // The system does not repeat a keep-alive probe that was lost, so many are sent: a bad network loses some of them.
  const int pause = limit / kMaxQuestions + 1;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max(1, limit / pause));
  // While sent data is not acknowledged, the system sends no probes; this limit then ends the connection.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, limit * 1'000);
}

}  // namespace ddpxx
