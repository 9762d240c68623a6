// ddpxx/launch/agent/rank_environment.hpp — the environment of one rank, with the variables that torchrun sets.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/local_interface.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// The value of CUDA_VISIBLE_DEVICES by which a rank sees only its GPU, from the value for all ranks (null: it is not
/// set). An empty value hides all GPUs from each rank, too.
/// Errors  `config` if the value for all ranks shows some GPUs, but fewer than there are ranks.
inline std::string visible_gpu(const char* visible, int local_rank) {
  if (visible == nullptr) return std::to_string(local_rank);
  if (*visible == '\0') return {};
  std::istringstream names{visible};
  std::string name;
  for (int i = 0; i <= local_rank; ++i)
    if (!std::getline(names, name, ',') || name.empty())
      throw Error{Errc::config, "--virtual-local-rank: CUDA_VISIBLE_DEVICES=" + harmless(visible) +
                                    " shows no GPU for local rank " + std::to_string(local_rank)};
  return name;
}

/// The variables that tell a rank its launch, by name; `torchrun_environment()` reads them.
/// `error_file` is the file for the error of the rank, as of a Python program with `@record`; empty for none.
inline std::map<std::string, std::string> launch_variables(const LaunchPlan& plan, const Launch& launch,
                                                           const std::string& error_file) {
  const RankInfo& rank_info = launch.rank_info;
  const std::string rank = std::to_string(rank_info.rank.value),
                    world_size = std::to_string(rank_info.world_size.value);
  std::map<std::string, std::string> variables = {
      {"RANK", rank},
      {"WORLD_SIZE", world_size},
      {"LOCAL_RANK", plan.virtual_local_rank ? "0" : std::to_string(rank_info.local_rank.value)},
      {"DDPXX_LOCAL_RANK", std::to_string(rank_info.local_rank.value)},
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
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", plan.signals},
      {"DDPXX_ROUND", std::to_string(launch.round)},
  };
  if (!launch.store.empty()) variables["DDPXX_STORE"] = launch.store;
  if (!launch.token.empty()) variables["DDPXX_TOKEN"] = launch.token;
  variables["TORCHELASTIC_ERROR_FILE"] = error_file;
  if (plan.virtual_local_rank)
    variables["CUDA_VISIBLE_DEVICES"] = visible_gpu(std::getenv("CUDA_VISIBLE_DEVICES"), rank_info.local_rank.value);
  return variables;
}

/// The whole environment of one rank as `NAME=value` texts: the launcher's environment, overridden by
/// `launch_variables`.
inline std::vector<std::string> rank_environment(std::span<const std::string> inherited, const LaunchPlan& plan,
                                                 const Launch& launch, const std::string& error_file) {
  auto variables = launch_variables(plan, launch, error_file);
  std::vector<std::string> result;
  std::set<std::string> present;
  for (const std::string& entry : inherited) {
    const std::string name = entry.substr(0, entry.find('='));
    present.insert(name);
    if (!variables.contains(name)) result.push_back(entry);
  }
  const auto set_default = [&](const std::string& name, const std::string& value) {
    if (!present.contains(name)) variables[name] = value;
  };
  set_default("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  // With several ranks, one thread per core in each of them would be more threads than cores.
  if (plan.ranks_per_node > 1) set_default("OMP_NUM_THREADS", "1");
  if (!plan.local_address.empty())
    if (const auto interface = local_interface(plan.local_address))
      for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) set_default(name, *interface);
  for (const auto& [name, value] : variables) result.push_back(name + '=' + value);
  return result;
}

}  // namespace ddpxx::detail
