// ddpxx/launch/launch_plan.hpp — what ddpxx-run starts on a machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddpxx/comm/keep_alive.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/launch/output_plan.hpp>

namespace ddpxx {

/// How the machines of a run get their numbers: from `--node-rank`, or, as under torchrun's c10d, by the order in which
/// they come to the machine of `--rdzv-endpoint`, which has number 0.
enum class NodeNumbers { given, by_arrival };

/// The cores on which a rank may run, by the GPU that it uses: all cores of the GPU's NUMA node or socket, a share of
/// the node's cores that no other rank has, or the cores of the node that share a cache.
enum class CpuBinding { node, socket, exclusive, core_complex };

/// What an agent starts on its machine.
struct LaunchPlan {
  int num_nodes = 1;  ///< The largest number of machines, for which the run waits at first.
  int min_nodes = 1;  ///< The number of machines below which the run ends.
  NodeNumbers node_numbers = NodeNumbers::given;
  int node_rank = 0;  ///< Under `by_arrival`, 0 until the agents have met.
  int ranks_per_node = 1;
  std::string master_address = "127.0.0.1";
  std::optional<std::uint16_t> master_port = {};  ///< None: a free port, chosen for every attempt.
  std::optional<bool> serves_meeting = {};  ///< Under `by_arrival`: whether this machine serves the meeting; none: if
                                            ///< it has `master_address`.
  std::optional<std::string> run_id = {};   ///< None: a new id on one machine, "none" on several, as in torchrun.
  std::chrono::milliseconds join_timeout{300'000};  ///< How long the agents of several machines wait for each other.
  std::chrono::milliseconds last_call{30'000};      ///< How long more machines are awaited once `min_nodes` have come.
  KeepAlive keep_alive = {};                        ///< When a machine that is silent counts as lost.
  int max_restarts = 0;
  std::chrono::milliseconds grace{30'000};  ///< From SIGTERM, or a forwarded signal, to SIGKILL.
  OutputPlan outputs = {};
  std::optional<CpuBinding> binding = {};  ///< Which cores a rank may use; none: those of the agent.
  bool virtual_local_rank = false;         ///< LOCAL_RANK is 0 in all ranks, and each of them sees its GPU only.
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< TORCHELASTIC_SIGNALS_TO_HANDLE of the ranks.
  std::vector<int> ending_signals = {};                   ///< SIGUSR1 or SIGUSR2, if it asks for an end within `grace`.
  std::string facts_from = {};  ///< Variables of Kubernetes that set parts of this plan, as NAME=VALUE, for a log line.
  std::string local_address = {};  ///< Address of this machine that the user chose; empty for none.
  std::string role = "default";    ///< ROLE_NAME of the ranks.
  std::string program = {};
  std::vector<std::string> arguments = {};  ///< Without the program's name.
  std::size_t num_added_arguments = 0;  ///< How many of `arguments`, the first ones, ddpxx-run has added for Python.
};

/// Whether this signal asks the run to end within `grace`; SIGUSR1 and SIGUSR2 only warn of an end, unless the plan
/// names them.
inline bool asks_for_end(const LaunchPlan& plan, int signal) {
  const auto& ending = plan.ending_signals;
  return (signal != SIGUSR1 && signal != SIGUSR2) || std::find(ending.begin(), ending.end(), signal) != ending.end();
}

/// The numbers of the rank that has this number on its machine.
inline RankInfo rank_info_of(const LaunchPlan& plan, int local_rank, int restart) {
  return {.rank = Rank{plan.node_rank * plan.ranks_per_node + local_rank},
          .world_size = WorldSize{plan.num_nodes * plan.ranks_per_node},
          .local_rank = LocalRank{local_rank},
          .local_world_size = LocalWorldSize{plan.ranks_per_node},
          .restart = restart};
}

}  // namespace ddpxx
