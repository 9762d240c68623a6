// ddpxx/launch/plan/launch_flags.hpp — makes the plan of a run out of the flags that were given, and says which do not
// go together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/flag_table.hpp>
#include <ddpxx/launch/plan/launch_flag.hpp>
#include <ddpxx/launch/plan/run_path_script.hpp>

namespace ddpxx::detail {

/// Collects flags and makes the plan of them.
class LaunchFlags {
 public:
  void apply(const LaunchFlag& flag, const std::string& text) {
    given_.insert(flag.name);
    flag.apply(values_, flag, text);
  }

  /// The plan for a command line that goes on with the program and its arguments.
  /// Errors  `config` for flags that do not go together.
  LaunchPlan plan(std::span<const std::string> command) {
    take_program(command);
    take_pod();
    take_meeting_place();
    LaunchPlan& plan = values_.plan;
    if (plan.node_rank >= plan.num_nodes)
      throw Error{Errc::config, "--node-rank " + std::to_string(plan.node_rank) + " is outside --nnodes " +
                                    std::to_string(plan.num_nodes) + ": nodes count from 0"};
    if (plan.num_nodes > kMaxRanks / plan.ranks_per_node)
      throw Error{Errc::config, "--nnodes " + std::to_string(plan.num_nodes) + " with --nproc-per-node " +
                                    std::to_string(plan.ranks_per_node) + " is more than the " +
                                    std::to_string(kMaxRanks) + " ranks that a run can have"};
    if (plan.min_nodes < plan.num_nodes && plan.node_numbers == NodeNumbers::given)
      throw Error{Errc::config, "--nnodes MIN:MAX needs --rdzv-backend c10d, which numbers the machines as they come"};
    return std::move(plan);
  }

 private:
  /// Takes the facts of a pod of Kubernetes that no flag and no PET_ variable gives: those of Kubeflow's PyTorchJob,
  /// where WORLD_SIZE and RANK count pods, and the number that an indexed Job gives its pod.
  void take_pod() {
    if (values_.is_standalone || !environment("KUBERNETES_SERVICE_HOST")) return;
    const auto give = [&](std::string_view name, const char* variable) {
      const auto value = environment(variable);
      if (!value || given_.contains(name)) return;
      LaunchFlag flag = *std::find_if(kLaunchFlags.begin(), kLaunchFlags.end(),
                                      [&](const LaunchFlag& one) { return one.name == name; });
      flag.source = variable;
      apply(flag, *value);
      values_.plan.facts_from += (values_.plan.facts_from.empty() ? "" : ", ") + (variable + ('=' + *value));
    };
    const bool is_rank = environment("LOCAL_RANK") || environment("TORCHELASTIC_RUN_ID");
    const bool is_pytorch_job = environment("RANK") && environment("WORLD_SIZE") && environment("MASTER_ADDR");
    if (is_pytorch_job && !is_rank && !given_.contains("--nnodes") && !given_.contains("--rdzv-endpoint")) {
      give("--nnodes", "WORLD_SIZE");
      give("--node-rank", "RANK");
      give("--master-addr", "MASTER_ADDR");
      give("--master-port", "MASTER_PORT");
    }
    if (values_.plan.num_nodes > 1 && !values_.is_c10d) give("--node-rank", "JOB_COMPLETION_INDEX");
  }

  /// Puts Python in front of a module, and of a script, as torchrun does.
  void take_program(std::span<const std::string> command) {
    LaunchPlan& plan = values_.plan;
    if (command.empty()) throw Error{Errc::config, "no PROGRAM to start; see `ddpxx-run --help`"};
    if (values_.is_module && values_.no_python && !values_.is_run_path)
      throw Error{Errc::config, "--module and --no-python exclude each other: a module is run by Python"};
    plan.program = command.front();
    plan.arguments.assign(command.begin() + 1, command.end());
    std::vector<std::string> added;
    if (values_.is_run_path)
      added = {"-c", kRunPathScript, plan.program};
    else if (values_.is_module || (!values_.no_python && plan.program.ends_with(".py")))
      // In one word, because -m as a word among the program's arguments asks for a sweep.
      added = {"-u", (values_.is_module ? "-m" : "") + plan.program};
    if (added.empty()) return;
    plan.num_added_arguments = added.size();
    plan.arguments.insert(plan.arguments.begin(), added.begin(), added.end());
    plan.program = environment("PYTHON_EXEC").value_or("python3");
  }

  void take_meeting_place() {
    LaunchPlan& plan = values_.plan;
    if (values_.endpoint_port == 0) {  // for torchrun, any free port
      if (plan.num_nodes > 1)
        throw Error{Errc::config,
                    "--rdzv-endpoint with port 0 asks for any free port, which the other machines cannot know: with "
                    "--nnodes above 1 give a port that is equal on all machines"};
      values_.endpoint_port.reset();
    }
    if (values_.is_standalone || values_.is_c10d) plan.node_rank = 0;  // torchrun ignores --node-rank here
    if (values_.is_standalone) {
      if (plan.num_nodes > 1) throw Error{Errc::config, "--standalone is for one machine, but --nnodes asks for more"};
      take_own_address();
      return;
    }
    if (values_.is_c10d) {
      take_own_address();
      if (plan.num_nodes == 1) return;
      if (values_.endpoint_host.empty())
        throw Error{Errc::config,
                    "--rdzv-backend c10d with --nnodes above 1 needs --rdzv-endpoint HOST:PORT, equal on all machines"};
      plan.node_numbers = NodeNumbers::by_arrival;
      plan.master_address = values_.endpoint_host;
      plan.master_port = values_.endpoint_port.value_or(std::uint16_t{29'400});
      return;
    }
    if (!values_.endpoint_host.empty()) {
      plan.master_address = values_.endpoint_host;
      if (values_.endpoint_port) plan.master_port = values_.endpoint_port;
    }
    if (plan.num_nodes == 1) return;
    if (!values_.has_master_address && values_.endpoint_host.empty())
      throw Error{Errc::config,
                  "--nnodes above 1 needs --master-addr, the machine of --node-rank 0, or --rdzv-backend "
                  "c10d with --rdzv-endpoint HOST:PORT"};
    if (!plan.master_port) plan.master_port = std::uint16_t{29'500};
  }

  /// The master of a run on this machine: its loopback address, or the address that was chosen.
  void take_own_address() {
    LaunchPlan& plan = values_.plan;
    plan.master_address = plan.local_address.empty() ? LaunchPlan{}.master_address : plan.local_address;
    plan.master_port.reset();
  }

  LaunchValues values_;
  std::set<std::string_view> given_;  // the names of the flags that the command line or a variable has given
};

}  // namespace ddpxx::detail
