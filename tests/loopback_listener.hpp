// loopback_listener.hpp — a listening socket for the meeting of ranks in one process.
#pragma once

#include <cstdint>
#include <unistd.h>
#include <utility>

#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/socket_address.hpp>

/// A socket that listens on a free port of the loopback interface, which the caller closes, and the port.
inline std::pair<int, std::uint16_t> loopback_listener() {
  const auto listener = ddpxx::listen_on_loopback();
  return {::dup(listener.get()), ddpxx::SocketAddress::of_socket(listener.get()).port()};
}
