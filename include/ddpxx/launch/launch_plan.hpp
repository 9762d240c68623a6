// ddpxx/launch/launch_plan.hpp — reads the command line of ddpxx-run. The flags and their meaning are torchrun's, with
// dashes or underscores; an unknown flag is refused by name.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// What an agent starts on its machine.
struct LaunchPlan {
  int num_nodes = 1;
  int node_rank = 0;
  int ranks_per_node = 1;
  std::string master_address = "127.0.0.1";
  std::optional<std::uint16_t> master_port = {};  ///< None: a free port, chosen for every attempt.
  std::optional<std::string> run_id = {};         ///< None: a new id on one machine, "none" on several, as in torchrun.
  std::chrono::milliseconds join_timeout{300'000};  ///< How long the agents of several machines wait for each other.
  int max_restarts = 0;
  std::chrono::milliseconds grace{30'000};  ///< From SIGTERM, or a forwarded signal, to SIGKILL.
  std::filesystem::path log_dir = {};       ///< Folder of log files; empty: the agent prints the ranks' lines.
  std::string program = {};
  std::vector<std::string> arguments = {};  ///< Without the program's name.
};

/// The numbers of the rank that has this number on its machine.
inline RankInfo rank_info_of(const LaunchPlan& plan, int local_rank, int restart) {
  return {.rank = Rank{plan.node_rank * plan.ranks_per_node + local_rank},
          .world_size = WorldSize{plan.num_nodes * plan.ranks_per_node},
          .local_rank = LocalRank{local_rank},
          .local_world_size = LocalWorldSize{plan.ranks_per_node},
          .restart = restart};
}

/// Reads the arguments of ddpxx-run; none if they ask for help. The first argument that is not a flag is the program to
/// start, and the rest are its arguments.
/// Errors  `config`, naming the flag.
inline std::optional<LaunchPlan> parse_launch(std::span<const std::string> arguments);

/// The text of `ddpxx-run --help`, from the table of flags that `parse_launch` reads.
inline std::string launch_help();

namespace detail {

struct LaunchFlag {
  std::string_view name;   // with dashes; underscores are accepted too
  std::string_view value;  // the value's name in the help; empty if the flag has no value
  std::string_view help;
  void (*apply)(LaunchPlan&, const LaunchFlag&, const std::string& text);
};

[[noreturn]] inline void refuse(const LaunchFlag& flag, const std::string& text, const std::string& expected) {
  throw Error{Errc::config, std::string{flag.name} + ": \"" + text + "\" is not " + expected};
}

inline int whole_number(const LaunchFlag& flag, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    refuse(flag, text, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

inline std::chrono::milliseconds seconds(const LaunchFlag& flag, const std::string& text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || !(value >= 0) || value > 1e6)
    refuse(flag, text, "a number of seconds from 0 to 1000000");
  return std::chrono::milliseconds{std::llround(value * 1000)};
}

/// True if a run may have this id, which also names a folder of logs.
inline bool is_run_id(std::string_view text) {
  static constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.size() <= 200 && !text.starts_with('.') &&
         text.find_first_not_of(kCharacters) == std::string_view::npos;
}

constexpr int kMaxRanksPerNode = 4096;  // more than any machine runs; larger numbers are typing errors
constexpr int kMaxNodes = kMaxRanks;

inline constexpr std::array kLaunchFlags = {
    LaunchFlag{"--standalone", "", "one machine, a free port; overrides --master-addr and --master-port",
               [](LaunchPlan&, const LaunchFlag&, const std::string&) {}},
    LaunchFlag{"--nproc-per-node", "N", "ranks to start on this machine [1]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 plan.ranks_per_node = whole_number(flag, text, 1, kMaxRanksPerNode);
               }},
    LaunchFlag{"--nnodes", "M", "number of machines; each runs ddpxx-run with its own --node-rank [1]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 plan.num_nodes = whole_number(flag, text, 1, kMaxNodes);
               }},
    LaunchFlag{"--node-rank", "R", "number of this machine; its ranks are R*N to R*N+N-1 [0]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 plan.node_rank = whole_number(flag, text, 0, kMaxNodes - 1);
               }},
    LaunchFlag{"--master-addr", "HOST", "where rank 0 runs: name or IP address [127.0.0.1]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty()) refuse(flag, text, "a host");
                 plan.master_address = text;
               }},
    LaunchFlag{"--master-port", "PORT", "where the agent of node 0 listens [29500]; on one machine only MASTER_PORT",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 plan.master_port = static_cast<std::uint16_t>(whole_number(flag, text, 1, 65'535));
               }},
    LaunchFlag{"--rdzv-id", "ID", "name of the run; processes of another run are refused [one machine: a new name]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 if (!is_run_id(text)) refuse(flag, text, "a name of 1 to 200 letters, figures, '-', '_' and '.'");
                 plan.run_id = text;
               }},
    LaunchFlag{"--rdzv-conf", "join_timeout=SECONDS", "how long the machines wait for each other at the start [300]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 constexpr std::string_view kKey = "join_timeout=";
                 if (!text.starts_with(kKey)) refuse(flag, text, "join_timeout=SECONDS");
                 plan.join_timeout = seconds(flag, text.substr(kKey.size()));
                 if (plan.join_timeout < std::chrono::milliseconds{100})
                   refuse(flag, text, "a join_timeout of at least 0.1 s");
               }},
    LaunchFlag{"--max-restarts", "K", "how often all ranks are restarted after a failure; one machine only [0]",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 plan.max_restarts = whole_number(flag, text, 0, 1'000'000);
               }},
    LaunchFlag{
        "--grace", "SECONDS", "time that a rank has to end by itself before it is killed [30]",
        [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) { plan.grace = seconds(flag, text); }},
    LaunchFlag{"--log-dir", "DIR",
               "output goes to DIR/<run id>/attempt_<k>/<local rank>/{stdout,stderr}.log instead of here",
               [](LaunchPlan& plan, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty()) refuse(flag, text, "a directory");
                 plan.log_dir = text;
               }},
    LaunchFlag{"--no-python", "", "accepted because torchrun has it: PROGRAM is always run as it is",
               [](LaunchPlan&, const LaunchFlag&, const std::string&) {}},
    LaunchFlag{"--help", "", "this text", [](LaunchPlan&, const LaunchFlag&, const std::string&) {}},
};

inline const LaunchFlag& launch_flag(std::string name) {
  if (name == "-h") name = "--help";
  const std::string spelt = name;
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found =
      std::find_if(kLaunchFlags.begin(), kLaunchFlags.end(), [&](auto& flag) { return flag.name == name; });
  if (found == kLaunchFlags.end())
    throw Error{Errc::config, "unknown flag " + spelt + "; `ddpxx-run --help` lists the flags"};
  return *found;
}

/// Fills in defaults that depend on other flags.
/// Errors  `config` for flags that do not go together.
inline void check_launch(LaunchPlan& plan, const std::vector<std::string_view>& given) {
  const auto has = [&](std::string_view name) { return std::find(given.begin(), given.end(), name) != given.end(); };
  if (plan.program.empty()) throw Error{Errc::config, "no PROGRAM to start; see `ddpxx-run --help`"};
  if (plan.node_rank >= plan.num_nodes)
    throw Error{Errc::config, "--node-rank " + std::to_string(plan.node_rank) + " is outside --nnodes " +
                                  std::to_string(plan.num_nodes) + ": nodes count from 0"};
  if (plan.num_nodes > kMaxRanks / plan.ranks_per_node)
    throw Error{Errc::config, "--nnodes " + std::to_string(plan.num_nodes) + " with --nproc-per-node " +
                                  std::to_string(plan.ranks_per_node) + " is more than the " +
                                  std::to_string(kMaxRanks) + " ranks that a run can have"};
  if (plan.num_nodes > 1) {
    if (has("--standalone")) throw Error{Errc::config, "--standalone is for one machine, but --nnodes asks for more"};
    if (plan.max_restarts > 0)
      throw Error{Errc::config, "--max-restarts works on one machine only; with --nnodes start all of them again"};
    if (!has("--master-addr"))
      throw Error{Errc::config, "--nnodes above 1 needs --master-addr, the machine of --node-rank 0"};
    if (!plan.master_port) plan.master_port = 29'500;
  }
  if (has("--standalone")) {
    plan.master_address = LaunchPlan{}.master_address;
    plan.master_port.reset();
  }
}

}  // namespace detail

inline std::optional<LaunchPlan> parse_launch(std::span<const std::string> arguments) {
  LaunchPlan plan;
  std::vector<std::string_view> given;
  while (!arguments.empty() && arguments.front().starts_with('-')) {
    const std::string argument = arguments.front();
    arguments = arguments.subspan(1);
    if (argument == "--") break;
    const auto equals = argument.find('=');
    const detail::LaunchFlag& flag = detail::launch_flag(argument.substr(0, equals));
    if (flag.name == "--help") return std::nullopt;
    given.push_back(flag.name);
    std::string text;
    if (flag.value.empty()) {
      if (equals != std::string::npos) throw Error{Errc::config, std::string{flag.name} + " takes no value"};
    } else if (equals != std::string::npos) {
      text = argument.substr(equals + 1);
    } else {
      if (arguments.empty())
        throw Error{Errc::config, std::string{flag.name} + " needs a value: " + std::string{flag.value}};
      text = arguments.front();
      arguments = arguments.subspan(1);
    }
    flag.apply(plan, flag, text);
  }
  if (!arguments.empty()) {
    plan.program = arguments.front();
    plan.arguments.assign(arguments.begin() + 1, arguments.end());
  }
  detail::check_launch(plan, given);
  return plan;
}

inline std::string launch_help() {
  std::string text =
      "Usage: ddpxx-run [FLAGS] PROGRAM [ARGUMENTS]\n"
      "Starts PROGRAM once per rank with the variables that torchrun sets, and ends all ranks when one fails.\n\n";
  for (const auto& flag : detail::kLaunchFlags) {
    std::string left = "  " + std::string{flag.name} + (flag.value.empty() ? "" : " ") + std::string{flag.value};
    left.resize(std::max<std::size_t>(left.size() + 1, 24), ' ');
    text += left + std::string{flag.help} + '\n';
  }
  return text +
         "\nEvery flag is also understood with underscores and as --flag=value.\n"
         "With several ranks each line of output starts with its rank, `[rank3]: `; OMP_NUM_THREADS is 1 unless set.\n"
         "On a terminal rank 0 writes its standard output itself, without `[rank0]: `.\n"
         "Several machines: the environment variable DDPXX_TOKEN, equal on all, keeps other programs out of the run.\n"
         "Ranks read nothing from standard input. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 reach all\n"
         "ranks; a second SIGINT, a second or more later, kills them. Training programs of ddpxx with a save_dir stop "
         "on\n"
         "such a signal (but SIGQUIT) after a step, save, and end with 75; SIGUSR1 and SIGUSR2 set no time for that, "
         "the\n"
         "others --grace.\n"
         "Exit code: 0; 75 when the ranks stopped by a signal and saved; otherwise that of the rank that failed first\n"
         "(128+n for signal n); 2 when the command line is wrong or PROGRAM cannot be started.\n"
         "Ranks are not restarted after 2 (configuration) or 3 (data), programs of ddpxx also not after 4 (a snapshot "
         "or\n"
         "another file cannot be written or read) or 6 (loss is NaN or infinite), nor after three starts in a row "
         "that\n"
         "ended before the result of a step was read.\n";
}

}  // namespace ddpxx
