// ddpxx/launch/agent.hpp — runs a plan on one machine: its ranks round after round, as it agrees with the agents of the
// other machines.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/agent_group.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/descriptor_limit.hpp>
#include <ddpxx/launch/agent/failure_report.hpp>
#include <ddpxx/launch/agent/filtered_log.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/agent/guardian.hpp>
#include <ddpxx/launch/agent/local_ranks.hpp>
#include <ddpxx/launch/agent/log_folder.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/rank_process.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/bare_host.hpp>
#include <ddpxx/launch/error_file.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/bind_ranks.hpp>
#include <ddpxx/launch/plan/cpu_topology.hpp>
#include <ddpxx/launch/plan/flag_values.hpp>
#include <ddpxx/launch/plan/run_id.hpp>

namespace ddpxx {

/// Runs a plan on this machine.
class Agent {
 public:
  explicit Agent(LaunchPlan plan) : plan_{std::move(plan)}, program_{find_program(plan_.program)} {}

  /// Starts the ranks, starts them again after a failure while restarts remain, and waits for their end. Returns the
  /// exit code of the agent.
  /// Errors  `config` if the program cannot be run, `storage` if log files cannot be made, `peer` if the system cannot
  ///         start a process or the agents of several machines do not meet. All ranks of this machine have then ended.
  int run();

 private:
  detail::NodeResult attempt(detail::AgentGroup& group, const detail::Round& round);
  int end(const detail::RunEnd& end, const detail::NodeResult* last);
  void bind();
  void report(std::span<const detail::Exit> exits, std::size_t cause, const std::string& refusal);

  LaunchPlan plan_;
  std::string program_;
  detail::Guardian guardian_;  // first: it forks, and must do so before there is a thread
  detail::DescriptorLimit descriptors_;
  detail::Console console_{plan_};
  std::string run_id_;
  std::optional<detail::LogFolder> logs_;   // holds the files of all attempts; made for the first one
  std::vector<detail::CpuSet> processors_;  // the set of each rank; empty: that of the agent
  int num_rounds_ = 0;
};

namespace detail {

/// The id of the run: on one machine a new name, so that the log folder is new; on several machines a name that they
/// agree on.
inline std::string make_run_id(const LaunchPlan& plan) {
  if (plan.run_id) return *plan.run_id;
  if (plan.num_nodes > 1) {
    const auto job = environment("SLURM_JOB_ID");   // equal on all machines of the job
    return job && is_run_id(*job) ? *job : "none";  // "none" as torchrun
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return (std::ostringstream{} << std::put_time(&parts, "%Y%m%d-%H%M%S-") << ::getpid()).str();
}

}  // namespace detail

inline int Agent::run() {
  run_id_ = detail::make_run_id(plan_);
  if (!plan_.facts_from.empty() && plan_.node_rank == 0)
    console_.say(std::to_string(plan_.num_nodes) + " nodes, which meet at " + harmless(plan_.master_address) + ", by " +
                 harmless(plan_.facts_from) + " of Kubernetes");
  try {
    bind();  // a binding that is impossible ends this agent before it has met the others
    detail::AgentGroup group{plan_, run_id_, console_};
    std::optional<detail::NodeResult> last;
    while (true) {
      const detail::Next next = group.next(last ? &*last : nullptr);
      if (const auto* run_end = std::get_if<detail::RunEnd>(&next)) return end(*run_end, last ? &*last : nullptr);
      try {
        last = attempt(group, std::get<detail::Round>(next));
      } catch (const Error& error) {
        group.give_up(error);
        throw;
      }
    }
  } catch (const Error& error) {
    if (error.code() == Errc::stopped) {  // the signal is in the inbox
      console_.wait({}, detail::Console::Clock::now());
      const int signal = console_.request().value_or(SIGTERM);
      return end({.code = 128 + signal, .asked = signal}, nullptr);
    }
    console_.deliver_output();
    throw;
  }
}

inline detail::NodeResult Agent::attempt(detail::AgentGroup& group, const detail::Round& round) {
  if (!logs_) {
    logs_.emplace(plan_.outputs, run_id_);
    if (plan_.outputs.writes_logs() && !logs_->path().empty())
      console_.say("the ranks write to " + harmless(logs_->path().string()));
  }
  LaunchPlan plan = plan_;
  plan.num_nodes = static_cast<int>(round.agents.size());
  plan.node_rank = round.node_of(group.link().agent()).value();
  detail::RankCommon common{.plan = plan,
                            .guardian = guardian_,
                            .path = program_,
                            .inherited = own_environment(),
                            .folder = logs_->make_attempt(num_rounds_++, plan.ranks_per_node),
                            .processors = processors_,
                            .descriptor_limit = descriptors_.before(),
                            .first_rank_has_terminal = console_.has_terminal(),
                            .started = group.link().begun()};
  std::optional<detail::FilteredLog> filtered_output, filtered_error;
  const auto filter = [&](auto& log, const char* name, const std::vector<std::string>& texts) {
    return texts.empty() || common.folder.empty() ? nullptr : &log.emplace(common.folder / name, texts);
  };
  common.filtered_output = filter(filtered_output, "filtered_stdout.log", plan_.outputs.stdout_filters);
  common.filtered_error = filter(filtered_error, "filtered_stderr.log", plan_.outputs.stderr_filters);
  // MASTER_PORT is for Python programs, whose rank 0 serves a store; ranks of ddpxx use the agent's store.
  const std::uint16_t port = round.master_port != 0 ? round.master_port
                             : plan.master_port     ? *plan.master_port
                                                    : detail::free_port();
  std::vector<Launch> launches;
  for (int i = 0; i < plan.ranks_per_node; ++i) {
    Launch& launch = launches.emplace_back();
    launch.rank_info = rank_info_of(plan, i, round.restart);
    launch.address = detail::without_brackets(plan.master_address);  // Python's TCPStore accepts no brackets
    launch.port = port;
    launch.run_id = run_id_;
    launch.round = round.number;
    group.link().describe_to(launch);
  }
  return detail::LocalRanks{console_, group.link(), plan}.run(common, launches);
}

/// Chooses the processors of the ranks, where the plan asks for it.
inline void Agent::bind() {
  if (!plan_.binding) return;
  const detail::CpuTopology topology{"/", detail::allowed_cpus()};
  processors_ = detail::bind_ranks(*plan_.binding, plan_.ranks_per_node, topology,
                                   topology.nodes_of_gpus(std::getenv("CUDA_VISIBLE_DEVICES")));
  if (topology.nodes().size() == 1 && plan_.binding != CpuBinding::exclusive)
    console_.say("--numa-binding " + detail::binding_name(*plan_.binding) +
                 ": this machine has one NUMA node with processors for ddpxx-run");
}

/// Reports the end of the run; `last` are this machine's ranks of the last round. Returns the exit code.
inline int Agent::end(const detail::RunEnd& end, const detail::NodeResult* last) {
  const auto exits = last ? std::span<const detail::Exit>{last->exits} : std::span<const detail::Exit>{};
  const auto cause = std::ranges::find_if(exits, [&](const detail::Exit& exit) { return exit.rank == end.cause; });
  if (cause != exits.end()) {
    report(exits, static_cast<std::size_t>(cause - exits.begin()), end.refusal);
    if (!end.first_failure.empty())
      console_.say("the first failure of this run: " + end.first_failure + "; the reported one came after restart " +
                   std::to_string(end.restart));
  } else if (!end.failure.empty()) {
    console_.say(end.failure + (end.refusal.empty() ? "" : "; " + end.refusal));
  } else if (end.asked && end.code > 128) {
    console_.say("ended by " + signal_name(*end.asked));
  }
  console_.deliver_output();
  return end.code;
}

inline void Agent::report(std::span<const detail::Exit> exits, std::size_t cause, const std::string& refusal) {
  detail::pass_on_error_file(exits[cause].error_file, exits[cause].code);
  if (detail::shows_errors(plan_.outputs, exits[cause]) && detail::only_repeats(exits, cause))
    return console_.say(detail::repeat_line(exits[cause], plan_.max_restarts > 0));
  std::string text =
      detail::failure_report(exits, cause, plan_.program, host_name(), logs_->is_kept() ? logs_->path() : "");
  text.pop_back();  // the queue adds a newline to each line
  console_.output().push(STDERR_FILENO, "", text);
  if (const auto silent = detail::silent_rank(exits); silent && detail::lost_its_peers(exits[cause]))
    console_.say("rank " + std::to_string(exits[*silent].rank) +
                 " was still running when all other ranks had lost a peer; it may be slow, or the cause");
  if (!refusal.empty()) console_.say(refusal);
  if (plan_.num_nodes > 1 && std::all_of(exits.begin(), exits.end(), detail::lost_its_peers))
    console_.say("all ranks of this machine have lost a peer: the cause is probably on another machine");
}

}  // namespace ddpxx
