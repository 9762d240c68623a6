// ddpxx/comm/store_client.hpp — one client's connection, as the server of a job's store sees it.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ddpxx/comm/held_requests.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace ddpxx::detail {

/// Tells `epoll` which events of the descriptor `fd` to report, and that it reports them with the number `id`.
inline void watch_by_epoll(const Descriptor& epoll, int fd, std::uint64_t id, std::uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(epoll.get(), operation, fd, &event);
}

/// A connection with its input and output, the request that waits for keys, and the keys that the server sets when the
/// connection ends.
struct StoreClient {
  std::uint64_t id = 0;
  Descriptor socket;
  bool accepted = false;
  std::size_t store = 0;  ///< Number of the store that its credentials belong to.
  std::chrono::steady_clock::time_point connected = {};
  std::string input = {};
  std::string output = {};
  std::size_t sent = 0;
  std::uint32_t events = EPOLLIN;
  std::optional<HeldRequest> held = {};
  std::vector<std::string> will_keys = {};
  std::string will_value = {};
  std::size_t counted_bytes = 0;  ///< Size of its data that `StoreValues` counts.

  /// Bytes of each client's buffers that are not counted.
  static constexpr std::size_t kFreeBytes = 4U << 10U;

  /// Reads the received bytes, up to `most` in all; returns false if the connection must be closed.
  bool receive(std::size_t most) {
    constexpr std::size_t kPiece = 64U << 10U;
    if (input.size() >= most) return false;
    std::array<char, kPiece> piece;
    const auto count = ::recv(socket.get(), piece.data(), std::min(most - input.size(), kPiece), 0);
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    input.append(piece.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  /// Sends the pending output, and makes `epoll` report when more can be sent; returns false if the connection must be
  /// closed.
  bool send(const Descriptor& epoll) {
    bool open = true;
    while (sent < output.size()) {
      const auto count = ::send(socket.get(), output.data() + sent, output.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        open = errno == EAGAIN || errno == EWOULDBLOCK;
        break;
      }
      sent += static_cast<std::size_t>(count);
    }
    if (sent == output.size()) {
      output = {};  // frees the memory of a large answer
      sent = 0;
    }
    const std::uint32_t wanted = output.empty() ? EPOLLIN : EPOLLOUT;
    if (wanted != std::exchange(events, wanted)) watch_by_epoll(epoll, socket.get(), id, wanted, EPOLL_CTL_MOD);
    return open;
  }

  /// Size of the data that is kept for the client, without the `kFreeBytes`.
  std::size_t bytes() const {
    std::size_t bytes = input.capacity() + output.capacity() + will_value.size();
    for (const auto& key : will_keys) bytes += key.size() + kBytesPerKey;
    if (held) bytes += held->bytes;
    return bytes > kFreeBytes ? bytes - kFreeBytes : 0;
  }
};

using StoreClients = std::unordered_map<std::uint64_t, StoreClient>;

}  // namespace ddpxx::detail
