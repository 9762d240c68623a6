// two_ranks.hpp — how two ranks run on this machine for commands that no launcher has started.
#pragma once

#include <chrono>
#include <string>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/testing.hpp>

/// They have as much time as they want: their meeting and their collectives have time limits of their own.
inline ddpxx::SpawnOptions two_ranks(const std::string& device, const ddpxx::ConnectConfig& comm) {
  return {.deadline = std::chrono::hours{24}, .device = device, .comm = comm};
}
