// ddpxx/launch/plan/launch_flags.hpp — the flags of ddpxx-run: their names, what they mean, and which go together.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
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
#include <ddpxx/launch/plan/launch_flag.hpp>
#include <ddpxx/launch/plan/local_interface.hpp>
#include <ddpxx/launch/plan/output_flags.hpp>
#include <ddpxx/launch/plan/processors.hpp>
#include <ddpxx/launch/plan/run_id.hpp>
#include <ddpxx/launch/plan/run_path_script.hpp>

namespace ddpxx::detail {

constexpr int kMaxRanksPerNode = 4096;  // more than any machine runs; larger numbers are typing errors
constexpr int kMaxNodes = kMaxRanks;

/// The values of `--rdzv-endpoint HOST[:PORT]`; an IPv6 address with a port stands in brackets.
inline void read_endpoint(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  constexpr const char* kForm = "HOST or HOST:PORT, where an IPv6 address stands in brackets";
  const auto bracket = text.rfind(']');
  const auto colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  values.endpoint_host = text.substr(0, colon);
  const bool has_brackets = bracket != std::string::npos && text.starts_with('[') && bracket > 1;
  if (values.endpoint_host.empty() || (bracket != std::string::npos && !has_brackets)) refuse(flag, text, kForm);
  values.endpoint_port.reset();
  if (colon == std::string::npos) return;
  const auto port = text.substr(colon + 1);
  if (port.find(':') != std::string::npos) refuse(flag, text, kForm);
  const int number = whole_number(flag, port, 0, 65'535);
  if (number != 0) values.endpoint_port = static_cast<std::uint16_t>(number);
}

/// The values of `--rdzv-conf KEY=VALUE,...`.
inline void read_rendezvous_settings(LaunchValues& values, const LaunchFlag& flag, std::string_view text) {
  // These keys set times of torchrun's rendezvous, which the agents' store does not need.
  constexpr std::array<std::string_view, 5> kWithoutMeaning = {"timeout", "close_timeout", "heartbeat_timeout",
                                                               "read_timeout", "store_type"};
  constexpr std::chrono::milliseconds kMinTime{100};
  const auto time = [&](std::string_view key, const std::string& value) {
    const auto result = seconds(flag, value);
    if (result < kMinTime) refuse(flag, value, "a " + std::string{key} + " of at least 0.1 s");
    return result;
  };
  while (!text.empty()) {
    const auto entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto equals = entry.find('=');
    const auto key = entry.substr(0, equals);
    const std::string value{equals == std::string_view::npos ? "" : entry.substr(equals + 1)};
    if (key == "join_timeout") {
      values.plan.join_timeout = time(key, value);
    } else if (key == "last_call_timeout") {
      values.plan.last_call = seconds(flag, value);
    } else if (key == "keep_alive_interval") {
      values.plan.keep_alive.interval = time(key, value);
    } else if (key == "keep_alive_max_attempt") {
      values.plan.keep_alive.attempts = whole_number(flag, value, 1, 127);
    } else if (key == "is_host") {
      if (value != "true" && value != "false" && value != "1" && value != "0")
        refuse(flag, value, "an is_host of true or false");
      values.plan.serves_meeting = value == "true" || value == "1";
    } else if (equals == std::string_view::npos || std::ranges::find(kWithoutMeaning, key) == kWithoutMeaning.end()) {
      refuse(flag, std::string{entry}, "join_timeout=SECONDS, is_host=true|false or another setting of torchrun");
    }
  }
}

/// The number of `--nproc-per-node N|auto|cpu|gpu`.
inline int read_ranks_per_node(const LaunchFlag& flag, const std::string& text) {
  const int gpus = count_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (text == "cpu" || (text == "auto" && gpus == 0)) return count_processors();
  if (text == "gpu" && gpus == 0)
    throw Error{Errc::config, std::string{flag.source.empty() ? flag.name : flag.source} +
                                  ": \"gpu\" asks for a rank for each GPU, but this machine shows none"};
  return text == "gpu" || text == "auto" ? gpus : whole_number(flag, text, 1, kMaxRanksPerNode);
}

/// The numbers of `--nnodes N` or `--nnodes MIN:MAX`.
inline void read_num_nodes(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  const auto colon = text.find(':');
  const int least = whole_number(flag, text.substr(0, colon), 1, kMaxNodes);
  const int most = colon == std::string::npos ? least : whole_number(flag, text.substr(colon + 1), 1, kMaxNodes);
  if (most < least) refuse(flag, text, "N or MIN:MAX, where MIN is at most MAX");
  values.plan.min_nodes = least;
  values.plan.num_nodes = most;
}

/// The names of `--signals-to-handle`.
inline void read_signals(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  constexpr const char* kForm =
      "a list of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, with commas between them";
  values.plan.signals = text;
  values.plan.ending_signals.clear();
  for (const auto& name : items_of(text)) {
    const auto first = name.find_first_not_of(' ');
    const auto bare = first == std::string::npos ? "" : name.substr(first, name.find_last_not_of(' ') + 1 - first);
    if (bare == "SIGUSR1" || bare == "SIGUSR2")
      values.plan.ending_signals.push_back(bare == "SIGUSR1" ? SIGUSR1 : SIGUSR2);
    else if (bare != "SIGTERM" && bare != "SIGINT" && bare != "SIGHUP" && bare != "SIGQUIT")
      refuse(flag, text, kForm);
  }
}

inline std::string name_of(CpuBinding binding) {
  constexpr std::array kNames = {"node", "socket", "exclusive", "core-complex"};
  return kNames[static_cast<std::size_t>(binding)];
}

/// The mode of `--numa-binding`.
inline CpuBinding read_binding(const LaunchFlag& flag, const std::string& text) {
  for (const auto binding : {CpuBinding::node, CpuBinding::socket, CpuBinding::exclusive, CpuBinding::core_complex})
    if (text == name_of(binding)) return binding;
  refuse(flag, text, "node, socket, exclusive or core-complex");
}

inline constexpr auto kNoEffect = [](LaunchValues&, const LaunchFlag&, const std::string&) {};

inline constexpr std::array kLaunchFlags = {
    LaunchFlag{"--standalone", "", "", "one machine, a free port; overrides where machines meet",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_standalone = true; }},
    LaunchFlag{"--nproc-per-node", "", "N", "ranks on this machine; cpu, gpu: one for each; auto: gpu, else cpu [1]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.ranks_per_node = read_ranks_per_node(flag, text);
               }},
    LaunchFlag{"--nnodes", "", "M",
               "number of machines; each runs ddpxx-run; MIN:MAX with c10d: they may come and go [1]", read_num_nodes},
    LaunchFlag{"--rdzv-backend", "", "NAME",
               "static: --node-rank numbers the machines; c10d: they are numbered as they come [static]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text != "static" && text != "c10d") refuse(flag, text, "static or c10d");
                 values.is_c10d = text == "c10d";
               }},
    LaunchFlag{"--rdzv-endpoint", "", "HOST[:PORT]", "where the machines meet; PORT with c10d [29400]", read_endpoint},
    LaunchFlag{"--rdzv-id", "", "ID", "name of the run; processes of another run are refused [one machine: a new name]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (!is_run_id(text)) refuse(flag, text, "a name of 1 to 200 letters, figures, '-', '_' and '.'");
                 values.plan.run_id = text;
               }},
    LaunchFlag{
        "--rdzv-conf", "", "KEY=VALUE,...",
        "join_timeout=SECONDS: how long the machines wait for each other [300]; last_call_timeout: for more "
        "than MIN [30]; keep_alive_interval [5] and keep_alive_max_attempt [3]: a machine is lost after that many "
        "intervals without an answer; is_host=true: this machine serves the meeting of c10d",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          read_rendezvous_settings(values, flag, text);
        }},
    LaunchFlag{"--node-rank", "", "R", "static: number of this machine; its ranks are R*N to R*N+N-1 [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.node_rank = whole_number(flag, text, 0, kMaxNodes - 1);
               }},
    LaunchFlag{"--master-addr", "", "HOST", "static: where rank 0 runs, a name or IP address [127.0.0.1]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty()) refuse(flag, text, "a host");
                 values.plan.master_address = text;
                 values.has_master_address = true;
               }},
    LaunchFlag{"--master-port", "", "PORT",
               "static: where the agent of node 0 listens [29500]; on one machine only MASTER_PORT",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.master_port = static_cast<std::uint16_t>(whole_number(flag, text, 1, 65'535));
               }},
    LaunchFlag{"--max-restarts", "", "K", "how often all ranks, of all machines, are restarted after a failure [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.max_restarts = whole_number(flag, text, 0, 1'000'000);
               }},
    LaunchFlag{"--grace", "", "SECONDS", "time that a rank has to end by itself before it is killed [30]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.grace = seconds(flag, text);
               }},
    LaunchFlag{
        "--log-dir", "", "DIR",
        "folder of log files: DIR/<run id>_<random>/attempt_<k>/<local rank>/; /dev/null: none [a temporary one]",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          if (text.empty()) refuse(flag, text, "a directory");
          values.plan.outputs.log_dir = text;
        }},
    LaunchFlag{
        "--redirects", "-r", "CHOICE",
        "outputs that go to stdout.log and stderr.log instead of here: 0 none, 1 stdout, 2 stderr, 3 both, or by "
        "local rank as in 0:3,1:2 [0]",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          values.plan.outputs.redirects = read_streams(flag, text);
        }},
    LaunchFlag{"--tee", "-t", "CHOICE", "outputs that go to the files and here; the form of --redirects [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.outputs.tee = read_streams(flag, text);
               }},
    LaunchFlag{"--local-ranks-filter", "", "RANKS", "local ranks whose outputs are shown here, as in 0,1 [all]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.outputs.shown_ranks = read_local_ranks(flag, text);
               }},
    LaunchFlag{"--duplicate-stdout-filters", "", "TEXTS",
               "lines of --tee that have one of these texts, as in a,b, also go to filtered_stdout.log; ,, is a comma",
               [](LaunchValues& values, const LaunchFlag&, const std::string& text) {
                 values.plan.outputs.stdout_filters = items_of(text);
               }},
    LaunchFlag{"--duplicate-stderr-filters", "", "TEXTS",
               "lines of --tee on standard error that have one of these texts also go to filtered_stderr.log",
               [](LaunchValues& values, const LaunchFlag&, const std::string& text) {
                 values.plan.outputs.stderr_filters = items_of(text);
               }},
    LaunchFlag{"--role", "", "NAME", "ROLE_NAME of the ranks [default]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (!is_run_id(text)) refuse(flag, text, "a name of 1 to 200 letters, figures, '-', '_' and '.'");
                 values.plan.role = text;
               }},
    LaunchFlag{"--module", "-m", "", "PROGRAM is a module of Python, and runs as `python3 -u -m PROGRAM`",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_module = true; }},
    LaunchFlag{"--no-python", "", "", "run a PROGRAM with the name *.py as it is, and not as `python3 -u PROGRAM`",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.no_python = true; }},
    LaunchFlag{"--run-path", "", "", "run the script PROGRAM by Python's runpy; goes before --no-python",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_run_path = true; }},
    LaunchFlag{"--numa-binding", "", "MODE",
               "cores of a rank, near its GPU: node, socket, exclusive (a share of its own) or core-complex (a shared "
               "cache) [all]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.binding = read_binding(flag, text);
               }},
    LaunchFlag{
        "--virtual-local-rank", "", "", "LOCAL_RANK is 0 in all ranks, and each of them sees only its GPU",
        [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.plan.virtual_local_rank = true; }},
    LaunchFlag{"--signals-to-handle", "", "NAMES",
               "with SIGUSR1 or SIGUSR2 in the list, that signal gives the ranks --grace to end; the others always do",
               read_signals},
    LaunchFlag{"--local-addr", "", "HOST", "address of this machine whose interface the ranks use [found by them]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty() || !local_interface(text)) refuse(flag, text, "an address of this machine");
                 values.plan.local_address = text;
               }},
    LaunchFlag{"--monitor-interval", "", "SECONDS", "no effect: the agent sees the end of a rank at once",
               [](LaunchValues&, const LaunchFlag& flag, const std::string& text) { seconds(flag, text); }},
    LaunchFlag{"--start-method", "", "NAME", "no effect: each rank is a new process that runs PROGRAM",
               [](LaunchValues&, const LaunchFlag& flag, const std::string& text) {
                 if (text != "spawn" && text != "fork" && text != "forkserver")
                   refuse(flag, text, "spawn, fork or forkserver");
               }},
    LaunchFlag{"--help", "-h", "", "this text", kNoEffect},
};

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
    if (values_.is_run_path) {
      plan.arguments.insert(plan.arguments.begin(), {"-c", kRunPathScript, plan.program});
      plan.program = environment("PYTHON_EXEC").value_or("python3");
      return;
    }
    if (!values_.is_module && (values_.no_python || !plan.program.ends_with(".py"))) return;
    // In one word, because -m as a word among the program's arguments asks for a sweep.
    plan.arguments.insert(plan.arguments.begin(), {"-u", (values_.is_module ? "-m" : "") + plan.program});
    plan.program = environment("PYTHON_EXEC").value_or("python3");
  }

  void take_meeting_place() {
    LaunchPlan& plan = values_.plan;
    if (values_.is_standalone) {
      if (plan.num_nodes > 1) throw Error{Errc::config, "--standalone is for one machine, but --nnodes asks for more"};
      take_own_address();
      return;
    }
    if (values_.is_c10d) {
      plan.node_rank = 0;  // torchrun ignores --node-rank here
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
