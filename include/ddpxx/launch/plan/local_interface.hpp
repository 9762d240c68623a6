// ddpxx/launch/plan/local_interface.hpp — the network interface that has an address of this machine.
#pragma once

#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace ddpxx::detail {

/// True if both are the same IP address; the ports do not count.
inline bool is_same_address(const sockaddr& one, const sockaddr& other) {
  if (one.sa_family != other.sa_family) return false;
  if (one.sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  return one.sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
}

/// The name of the interface that has this address, a name or an IP address; none if this machine does not have it.
inline std::optional<std::string> local_interface(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses{found, &::freeaddrinfo};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces{list, &::freeifaddrs};
  for (const auto* address = addresses.get(); address != nullptr; address = address->ai_next)
    for (const auto* one = interfaces.get(); one != nullptr; one = one->ifa_next)
      if (one->ifa_addr != nullptr && is_same_address(*one->ifa_addr, *address->ai_addr)) return one->ifa_name;
  return std::nullopt;
}

}  // namespace ddpxx::detail
