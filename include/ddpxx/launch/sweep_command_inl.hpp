// ddpxx/launch/sweep_command_inl.hpp — the definitions of sweep_command.hpp.
#pragma once

#include <chrono>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/flag_values.hpp>
#include <ddpxx/launch/plan/output_flags.hpp>
#include <ddpxx/launch/plan/run_path_script.hpp>
#include <ddpxx/launch/running_program.hpp>
#include <ddpxx/launch/sweep_command.hpp>

namespace ddpxx {

namespace detail {

/// The words by which a command line of `ddpxx-run` names the program of a plan.
inline std::vector<std::string> program_words(const LaunchPlan& plan) {
  const auto added = std::span{plan.arguments}.first(plan.num_added_arguments);
  if (added.size() > 1 && added[1] == kRunPathScript) return {"--run-path", added.back()};
  std::vector<std::string> words;
  // Only with --no-python is a script itself the program.
  if (plan.program.ends_with(".py")) words.emplace_back("--no-python");
  words.push_back(plan.program);
  words.insert(words.end(), added.begin(), added.end());
  return words;
}

}  // namespace detail

DDPXX_INLINE SweepCommand own_command(const std::string& name) {
  if (environment("RANK"))
    throw Error{Errc::config,
                "a sweep starts its jobs itself: call the program without a launcher, or by `ddpxx-run ... " + name +
                    " ... -m`"};
  return {.path = detail::running_program(), .words = {name}};
}

DDPXX_INLINE SweepCommand launch_command(const LaunchPlan& plan, const std::string& name) {
  if (plan.min_nodes < plan.num_nodes)
    throw Error{Errc::config, "--nnodes " + std::to_string(plan.min_nodes) + ":" + std::to_string(plan.num_nodes) +
                                  ": a job of a sweep runs on all of its nodes or not at all; give one number"};
  const LaunchPlan defaults;
  std::vector<std::string> words{name};
  words.push_back(plan.num_nodes > 1 ? "--nnodes=" + std::to_string(plan.num_nodes) : "--standalone");
  words.push_back("--nproc-per-node=" + std::to_string(plan.ranks_per_node));
  if (plan.run_id) words.push_back("--rdzv-id=" + *plan.run_id);
  const auto seconds = [](std::chrono::milliseconds time) {
    return (std::ostringstream{} << static_cast<double>(time.count()) / 1000).str();
  };
  std::vector<std::string> meeting;
  if (plan.join_timeout != defaults.join_timeout) meeting.push_back("join_timeout=" + seconds(plan.join_timeout));
  if (plan.keep_alive.interval != defaults.keep_alive.interval)
    meeting.push_back("keep_alive_interval=" + seconds(plan.keep_alive.interval));
  if (plan.keep_alive.attempts != defaults.keep_alive.attempts)
    meeting.push_back("keep_alive_max_attempt=" + std::to_string(plan.keep_alive.attempts));
  if (!meeting.empty()) words.push_back("--rdzv-conf=" + detail::text_of(meeting));
  if (plan.max_restarts != defaults.max_restarts)
    words.push_back("--max-restarts=" + std::to_string(plan.max_restarts));
  if (plan.grace != defaults.grace) words.push_back("--grace=" + seconds(plan.grace));
  if (plan.role != defaults.role) words.push_back("--role=" + plan.role);
  const auto& outputs = plan.outputs;
  if (!outputs.log_dir.empty()) words.push_back("--log-dir=" + outputs.log_dir.string());
  if (outputs.redirects.any()) words.push_back("--redirects=" + detail::text_of(outputs.redirects));
  if (outputs.tee.any()) words.push_back("--tee=" + detail::text_of(outputs.tee));
  if (!outputs.shown_ranks.empty()) {
    std::vector<std::string> ranks;
    for (const int rank : outputs.shown_ranks) ranks.push_back(std::to_string(rank));
    words.push_back("--local-ranks-filter=" + detail::text_of(ranks));
  }
  if (!outputs.stdout_filters.empty())
    words.push_back("--duplicate-stdout-filters=" + detail::text_of(outputs.stdout_filters));
  if (!outputs.stderr_filters.empty())
    words.push_back("--duplicate-stderr-filters=" + detail::text_of(outputs.stderr_filters));
  if (plan.binding) words.push_back("--numa-binding=" + detail::binding_name(*plan.binding));
  if (plan.virtual_local_rank) words.emplace_back("--virtual-local-rank");
  if (plan.signals != defaults.signals) words.push_back("--signals-to-handle=" + plan.signals);
  if (!plan.local_address.empty()) words.push_back("--local-addr=" + plan.local_address);
  const auto program = detail::program_words(plan);
  words.insert(words.end(), program.begin(), program.end());
  return {.path = detail::running_program(),
          .words = std::move(words),
          .num_nodes = plan.num_nodes,
          .ranks_per_node = plan.ranks_per_node};
}

}  // namespace ddpxx
