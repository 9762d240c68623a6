// ddpxx/launch/agent/agent_group.hpp — the agents of a run agree on its rounds, through the store that one of them
// serves. That agent leads: it alone decides whether and with which nodes the next round starts.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/agent/node_facts.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/roster.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/round_watch.hpp>
#include <ddpxx/launch/agent/run_rule.hpp>
#include <ddpxx/launch/agent/run_store.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// An agent's part in a run. On one machine it decides alone and uses no keys of the agents' store.
class AgentGroup {
 public:
  /// Opens the store, as `RunStore` does, and comes to the other agents.
  /// Errors  those of `RunStore`; `peer` if another agent has the number of this node.
  AgentGroup(const LaunchPlan& plan, const std::string& run_id, Console& console);

  /// The number of this agent, which stays during the run.
  int agent() const noexcept { return agent_; }

  /// Tells how the last round has ended here (null: there was none yet), and waits for what follows.
  /// Ranks   Collective over the agents of the round.
  /// Errors  `peer` if agents do not come or disagree about the run, or the agent that serves the store has ended.
  Next next(const NodeResult* last);

  /// Writes the address and the credentials of the ranks' store into `launch`.
  void describe_to(Launch& launch) const {
    launch.store_host = StoreHost::ddpxx_run;
    launch.store = store_.address();
    launch.token = round_.token;
  }

  /// Descriptor that is readable if an event of the round may have come; -1 if none can come.
  int descriptor() const noexcept { return watch_ ? watch_->descriptor() : -1; }
  std::optional<RoundEvent> next_event() { return watch_ ? watch_->next_event() : std::nullopt; }
  /// Ends the ranks of all nodes at once.
  void tell_end() {
    if (watch_) watch_->tell_end();
  }
  /// Passes on a signal that asks the run to end.
  void tell_signal(int number) {
    if (watch_) watch_->tell_signal(number);
  }
  /// Ends the run because of an error of this agent. The other agents end with its code if it leads the run; otherwise
  /// its node is lost.
  void give_up(const Error& error);
  /// The error of an agent that has lost its connection to the agent that serves the store.
  Error leader_loss() const {
    return Error{Errc::peer, "the launcher of node 0, which serves the meeting at " + store_.url() +
                                 ", has ended or cannot be reached; its own message says more. Start all nodes again"};
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The time after `grace` in which an agent that has to end its ranks tells their result.
  static constexpr std::chrono::seconds kBeyondGrace{20};

  // What every agent does.
  void come();
  void begin(const Round& round);
  /// Waits until `descriptor` (-1: none) is readable, something else happens, or `until`. Passes signals on to the
  /// other agents of the round, and notes theirs.
  void wait_once(int descriptor, Clock::time_point until);
  static Clock::time_point never() { return Clock::now() + std::chrono::hours{100'000}; }
  RunEnd end_by_request() const {
    return {.code = 128 + console_.request()->signal, .asked = console_.request()->signal};
  }

  // What only the agent that leads does.
  Next lead(const NodeResult* last);
  std::optional<RunEnd> gather();
  std::vector<NodeResult> collect(const NodeResult& own);
  bool pause(std::chrono::milliseconds time);
  Next start(std::string because);
  RunEnd finish(RunEnd end);

  // What the other agents do.
  Next follow(const NodeResult* last);
  Next wait_for_plan(int number, Clock::time_point until, const std::string& reason);

  const LaunchPlan& plan_;
  Console& console_;
  RunStore store_;
  std::optional<AgentsStore> agents_;  // none on one machine
  int agent_ = 0;
  Round round_{.number = -1, .agents = {}};
  std::optional<RoundWatch> watch_;
  std::optional<Clock::time_point> tell_end_at_;  // when to tell the other nodes of a failure here
  RunRule rule_{plan_};
  std::optional<Roster> roster_;  // only in the agent that leads several machines
};

inline AgentGroup::AgentGroup(const LaunchPlan& plan, const std::string& run_id, Console& console)
    : plan_{plan}, console_{console}, store_{plan, run_id, [&console](const std::string& line) {
                                               console.say(line);
                                               console.output().write_some();
                                             }} {
  if (!store_.connection()) return;
  agents_.emplace(*store_.connection());
  if (store_.serves()) roster_.emplace(*agents_, plan_);
  come();
}

/// Takes a number: that of the node, or the first that no agent has had. The agent that leads has number 0.
inline void AgentGroup::come() {
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  const auto facts = NodeFacts::of_this_node(plan_).text(make_secret());
  agent_ = by_arrival ? (store_.serves() ? 0 : 1) : plan_.node_rank;
  while (agents_->claim(AgentsStore::key("agent", agent_), facts) != facts) {
    if (!by_arrival)
      throw Error{Errc::peer, "two processes came to " + store_.url() + " as node " + std::to_string(agent_) +
                                  ": each needs a number of its own"};
    ++agent_;
  }
}

inline Next AgentGroup::next(const NodeResult* last) {
  // A failure that may have its cause on another node is told when the time to find that cause is over.
  if (last && !last->asked && !std::ranges::all_of(last->exits, is_well)) tell_end_at_ = Clock::now() + kPeerGrace;
  if (store_.serves()) {
    try {
      return lead(last);
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
  }
  try {
    return follow(last);
  } catch (const Error&) {
    try {
      agents_->get(AgentsStore::key("round"));
    } catch (const Error&) {
      throw leader_loss();
    }
    throw;
  }
}

inline void AgentGroup::give_up(const Error& error) {
  if (!store_.serves()) return;
  tell_end();
  finish({.code = static_cast<int>(error.code()), .failure = error.what()});
}

inline void AgentGroup::begin(const Round& round) {
  round_ = round;
  tell_end_at_.reset();
  watch_.reset();
  if (!agents_) return;
  if (!store_.serves()) agents_->leave_will(agent_, round.number, /*takes_part=*/true);
  watch_.emplace(*agents_, round.number);
  if (console_.request()) tell_signal(console_.request()->signal);
}

inline void AgentGroup::wait_once(int descriptor, Clock::time_point until) {
  const bool was_asked = console_.request().has_value();
  console_.wait({descriptor, this->descriptor()}, std::min(until, tell_end_at_.value_or(until)));
  if (tell_end_at_ && Clock::now() >= *tell_end_at_) {
    tell_end_at_.reset();
    tell_end();
  }
  // An early warning is not passed on: the ranks of other nodes get their own.
  if (const auto request = console_.request(); !was_asked && request && asks_for_end(plan_, request->signal))
    tell_signal(request->signal);
  while (const auto event = next_event())
    if (event->kind == RoundEvent::Kind::signal) console_.note_request(event->signal);
}

inline Next AgentGroup::lead(const NodeResult* last) {
  if (!last) {
    if (auto end = gather()) return finish(std::move(*end));
    return start({});
  }
  const auto results = collect(*last);
  if (console_.is_urgent()) return finish(end_by_request());
  const auto signal = console_.request() ? std::optional{console_.request()->signal} : std::nullopt;
  auto step = rule_.after(results, signal, watch_ && watch_->grows());
  if (auto* end = std::get_if<RunEnd>(&step)) return finish(std::move(*end));
  const auto& restart = std::get<Restart>(step);
  console_.say(restart.because);
  if (pause(restart.pause)) return start(restart.because);
  console_.say("ended by " + signal_name(console_.request()->signal) + " before the restart");
  return finish(end_by_request());
}

/// Waits before a restart; false if a signal asks an agent to end the run meanwhile.
inline bool AgentGroup::pause(std::chrono::milliseconds time) {
  for (const auto until = Clock::now() + time; !console_.request(); wait_once(-1, until))
    if (Clock::now() >= until) return true;
  return false;
}

/// Waits for the agents of the first round: for all, but no longer than the last call once there are enough. Returns
/// the end of the run if a signal asks for it.
inline std::optional<RunEnd> AgentGroup::gather() {
  if (!roster_) return std::nullopt;
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  const auto deadline = Clock::now() + plan_.join_timeout;
  std::optional<Clock::time_point> last_call;
  WaitingLine line;
  while (true) {
    agents_->remove(AgentsStore::key("gone"));  // before the update: an agent that ends later sets it again
    roster_->update(/*has_begun=*/false);
    if (const auto lost = roster_->lost(); !by_arrival && !lost.empty())
      throw Error{Errc::peer, "node " + number_list(lost) + " came to " + store_.url() +
                                  " and ended before all had come; its own message says more"};
    const int count = static_cast<int>(roster_->living().size());
    const auto now = Clock::now();
    if (count < plan_.min_nodes)
      last_call.reset();
    else if (!last_call)
      last_call = now + plan_.last_call;
    if (count >= plan_.num_nodes || (last_call && now >= *last_call)) return std::nullopt;

    const auto awaited = roster_->awaited((last_call ? plan_.num_nodes : plan_.min_nodes) - count);
    auto missing = awaited;  // as numbers of nodes
    if (by_arrival)
      for (std::size_t i = 0; i < missing.size(); ++i) missing[i] = count + static_cast<int>(i);
    if (!last_call && now >= deadline)
      throw Error{Errc::peer, "node " + number_list(missing) + " never came to " + store_.url() + " within " +
                                  std::to_string(plan_.join_timeout.count() / 1000) + " s"};
    if (line.take())
      console_.say("waiting for node " + number_list(missing) + " to come to " + store_.url() + " (" +
                   line.time_of(last_call ? plan_.last_call : plan_.join_timeout) + ')');
    std::vector<std::string> keys;
    for (const int agent : awaited) keys.push_back(AgentsStore::key("agent", agent));
    StoreWait wait{agents_->connection(), keys, AgentsStore::key("gone")};
    const auto until = std::min(line.due(), last_call.value_or(deadline));
    while (!wait.is_over() && Clock::now() < until) {
      wait_once(wait.descriptor(), until);
      if (console_.request()) return end_by_request();
    }
  }
}

/// Starts the next round with the agents that are there: makes its store and tells the other agents.
inline Next AgentGroup::start(std::string because) {
  Round round{.number = round_.number + 1, .restart = rule_.restart(), .because = std::move(because)};
  round.token = make_secret();
  if (roster_) {
    // An agent of the last round that has ended since has set the key that ends this round, in which it does not take
    // part. One that ends after this loop does take part.
    for (auto before = roster_->living();; before = round.agents) {
      agents_->remove(AgentsStore::key("end", round.number));
      roster_->update(round.number > 0);
      round.agents = roster_->living();
      if (round.agents == before) break;
    }
    const auto count = static_cast<int>(round.agents.size());
    if (count < plan_.min_nodes)
      return finish({.code = static_cast<int>(Errc::peer),
                     .failure = "a node was lost between two rounds; " + std::to_string(count) +
                                " are left, and --nnodes asks for at least " + std::to_string(plan_.min_nodes)});
    if (count > plan_.num_nodes) round.agents.resize(static_cast<std::size_t>(plan_.num_nodes));
    // --master-port is the port of the store, so rank 0 of a Python program needs another one for its own store.
    const std::uint16_t port = plan_.master_port.value();
    round.master_port = free_port(port < 65535 ? static_cast<std::uint16_t>(port + 1) : std::uint16_t{0});
  } else if (auto given = environment("DDPXX_TOKEN"); given && !given->empty()) {
    round.token = *given;
  }
  store_.open_round(round.token);
  if (agents_)
    agents_->set({AgentsStore::key("plan", round.number), AgentsStore::key("round")},
                 {to_text(round), std::to_string(round.number)});
  begin(round);
  return round;
}

/// Waits for the results of all nodes. An agent that has not answered long after its ranks were told to stop or to end
/// counts as lost.
inline std::vector<NodeResult> AgentGroup::collect(const NodeResult& own) {
  if (round_.agents.size() == 1) return {own};
  std::vector<std::string> keys;
  for (const int agent : round_.agents)
    if (agent != agent_) keys.push_back(AgentsStore::key("result", round_.number, agent));
  StoreWait wait{agents_->connection(), keys};
  std::optional<Clock::time_point> until;
  while (!wait.is_over() && !console_.is_urgent() && (!until || Clock::now() < *until)) {
    if (!until && (watch_->ends() || watch_->grows() || console_.request()))
      until = Clock::now() + plan_.grace + kBeyondGrace;
    wait_once(wait.descriptor(), until.value_or(never()));
  }
  std::vector<NodeResult> results;
  for (const int agent : round_.agents) {
    if (agent == agent_) {
      results.push_back(own);
      continue;
    }
    const auto text = agents_->get(AgentsStore::key("result", round_.number, agent));
    // An agent may have ended shortly after it had told its result, and that has ended the round of the others.
    const bool is_lost =
        !text || *text == AgentsStore::kLost || (watch_->ends() && agents_->get(AgentsStore::key("lost", agent)));
    if (is_lost) roster_->note_loss(agent);
    results.push_back(is_lost ? NodeResult{.host = roster_->host_of(agent), .is_lost = true}
                              : parse_node_result(*text));
  }
  return results;
}

/// Tells the other agents the end of the run, and waits until they have read it, since the store ends with this agent.
inline RunEnd AgentGroup::finish(RunEnd end) {
  constexpr std::chrono::seconds kPatience{10};
  if (!roster_) return end;
  agents_->set(AgentsStore::key("plan", round_.number + 1), to_text(end));
  roster_->update(/*has_begun=*/true);
  std::vector<std::string> readers;  // the keys of agents that have ended are set
  for (const int agent : roster_->all())
    if (agent != agent_) readers.push_back(AgentsStore::key("read", agent));
  if (readers.empty()) return end;
  StoreWait wait{agents_->connection(), readers};
  for (const auto until = Clock::now() + kPatience; !wait.is_over() && Clock::now() < until && !console_.is_urgent();)
    console_.wait({wait.descriptor()}, until);
  return end;
}

inline Next AgentGroup::follow(const NodeResult* last) {
  if (last) {
    agents_->set(AgentsStore::key("result", round_.number, agent_), to_text(*last));
    auto next = wait_for_plan(round_.number + 1, never(), {});
    if (const auto* round = std::get_if<Round>(&next)) {
      if (!round->node_of(agent_)) {
        agents_->leave_will(agent_, round->number, /*takes_part=*/false);
        throw Error{Errc::peer, "the other nodes go on without this one, which did not answer in time"};
      }
      console_.say(round->because);
      begin(*round);
    }
    return next;
  }
  // The leader's time for the meeting may have begun later than that of this agent.
  const auto until = Clock::now() + plan_.join_timeout + plan_.last_call + kBeyondGrace;
  const bool is_fixed = plan_.min_nodes == plan_.num_nodes;
  int number = std::atoi(agents_->get(AgentsStore::key("round")).value_or("0").c_str());
  for (std::string reason;; ++number) {
    auto next = wait_for_plan(number, until, reason);
    const auto* round = std::get_if<Round>(&next);
    if (!round) return next;
    if (round->node_of(agent_)) {
      begin(*round);
      return next;
    }
    const bool is_full = static_cast<int>(round->agents.size()) == plan_.num_nodes;
    if (is_full && is_fixed)
      throw Error{Errc::peer, "all " + std::to_string(plan_.num_nodes) + " nodes of the run have come to " +
                                  store_.url() +
                                  " before this one: start it on --nnodes machines, or give this run another "
                                  "--rdzv-id"};
    reason = is_full ? "the run has all of its " + std::to_string(plan_.num_nodes) + " nodes; waiting until one is lost"
                     : "waiting until the ranks of the run have stopped";
    console_.say(reason);
    if (!is_full) RoundWatch::tell_arrival(*agents_, number);
  }
}

inline Next AgentGroup::wait_for_plan(int number, Clock::time_point until, const std::string& reason) {
  const bool is_member = round_.number >= 0;
  // An agent of the last round takes part in the next one, unless it is lost before.
  agents_->leave_will(agent_, number, is_member);
  StoreWait wait{agents_->connection(), {AgentsStore::key("plan", number)}, AgentsStore::key("refused", agent_)};
  for (WaitingLine line; !wait.is_over();) {
    wait_once(wait.descriptor(), std::min(until, line.due()));
    if (console_.is_urgent() || (console_.request() && !is_member)) return end_by_request();
    if (Clock::now() >= until)
      throw Error{Errc::peer, reason.empty() ? "the agent of node 0 at " + store_.url() + " does not start the run"
                                             : reason + " took too long (--rdzv-conf join_timeout)"};
    if (line.take() && !reason.empty()) console_.say(reason);
  }
  if (const auto refusal = wait.interruption()) throw Error{Errc::peer, *refusal};
  auto next = parse_next(agents_->get(AgentsStore::key("plan", number)).value_or(""));
  if (std::holds_alternative<RunEnd>(next)) agents_->set(AgentsStore::key("read", agent_), "");
  return next;
}

}  // namespace ddpxx::detail
