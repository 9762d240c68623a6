// ddpxx/comm/timed_socket.hpp — a connection, each call of which ends at a deadline.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/poll_timeout.hpp>

namespace ddpxx {

/// A TCP connection to another process, for one thread at a time. Each call ends at its deadline at the latest.
/// Errors  `stopped` from every call that waits, as soon as the descriptor `interrupt` is readable; an `interrupt` of -1
///         is never readable.
class TimedSocket {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// How a call has ended: as wanted, at its deadline, or because the other process has closed the connection.
  enum class End { done, late, closed };

  TimedSocket() = default;

  /// Connects to `address`. Where nothing answers by `until`, the result is not open, and errno has the reason.
  static TimedSocket connect(const SocketAddress& address, int interrupt, Time until);
  /// Waits until `until`.
  static void pause(int interrupt, Time until) { wait_for(-1, 0, interrupt, until); }

  bool is_open() const noexcept { return static_cast<bool>(socket_); }
  void close() noexcept { socket_.close(); }
  /// The descriptor of the socket.
  int get() const noexcept { return socket_.get(); }

  /// Sends all of `bytes`.
  End send(std::string_view bytes, Time until);
  /// Fills `bytes`.
  End receive(std::span<char> bytes, Time until);

 private:
  TimedSocket(Descriptor socket, int interrupt) noexcept : socket_{std::move(socket)}, interrupt_{interrupt} {}

  /// Waits until the socket can be read (POLLIN) or written (POLLOUT); returns false at `until`.
  static bool wait_for(int socket, short events, int interrupt, Time until);

  Descriptor socket_;
  int interrupt_ = -1;
};

inline bool TimedSocket::wait_for(int socket, short events, int interrupt, Time until) {
  while (true) {
    std::array<pollfd, 2> waits{{{socket, events, 0}, {interrupt, POLLIN, 0}}};  // poll ignores a descriptor of -1
    ::poll(waits.data(), waits.size(), poll_timeout(until));
    if (waits[1].revents != 0) throw Error{Errc::stopped, "interrupted while waiting for another process"};
    if (waits[0].revents != 0) return true;
    if (Clock::now() >= until) return false;
  }
}

inline TimedSocket TimedSocket::connect(const SocketAddress& address, int interrupt, Time until) {
  const auto failed = [](int reason) {
    errno = reason;
    return TimedSocket{};
  };
  Descriptor socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return failed(errno);
  int reason = ::connect(socket.get(), address.get(), address.length()) == 0 ? 0 : errno;
  if (reason == EINPROGRESS) {
    if (!wait_for(socket.get(), POLLOUT, interrupt, until)) return failed(ETIMEDOUT);
    socklen_t length = sizeof reason;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &reason, &length);
  }
  if (reason != 0) return failed(reason);
  // On one host the system may choose the port to which the socket connects as its local port. Then the socket is
  // connected to itself, and would occupy the port of the server.
  if (SocketAddress::of_socket(socket.get()) == SocketAddress::of_peer(socket.get())) return failed(ECONNREFUSED);
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {std::move(socket), interrupt};
}

inline TimedSocket::End TimedSocket::send(std::string_view bytes, Time until) {
  while (!bytes.empty()) {
    const auto count = ::send(get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0)
      bytes.remove_prefix(static_cast<std::size_t>(count));
    else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(get(), POLLOUT, interrupt_, until)) return End::late;
    } else if (errno != EINTR) {
      return End::closed;
    }
  }
  return End::done;
}

inline TimedSocket::End TimedSocket::receive(std::span<char> bytes, Time until) {
  while (!bytes.empty()) {
    const auto count = ::recv(get(), bytes.data(), bytes.size(), 0);
    if (count > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(get(), POLLIN, interrupt_, until)) return End::late;
    } else if (count == 0 || errno != EINTR) {
      return End::closed;
    }
  }
  return End::done;
}

}  // namespace ddpxx
