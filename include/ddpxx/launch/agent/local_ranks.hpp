// ddpxx/launch/agent/local_ranks.hpp — the ranks of one machine in one round: starts them, forwards their output and
// signals to them, and ends all of them when one fails. It is one poll loop, without torch.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/poll_timeout.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/agent/agent_link.hpp>
#include <ddpxx/launch/agent/collect_orphans.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/oom_kills.hpp>
#include <ddpxx/launch/agent/rank_process.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/wait_watch.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/process_table.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// How often the agent checks for the end of processes behind a rank's first process, of which no signal informs it.
inline constexpr std::chrono::milliseconds kPollInterval{100};

/// The time that a rank has to write its call stack before it is ended.
inline constexpr std::chrono::milliseconds kStackTime{300};

/// The ranks of one round on this machine, and what other nodes tell about the round.
class LocalRanks {
 public:
  LocalRanks(Console& console, AgentLink& link, const LaunchPlan& plan) : console_{console}, link_{link}, plan_{plan} {}

  /// Starts the ranks that `launches` describe and waits for the end of all.
  /// Errors  as `RankProcess`; `peer` if the agent that serves the store is lost. No rank runs on.
  NodeResult run(const RankCommon& common, std::span<const Launch> launches);

 private:
  using Clock = std::chrono::steady_clock;

  void poll_once();
  void on_signal(int number);
  void on_event(const RoundEvent& event);
  void ask_to_stop(int number);
  void notice_ends();
  void notice_waits();
  void keep_deadlines();
  bool ask_for_call_stacks();
  bool all_ended() const;
  std::optional<int> request(const std::vector<Exit>& exits) const;

  Console& console_;
  AgentLink& link_;
  const LaunchPlan& plan_;
  std::vector<RankProcess> ranks_;
  std::optional<int> vote_;                     // the last SIGUSR1 or SIGUSR2, by which ranks may stop
  std::optional<Clock::time_point> terminate_;  // when to send SIGTERM
  std::optional<Clock::time_point> kill_;       // when to send SIGKILL
  WaitWatch waits_;
  Clock::time_point look_at_waits_ = Clock::now() + WaitWatch::kInterval;
  bool has_lost_leader_ = false;
  bool has_asked_for_stacks_ = false;
};

inline NodeResult LocalRanks::run(const RankCommon& common, std::span<const Launch> launches) {
  const auto kills_before = oom_kills();
  ranks_.reserve(launches.size());
  for (const Launch& launch : launches) ranks_.emplace_back(common, launch);
  if (console_.request()) {  // it came after the last round
    kill_ = Clock::now() + plan_.grace;
    ask_to_stop(*console_.request());
  }
  while (!all_ended()) poll_once();
  NodeResult result{.host = host_name()};
  for (auto& rank : ranks_) {
    rank.finish(console_.output());
    result.exits.push_back(*rank.exit());
  }
  if (has_lost_leader_) throw link_.leader_loss();
  for (auto& exit : result.exits)
    if (is_end_by(SIGKILL, exit.code) && !obeyed(exit)) exit.hint = kill_hint(kills_before, oom_kills());
  if (const auto silent = silent_rank(result.exits))
    result.exits[*silent].is_silent = result.exits[*silent].was_stopped;
  result.asked = request(result.exits);
  return result;
}

inline bool LocalRanks::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.exit().has_value(); });
}

/// The signal by which the run was asked to end. SIGUSR1 and SIGUSR2 count only if a rank has ended because of them,
/// since many programs use them for something else.
inline std::optional<int> LocalRanks::request(const std::vector<Exit>& exits) const {
  if (console_.request()) return console_.request();
  const bool have_followed = vote_ && std::any_of(exits.begin(), exits.end(), [&](const Exit& exit) {
                               return exit.code == static_cast<int>(Errc::stopped) || is_end_by(*vote_, exit.code);
                             });
  return have_followed ? vote_ : std::nullopt;
}

inline void LocalRanks::poll_once() {
  auto& output = console_.output();
  const auto [event_of_round, loss] = link_.descriptors();
  std::vector<pollfd> waits = {{console_.inbox().descriptor(), POLLIN, 0},
                               {output.waiting_for(), POLLOUT, 0},
                               {event_of_round, POLLIN, 0},
                               {loss, POLLIN, 0}};
  const std::size_t num_fixed = waits.size();
  std::vector<RankStream*> streams;
  for (auto& rank : ranks_)
    for (auto& stream : rank.streams())
      if (stream.descriptor() >= 0 && !output.full()) {
        waits.push_back({stream.descriptor(), POLLIN, 0});
        streams.push_back(&stream);
      }
  for (const auto& rank : ranks_)
    if (rank.milestones() >= 0) waits.push_back({rank.milestones(), POLLIN, 0});  // read by `notice_ends`
  int timeout = poll_timeout(look_at_waits_);
  for (const auto& deadline : {terminate_, kill_})
    if (deadline) timeout = std::min(timeout, poll_timeout(*deadline));
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.lingers().has_value(); }))
    timeout = std::min(timeout, static_cast<int>(kPollInterval.count()));
  ::poll(waits.data(), waits.size(), timeout);

  if (waits[1].revents != 0) output.write_some();
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (waits[i + num_fixed].revents != 0) streams[i]->read_some(output);
  while (const auto number = console_.inbox().next()) on_signal(*number);
  if (waits[2].revents != 0 || waits[3].revents != 0)
    if (const auto event = link_.next_event()) on_event(*event);
  keep_deadlines();  // before notice_ends: if a deadline ends a rank, no other event may follow
  notice_ends();
  notice_waits();
}

inline void LocalRanks::notice_waits() {
  const auto now = Clock::now();
  if (now < look_at_waits_) return;
  look_at_waits_ = now + WaitWatch::kInterval;
  std::vector<WaitWatch::Watched> running;
  for (const auto& rank : ranks_)
    if (!rank.exit() && !rank.lingers() && rank.progress() != nullptr)
      running.push_back({rank.number(), rank.progress()});
  if (const auto sentence = waits_.look(now, running)) console_.say(*sentence);
}

inline void LocalRanks::ask_to_stop(int number) {
  for (auto& rank : ranks_) rank.ask_to_stop(number);
}

inline void LocalRanks::on_signal(int number) {
  if (number == SIGCHLD) {  // `notice_ends` polls all ranks anyway
    if (::getpid() != 1) return;
    std::vector<pid_t> own;
    for (const auto& rank : ranks_) own.push_back(rank.pid());
    return collect_orphans(own);
  }
  if (!asks_for_end(plan_, number)) {
    vote_ = number;
    return ask_to_stop(number);
  }
  const bool was_asked = console_.request().has_value();
  const bool is_new = console_.hear(number);
  // The ranks of this machine come first: other agents are told through the store, which may not answer for a while.
  if (console_.is_urgent()) {
    kill_ = Clock::now();
    keep_deadlines();
    link_.tell_kill();
  }
  if (was_asked && number == SIGINT) return;  // the ranks are stopping
  ask_to_stop(number);
  if (!was_asked) kill_ = Clock::now() + plan_.grace;
  if (is_new) link_.tell_signal(number);
}

inline void LocalRanks::on_event(const RoundEvent& event) {
  const auto now = Clock::now();
  switch (event.kind) {
    case RoundEvent::Kind::signal: {
      const bool was_asked = console_.request().has_value();
      if (!console_.hear_from_others(event.signal)) return;  // the ranks of this agent have it, or are stopping
      if (!was_asked) kill_ = now + plan_.grace;
      return ask_to_stop(event.signal);
    }
    case RoundEvent::Kind::grows:
      if (!kill_) kill_ = now + plan_.grace;
      return ask_to_stop(SIGTERM);
    case RoundEvent::Kind::killed:
      kill_ = now;
      return;
    case RoundEvent::Kind::lost_leader:
      has_lost_leader_ = true;
      [[fallthrough]];
    case RoundEvent::Kind::ends:
      terminate_ = now;
  }
}

inline void LocalRanks::notice_ends() {
  const auto now = Clock::now();
  std::vector<ProcessEntry> table;
  const auto group_lives = [&](pid_t group) {
    if (table.empty()) table = process_table();
    return has_living_process(table, group);
  };
  for (auto& rank : ranks_) {
    const bool has_just_ended = rank.poll_exit(now, group_lives);
    const auto by = rank.lingers();
    if (by && *by != SIGUSR1 && *by != SIGUSR2 && !terminate_ && !kill_) terminate_ = now + plan_.grace;
    if (!has_just_ended || rank.exit()->code == 0 || kill_) continue;
    // Ranks that stop by a signal save together: the other ranks end too, but perhaps later than kPeerGrace.
    const bool stopped = rank.exit()->code == static_cast<int>(Errc::stopped) || obeyed(*rank.exit());
    if (explains_itself(*rank.exit()))
      terminate_ = now;
    else if (!terminate_)
      terminate_ = now + (stopped ? plan_.grace : kPeerGrace);
  }
  if (terminate_ == now) keep_deadlines();  // also if no rank of this machine is left, since it tells the other nodes
}

inline void LocalRanks::keep_deadlines() {
  const auto passed = [](std::optional<Clock::time_point>& deadline) {
    if (!deadline || Clock::now() < *deadline) return false;
    deadline.reset();
    return true;
  };
  if (passed(kill_)) {
    for (auto& rank : ranks_) rank.end(SIGKILL);
    terminate_.reset();
  } else if (passed(terminate_)) {
    if (ask_for_call_stacks()) {
      terminate_ = Clock::now() + kStackTime;
      // The store of another agent may not answer for a while: the ranks of this machine are ended first.
      if (link_.store().serves()) link_.tell_end();
      return;
    }
    for (auto& rank : ranks_) rank.end(SIGTERM);
    kill_ = Clock::now() + plan_.grace;
    link_.tell_end();
  }
}

/// If ranks have ended because they lost a peer, and none has ended by itself, a rank that still runs may hang: asks
/// each of those once to write its call stack. Returns true if one was asked.
inline bool LocalRanks::ask_for_call_stacks() {
  const auto has_lost_peers = [](const RankProcess& rank) { return rank.exit() && lost_its_peers(*rank.exit()); };
  const auto is_the_cause = [](const RankProcess& rank) { return rank.exit() && explains_itself(*rank.exit()); };
  if (has_asked_for_stacks_ || std::none_of(ranks_.begin(), ranks_.end(), has_lost_peers) ||
      std::any_of(ranks_.begin(), ranks_.end(), is_the_cause))
    return false;
  for (const auto& rank : ranks_)
    if (rank.ask_for_call_stack()) has_asked_for_stacks_ = true;
  return has_asked_for_stacks_;
}

}  // namespace ddpxx::detail
