// ddpxx/comm/own_addresses.hpp — the addresses of this host.
#pragma once

#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace ddpxx {

namespace detail {

/// One address of an interface of this host that is up.
struct InterfaceAddress {
  std::string name;
  unsigned flags = 0;  ///< IFF_LOOPBACK and so on.
  SocketAddress address;
};

inline std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{first, &freeifaddrs};
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    result.push_back({entry->ifa_name, entry->ifa_flags, SocketAddress{entry->ifa_addr, length}});
  }
  return result;
}

}  // namespace detail

/// This host's address on the route to `peer`, by which peers there can connect to this host; empty if there is no
/// route. No packet is sent, because connecting a datagram socket only looks up the route.
inline std::string local_address_towards(const SocketAddress& peer) {
  const Descriptor socket{::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!socket || ::connect(socket.get(), peer.get(), peer.length()) != 0) return {};
  return SocketAddress::of_socket(socket.get()).text();
}

/// The addresses of this host that other hosts can reach: those of interfaces that are up, without loopback addresses
/// and addresses that are valid on one link only.
inline std::vector<SocketAddress> outward_addresses() {
  std::vector<SocketAddress> result;
  for (const auto& [name, flags, address] : detail::interface_addresses()) {
    if ((flags & IFF_LOOPBACK) != 0) continue;
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    if (address.family() == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr)) result.push_back(address);
  }
  return result;
}

/// The name of this host's interface with the address `address`, such as eth0; empty if there is none.
inline std::string interface_of(const std::string& address) {
  for (const auto& entry : detail::interface_addresses())
    if (entry.address.text() == address) return entry.name;
  return {};
}

}  // namespace ddpxx
