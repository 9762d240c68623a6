// tests/held_port.hpp — a port at which no program listens.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <sys/socket.h>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>

/// A port of the loopback interface at which no program listens, and which no other program gets before release(). A
/// port that was free a moment ago may be the one of a test that runs at the same time.
class HeldPort {
 public:
  HeldPort() {
    const auto loopback = ddpxx::SocketAddress::parse("127.0.0.1").value();
    if (!socket_ || ::bind(socket_.get(), loopback.get(), loopback.length()) != 0)
      throw std::runtime_error{"no port is free"};
  }

  std::uint16_t number() const { return ddpxx::SocketAddress::of_socket(socket_.get()).port(); }
  /// Lets a program listen at the port.
  void release() { socket_.close(); }

 private:
  ddpxx::Descriptor socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};
