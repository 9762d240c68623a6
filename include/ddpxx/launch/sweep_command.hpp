// ddpxx/launch/sweep_command.hpp — the command to which a sweep adds each job's arguments.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx {

/// The command of a sweep's jobs, without their arguments.
struct SweepCommand {
  std::string path;                ///< Path of the executable file.
  std::vector<std::string> words;  ///< The words of the command line, without the job's arguments.
  int num_nodes = 1;               ///< Nodes of each job; if above 1, a scheduler must start the jobs.
  int ranks_per_node = 1;
};

/// The command that starts this program again; `name` is its argv[0].
/// Errors  `config` in a rank started by a launcher, since each rank would start the whole sweep.
inline SweepCommand own_command(const std::string& name);

/// The command that starts this launcher again with `plan`, for jobs that each have a world of their own.
inline SweepCommand launch_command(const LaunchPlan& plan, const std::string& name);

/// The text as one word of a shell command, quoted if needed.
inline std::string shell_word(std::string_view text);

namespace detail {

inline std::string running_program() {
  std::error_code failure;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) throw Error{Errc::config, "cannot find the program that runs: /proc/self/exe: " + failure.message()};
  return path.string();
}

inline std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace detail

inline SweepCommand own_command(const std::string& name) {
  if (environment("RANK"))
    throw Error{Errc::config,
                "a sweep starts its jobs itself: call the program without a launcher, or by `ddpxx-run ... " + name +
                    " ... -m`"};
  return {.path = detail::running_program(), .words = {name}};
}

inline SweepCommand launch_command(const LaunchPlan& plan, const std::string& name) {
  const LaunchPlan defaults;
  std::vector<std::string> words{name};
  words.push_back(plan.num_nodes > 1 ? "--nnodes=" + std::to_string(plan.num_nodes) : "--standalone");
  words.push_back("--nproc-per-node=" + std::to_string(plan.ranks_per_node));
  if (plan.run_id) words.push_back("--rdzv-id=" + *plan.run_id);
  if (plan.join_timeout != defaults.join_timeout) {
    const double seconds = static_cast<double>(plan.join_timeout.count()) / 1000;
    words.push_back((std::ostringstream{} << "--rdzv-conf=join_timeout=" << seconds).str());
  }
  if (plan.max_restarts != defaults.max_restarts)
    words.push_back("--max-restarts=" + std::to_string(plan.max_restarts));
  if (plan.grace != defaults.grace) {
    const double seconds = static_cast<double>(plan.grace.count()) / 1000;
    words.push_back((std::ostringstream{} << "--grace=" << seconds).str());
  }
  if (!plan.log_dir.empty()) words.push_back("--log-dir=" + plan.log_dir.string());
  words.push_back(plan.program);
  return {.path = detail::running_program(),
          .words = std::move(words),
          .num_nodes = plan.num_nodes,
          .ranks_per_node = plan.ranks_per_node};
}

inline std::string shell_word(std::string_view text) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string{text};
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + '\'';
}

}  // namespace ddpxx
