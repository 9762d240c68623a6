// ddpxx/launch/spawn.hpp — a program that starts itself once for each rank, without a launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddpxx::detail {

/// What the arguments of a program say about ranks that it is to start itself.
struct SpawnRequest {
  std::string value;                   ///< The N of `spawn=N`, `--spawn=N` or `--spawn N`.
  std::vector<std::string> arguments;  ///< The other arguments.
};

/// The request among a program's arguments, without its name; none if there is no argument `spawn=N`, which may also be
/// written `--spawn=N` or `--spawn N`. Arguments after `--` do not count.
/// Errors  `config` if there are several, if the value is missing, or if the arguments ask for a sweep too.
std::optional<SpawnRequest> read_spawn(const std::vector<std::string>& arguments);

/// If this process was started with an argument `spawn=N`, starts its program once for each of N ranks of this machine,
/// as `ddpxx-run --standalone --nproc-per-node N` would, waits for their end, and returns the exit code; otherwise
/// none. N is a number, cpu, gpu or auto. Called while the process has no other threads.
/// Errors  `config` for another value, or if a launcher has started this process; those of `Agent::run`.
std::optional<int> spawn_ranks_of_program();

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/launch/spawn_inl.hpp>
#endif
