// ddpxx/launch/agent/free_port.hpp — finds a TCP port that no program uses.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// A port that is free now on all interfaces: `wanted`, if that is free. The port is not reserved.
/// Errors  `peer` if the system has no free port.
inline std::uint16_t free_port(std::uint16_t wanted = 0) {
  const Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  address.sin_port = htons(wanted);
  if (wanted != 0 && socket && ::bind(socket.get(), generic, length) == 0) return wanted;
  address.sin_port = 0;
  if (!socket || ::bind(socket.get(), generic, length) != 0 || ::getsockname(socket.get(), generic, &length) != 0)
    throw Error{Errc::peer, "no free port: " + std::string{std::strerror(errno)}};
  return ntohs(address.sin_port);
}

}  // namespace ddpxx::detail
