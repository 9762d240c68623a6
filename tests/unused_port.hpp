// tests/unused_port.hpp — a port for a program that a test starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <unistd.h>

#include <ddpxx/launch/agent/free_port.hpp>

/// A port that no program uses. It is below the ports that the system gives to connections and to sockets that ask for
/// none in particular: a test that runs at the same time might get one of those before the program does. The test
/// programs that run at the same time begin at different ports.
inline std::uint16_t unused_port() {
  constexpr int kFirst = 10'000, kBlocks = 50, kPortsOfBlock = 120;  // the servers of tests/services begin at 17000
  static std::atomic<int> calls{0};
  const int block = kFirst + ::getpid() % kBlocks * kPortsOfBlock;
  for (int i = 0; i < kPortsOfBlock; ++i) {
    const auto port = static_cast<std::uint16_t>(block + calls++ % kPortsOfBlock);
    if (ddpxx::detail::free_port(port) == port) return port;
  }
  return ddpxx::detail::free_port();
}
