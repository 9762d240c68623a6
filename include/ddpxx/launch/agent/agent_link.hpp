// ddpxx/launch/agent/agent_link.hpp — what every agent of a run has: its number, the store, and the events of a round.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <ddpxx/comm/secret.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/node_facts.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/round_watch.hpp>
#include <ddpxx/launch/agent/run_store.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// An agent's connection to the other agents of its run. On one machine there are none, and no keys are used.
class AgentLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// The time after `grace` in which an agent that has to end its ranks tells their result.
  static constexpr std::chrono::seconds kBeyondGrace{20};

  /// Opens the store, as `RunStore` does, and comes to the other agents.
  /// Errors  those of `RunStore`; `peer` if another agent has the number of this node.
  AgentLink(const LaunchPlan& plan, const std::string& run_id, Console& console);

  const LaunchPlan& plan() const noexcept { return plan_; }
  Console& console() noexcept { return console_; }
  RunStore& store() noexcept { return store_; }
  /// Whether the run may have other machines; `agents` is for these runs only.
  bool has_others() const noexcept { return agents_.has_value(); }
  AgentsStore& agents() { return *agents_; }
  /// The number of this agent, which stays during the run.
  int agent() const noexcept { return agent_; }
  /// The round that has begun last; before the first one its number is -1.
  const Round& round() const noexcept { return round_; }
  /// When the round has begun here: soon after the leading agent has told all agents of it.
  Clock::time_point begun() const noexcept { return begun_; }

  /// Writes the address and the credentials of the ranks' store into `launch`.
  void describe_to(Launch& launch) const {
    launch.store_host = StoreHost::ddpxx_run;
    launch.store = store_.address();
    launch.token = round_.token;
  }

  /// Begins a round, and watches what happens on the other nodes.
  void begin(const Round& round);

  /// Descriptors that are readable if an event of the round may have come; -1: none.
  std::array<int, 2> descriptors() const noexcept { return watch_ ? watch_->descriptors() : std::array{-1, -1}; }
  std::optional<RoundEvent> next_event() { return watch_ ? watch_->next_event() : std::nullopt; }
  /// Whether another node has come since the round began.
  bool grows() const noexcept { return watch_ && watch_->grows(); }
  /// Whether the ranks of all nodes were told to end at once.
  bool ends() const noexcept { return watch_ && watch_->ends(); }
  /// Ends the ranks of all nodes at once.
  void tell_end() {
    if (watch_) watch_->tell_end();
  }
  /// Whether an agent has heard a second SIGINT, after which the ranks of all nodes are killed.
  bool was_killed() const noexcept { return watch_ && watch_->was_killed(); }
  /// Kills the ranks of all nodes.
  void tell_kill() {
    if (watch_) watch_->tell_kill();
  }
  /// Ends the ranks of the other nodes after a time in which the cause of a failure here may show there, or ranks that
  /// were asked to stop may save.
  void tell_end_after(std::chrono::milliseconds time) { tell_end_at_ = Clock::now() + time; }
  /// Passes on a signal that asks the run to end.
  void tell_signal(int number) {
    if (watch_) watch_->tell_signal(number);
  }

  /// Notes the events that have come, while no rank runs on this node.
  void note_events() {
    while (const auto event = next_event())
      if (event->kind == RoundEvent::Kind::signal) console_.hear_from_others(event->signal);
  }
  /// Waits until `descriptor` (-1: none) is readable, something else happens, or `until`. Passes signals on to the
  /// other agents of the round, and notes theirs.
  void wait_once(int descriptor, Clock::time_point until);
  static Clock::time_point never() { return Clock::now() + std::chrono::hours{100'000}; }

  /// The end of a run that a signal has asked for: one to this agent, or a SIGINT to another one.
  RunEnd end_by_request() const {
    const int signal = console_.request().value_or(SIGINT);
    return {.code = 128 + signal, .asked = signal};
  }
  /// The error of an agent that has lost its connection to the agent that serves the store.
  Error leader_loss() const {
    return Error{Errc::peer, "the launcher of node 0, which serves the meeting at " + store_.url() +
                                 ", has ended or cannot be reached; its own message says more. Start all nodes again"};
  }

 private:
  void come();

  const LaunchPlan& plan_;
  Console& console_;
  RunStore store_;
  std::optional<AgentsStore> agents_;  // none on one machine
  int agent_ = 0;
  Round round_{.number = -1, .agents = {}};
  Clock::time_point begun_;
  std::optional<RoundWatch> watch_;
  std::optional<Clock::time_point> tell_end_at_;  // when to tell the other nodes of a failure here
};

inline AgentLink::AgentLink(const LaunchPlan& plan, const std::string& run_id, Console& console)
    : plan_{plan}, console_{console}, store_{plan, run_id, [&console](const std::string& line) {
                                               console.say(line);
                                               console.write_if_ready();
                                             }} {
  if (!store_.connection()) return;
  agents_.emplace(*store_.connection());
  come();
}

/// Takes a number: that of the node, or the first that no agent has had. The agent that leads has number 0.
inline void AgentLink::come() {
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  const auto facts = NodeFacts::of_this_node(plan_).text(make_secret());
  agent_ = by_arrival ? (store_.serves() ? 0 : 1) : plan_.node_rank;
  while (!agents_->take_number(agent_, facts)) {
    if (!by_arrival)
      throw Error{Errc::peer, "two launchers connected to " + store_.url() + " as node " + std::to_string(agent_) +
                                  ": give each launcher its own --node-rank"};
    ++agent_;
  }
  failpoint("agent.after_number");
}

inline void AgentLink::begin(const Round& round) {
  begun_ = Clock::now();
  round_ = round;
  tell_end_at_.reset();
  watch_.reset();
  if (!agents_) return;
  watch_.emplace(*agents_, round.number, store_.serves() ? round.agents : std::vector<int>{});
  if (console_.request()) tell_signal(*console_.request());
}

inline void AgentLink::wait_once(int descriptor, Clock::time_point until) {
  const auto request_before = console_.request();
  const auto [event, loss] = descriptors();
  console_.wait({descriptor, event, loss}, std::min(until, tell_end_at_.value_or(until)));
  if (tell_end_at_ && Clock::now() >= *tell_end_at_) {
    tell_end_at_.reset();
    tell_end();
  }
  if (const auto request = console_.request(); request && request != request_before) tell_signal(*request);
  if (console_.is_urgent()) tell_kill();
  note_events();
}

}  // namespace ddpxx::detail
