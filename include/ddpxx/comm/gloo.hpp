// ddpxx/comm/gloo.hpp — collectives over TCP between CPUs: the Gloo backend of LibTorch.
// LibTorch's wheel ships no gloo headers; `gloo_declarations/` then stands in for the few names that this needs.
#pragma once

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/rendezvous.hpp>

namespace ddpxx {

namespace detail {

/// The address of this host's interface that leads to `host`: what peers must be told to connect to.
/// Empty if the name does not resolve. No packet is sent: connecting a datagram socket only looks up the route.
inline std::string local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{found, &freeaddrinfo};
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_DGRAM, 0);
    if (socket < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    char name[NI_MAXHOST] = {};
    const bool known =
        ::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(socket);
    if (known) return name;
  }
  return {};
}

}  // namespace detail

/// Connects the ranks that have met in `meeting` over Gloo.
/// Ranks   Collective.
/// Errors  `peer` if they cannot reach each other; GLOO_SOCKET_IFNAME overrides the interface that is chosen.
inline Group connect_gloo(const Meeting& meeting) {
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(meeting.collective_timeout);
    const auto address = detail::local_address_towards(meeting.host);
    if (address.empty() || std::getenv("GLOO_SOCKET_IFNAME") != nullptr)
      options = c10d::ProcessGroupGloo::Options::create_default(meeting.collective_timeout);
    else
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    auto backend =
        c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.world_size, options);
    return Group{std::move(backend), meeting.store};
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "the ranks met at " + meeting.host + " but cannot reach each other over Gloo"}
        .with("rank", meeting.rank)
        .with("cause", first_line(cause));
  }
}

}  // namespace ddpxx
