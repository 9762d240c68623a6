// ddpxx/launch/agent/rank_environment.hpp — the environment of one rank, with the variables that torchrun sets.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// The variables that tell a rank its launch, by name; `torchrun_environment()` reads them.
/// `error_file` is the file for the exception of a Python program with `@record`; empty for none.
inline std::map<std::string, std::string> launch_variables(const LaunchPlan& plan, const Launch& launch,
                                                           const std::string& error_file) {
  const RankInfo& rank_info = launch.rank_info;
  const std::string rank = std::to_string(rank_info.rank.value),
                    world_size = std::to_string(rank_info.world_size.value);
  std::map<std::string, std::string> variables = {
      {"RANK", rank},
      {"WORLD_SIZE", world_size},
      {"LOCAL_RANK", std::to_string(rank_info.local_rank.value)},
      {"LOCAL_WORLD_SIZE", std::to_string(rank_info.local_world_size.value)},
      {"GROUP_RANK", std::to_string(plan.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(plan.num_nodes)},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world_size},
      {"ROLE_NAME", plan.role},
      {"MASTER_ADDR", launch.address},
      {"MASTER_PORT", std::to_string(launch.port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(rank_info.restart)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(plan.max_restarts)},
      {"TORCHELASTIC_RUN_ID", launch.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", launch.store_host == StoreHost::torchrun ? "True" : "False"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
  };
  if (!launch.store.empty()) variables["DDPXX_STORE"] = launch.store;
  if (!launch.token.empty()) variables["DDPXX_TOKEN"] = launch.token;
  if (!error_file.empty()) variables["TORCHELASTIC_ERROR_FILE"] = error_file;
  return variables;
}

/// The whole environment of one rank as `NAME=value` texts: the launcher's environment, overridden by
/// `launch_variables`.
inline std::vector<std::string> rank_environment(std::span<const std::string> inherited, const LaunchPlan& plan,
                                                 const Launch& launch, const std::string& error_file) {
  auto variables = launch_variables(plan, launch, error_file);
  std::vector<std::string> result;
  bool has_threads = false, has_nccl = false;
  for (const std::string& entry : inherited) {
    const std::string name = entry.substr(0, entry.find('='));
    has_threads |= name == "OMP_NUM_THREADS";
    has_nccl |= name == "TORCH_NCCL_ASYNC_ERROR_HANDLING";
    if (!variables.contains(name) && name != "TORCHELASTIC_ERROR_FILE") result.push_back(entry);
  }
  if (!has_nccl) variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
  // With several ranks, one thread per core in each of them would be more threads than cores.
  if (!has_threads && plan.ranks_per_node > 1) variables["OMP_NUM_THREADS"] = "1";
  for (const auto& [name, value] : variables) result.push_back(name + '=' + value);
  return result;
}

}  // namespace ddpxx::detail
