// ddpxx/comm/socket_address.hpp — IPv4 and IPv6 addresses with a port.
#pragma once

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>

#include <ddpxx/core/log.hpp>

namespace ddpxx {

/// One IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length) : length_{length} {
    std::memcpy(&storage_, address, length);
  }

  /// Reads an address in figures; none for anything else, names included.
  static std::optional<SocketAddress> parse(const std::string& text, std::uint16_t port = 0) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    if (::inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1)
      return SocketAddress{reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4}.with_port(port);
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1)
      return SocketAddress{reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6}.with_port(port);
    return std::nullopt;
  }
  /// The address of this end of a socket.
  static SocketAddress of_socket(int fd) { return from(fd, ::getsockname); }
  /// The address of the other end.
  static SocketAddress of_peer(int fd) { return from(fd, ::getpeername); }

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return length_; }
  int family() const noexcept { return storage_.ss_family; }

  std::uint16_t port() const noexcept {
    return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                                      : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  }
  SocketAddress with_port(std::uint16_t port) const {
    auto result = *this;
    if (family() == AF_INET6)
      reinterpret_cast<sockaddr_in6*>(&result.storage_)->sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in*>(&result.storage_)->sin_port = htons(port);
    return result;
  }

  /// In figures, without the port; empty for no address.
  std::string text() const {
    std::array<char, NI_MAXHOST> name{};
    if (length_ == 0 || ::getnameinfo(get(), length_, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      return {};
    return name.data();
  }

  friend bool operator==(const SocketAddress& left, const SocketAddress& right) {
    return left.port() == right.port() && left.text() == right.text();
  }

 private:
  template <class Ask>
  static SocketAddress from(int fd, Ask ask) {
    SocketAddress result;
    socklen_t length = sizeof result.storage_;
    if (ask(fd, reinterpret_cast<sockaddr*>(&result.storage_), &length) == 0) result.length_ = length;
    return result;
  }

  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// How a place to connect to is written in errors; an IPv6 address stands in brackets.
inline std::string store_url(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return "tcp://" + harmless(ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

inline bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace ddpxx
