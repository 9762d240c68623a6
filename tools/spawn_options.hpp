// spawn_options.hpp — how the commands that need ranks start them where no launcher has.
#pragma once

#include <chrono>
#include <string>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/testing.hpp>

/// The ranks have a deadline that they do not reach: their meeting and their collectives have time limits of their own.
inline ddpxx::SpawnOptions spawn_options(const std::string& device, const ddpxx::ConnectConfig& comm) {
  return {.deadline = std::chrono::hours{24}, .device = device, .comm = comm};
}
