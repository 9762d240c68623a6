// ddpxx/launch/sweep_command.hpp — the command to which a sweep adds each job's arguments.
#pragma once

#include <string>
#include <vector>

namespace ddpxx {

struct LaunchPlan;

/// The command of a sweep's jobs, without their arguments.
struct SweepCommand {
  std::string path;                ///< Path of the executable file.
  std::vector<std::string> words;  ///< The words of the command line, without the job's arguments.
  int num_nodes = 1;               ///< Nodes of each job; if above 1, a scheduler must start the jobs.
  int ranks_per_node = 1;
};

/// The command that starts this program again; `name` is its argv[0].
/// Errors  `config` in a rank started by a launcher, since each rank would start the whole sweep.
SweepCommand own_command(const std::string& name);

/// The command that starts this launcher again with `plan`, for jobs that each have a world of their own.
/// Errors  `config` for a plan with fewer nodes at least than at most.
SweepCommand launch_command(const LaunchPlan& plan, const std::string& name);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/launch/sweep_command_inl.hpp>
#endif
