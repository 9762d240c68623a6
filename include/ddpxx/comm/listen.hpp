// ddpxx/comm/listen.hpp — sockets that listen for other processes.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/own_addresses.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

/// A socket that listens at one address; empty with errno set if that fails.
inline Descriptor listen_at(const SocketAddress& address) {
  Descriptor socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return {};
  const int on = 1;
  // Listens although ended connections still use the port.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  constexpr int kQueue = 4096;  // the system may allow less; a client that finds the queue full tries again
  if (::bind(socket.get(), address.get(), address.length()) == 0 && ::listen(socket.get(), kQueue) == 0) return socket;
  const int reason = errno;
  socket.close();
  errno = reason;
  return {};
}

}  // namespace detail

/// Sockets that listen at `port` for processes that connect to `host`: at those of its addresses that belong to this
/// host. If `other_hosts` must be able to connect although all of these are loopback addresses (Debian's "127.0.1.1
/// name"), also at the outward addresses. If none belongs to this host (a forwarded port), at all interfaces.
/// `still_trying` is that of `resolve`.
/// Errors  `peer` when the name does not resolve, or the port is taken ("port in use").
inline std::vector<Descriptor> listen_for(const std::string& host, std::uint16_t port, bool other_hosts,
                                          std::chrono::steady_clock::time_point deadline,
                                          const std::function<void(const std::string& reason)>& still_trying = {}) {
  const auto addresses = resolve(host, port, deadline, still_trying);
  std::vector<Descriptor> listeners;
  const auto listen = [&](const SocketAddress& address) {
    if (auto listener = detail::listen_at(address))
      listeners.push_back(std::move(listener));
    else if (errno == EADDRINUSE)
      throw Error{Errc::peer, "port in use: " + store_url(address.text(), port) +
                                  " is taken by another program; choose another port"};
    else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      throw Error{Errc::peer, "cannot listen at " + store_url(address.text(), port) + ": " + std::strerror(errno)};
  };
  std::vector<std::string> tried;  // getaddrinfo may give an address twice
  const auto listen_once = [&](const SocketAddress& address) {
    const auto text = address.text();
    if (std::find(tried.begin(), tried.end(), text) == tried.end()) listen(address);
    tried.push_back(text);
  };
  for (const auto& address : addresses) listen_once(address);
  const bool all_loopback = std::all_of(listeners.begin(), listeners.end(), [](const Descriptor& listener) {
    return is_loopback(SocketAddress::of_socket(listener.get()).text());
  });
  if (other_hosts && all_loopback && !listeners.empty())
    for (const auto& address : outward_addresses()) listen_once(address.with_port(port));
  if (listeners.empty()) {
    listen(*SocketAddress::parse("::", port));
    listen(*SocketAddress::parse("0.0.0.0", port));
  }
  return listeners;
}

/// A socket that listens at 127.0.0.1, at a port that the system chooses.
/// Errors  `peer`.
inline Descriptor listen_on_loopback() {
  auto listener = detail::listen_at(*SocketAddress::parse("127.0.0.1"));
  if (!listener)
    throw Error{Errc::peer, "cannot listen on the loopback interface: " + std::string{std::strerror(errno)}};
  return listener;
}

}  // namespace ddpxx
