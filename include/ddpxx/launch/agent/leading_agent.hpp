// ddpxx/launch/agent/leading_agent.hpp — the agent that serves the store leads the run: it alone decides whether and
// with which nodes the next round starts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/waiting_line.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/number_list.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/agent_link.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/roster.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/round_watch.hpp>
#include <ddpxx/launch/agent/run_rule.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// Leads a run; on one machine there are no other agents.
class LeadingAgent {
 public:
  explicit LeadingAgent(AgentLink& link) : link_{link}, rule_{link.plan()} {
    if (link.has_others()) roster_.emplace(link.agents(), link.plan());
  }

  /// Takes how the last round has ended here (null: there was none yet) and on the other nodes, decides what follows,
  /// and tells the other agents.
  /// Errors  `peer` if agents do not come or disagree about the run.
  Next next(const NodeResult* last);

  /// Tells the other agents that the run has ended because of an error of this one.
  void give_up(const Error& error) {
    link_.tell_end();
    // The other agents read the end of the run when their ranks have ended.
    if (roster_ && roster_->all().size() > 1)
      link_.console().say("this agent cannot go on, and waits until the ranks of the other nodes have ended");
    finish({.code = static_cast<int>(error.code()), .failure = error.what()}, time_of_ranks());
  }

 private:
  using Clock = AgentLink::Clock;

  /// How often an agent that waits between two rounds looks for lost agents, and for signals to the others.
  static constexpr std::chrono::seconds kLookEvery{1};

  std::optional<RunEnd> gather();
  std::optional<RunEnd> wait_for_enough();
  std::vector<NodeResult> collect(const NodeResult& own);
  std::string without_result();
  bool pause(std::chrono::milliseconds time);
  Next start(std::string because);
  RunEnd finish(RunEnd end, std::chrono::milliseconds patience = std::chrono::seconds{10});
  /// The time in which all agents tell the results of ranks that have to end.
  std::chrono::milliseconds time_of_ranks() const {
    return roster_ ? roster_->longest_grace() + AgentLink::kBeyondGrace : std::chrono::milliseconds{0};
  }

  AgentLink& link_;
  RunRule rule_;
  std::optional<Roster> roster_;  // none on one machine
};

inline Next LeadingAgent::next(const NodeResult* last) {
  if (!last) {
    if (auto end = gather()) return finish(std::move(*end));
    return start({});
  }
  const auto results = collect(*last);
  if (link_.console().is_urgent()) return finish(link_.end_by_request());
  auto step = rule_.after(results, link_.console().request(), link_.grows());
  if (auto* end = std::get_if<RunEnd>(&step)) return finish(std::move(*end));
  const auto& restart = std::get<Restart>(step);
  link_.console().say(restart.because);
  if (pause(restart.pause)) {
    if (auto end = wait_for_enough()) return finish(std::move(*end));
    return start(restart.because);
  }
  link_.console().say("ended by " + signal_name(*link_.console().request()) + " before the restart");
  return finish(link_.end_by_request());
}

/// Waits before a restart; false if a signal asks an agent to end the run meanwhile.
inline bool LeadingAgent::pause(std::chrono::milliseconds time) {
  for (const auto until = Clock::now() + time; !link_.console().request(); link_.wait_once(-1, until))
    if (Clock::now() >= until) return true;
  return false;
}

/// Waits for the agents of the first round: for all, but no longer than the last call once there are enough. Returns
/// the end of the run if a signal asks for it.
inline std::optional<RunEnd> LeadingAgent::gather() {
  if (!roster_) return std::nullopt;
  const bool by_arrival = link_.plan().node_numbers == NodeNumbers::by_arrival;
  const auto deadline = Clock::now() + link_.plan().join_timeout;
  std::optional<Clock::time_point> last_call;
  WaitingLine line;
  while (true) {
    link_.agents().remove(AgentsStore::key("gone"));  // before the update: an agent that ends later sets it again
    roster_->update(/*has_begun=*/false);
    if (const auto lost = roster_->lost(); !by_arrival && !lost.empty())
      throw Error{Errc::peer, "node " + number_list(lost) + " came to " + link_.store().url() +
                                  " and ended before all had come; its own message says more"};
    const int count = static_cast<int>(roster_->living().size());
    const auto now = Clock::now();
    if (count < link_.plan().min_nodes)
      last_call.reset();
    else if (!last_call)
      last_call = now + link_.plan().last_call;
    if (count >= link_.plan().num_nodes || (last_call && now >= *last_call)) return std::nullopt;

    const auto awaited = roster_->awaited((last_call ? link_.plan().num_nodes : link_.plan().min_nodes) - count);
    auto missing = awaited;  // as numbers of nodes
    if (by_arrival)
      for (std::size_t i = 0; i < missing.size(); ++i) missing[i] = count + static_cast<int>(i);
    if (!last_call && now >= deadline)
      throw Error{Errc::peer, "node " + number_list(missing) + " never came to " + link_.store().url() + " within " +
                                  std::to_string(link_.plan().join_timeout.count() / 1000) + " s"};
    if (line.take())
      link_.console().say("waiting for node " + number_list(missing) + " to come to " + link_.store().url() + " (" +
                          line.time_of(last_call ? link_.plan().last_call : link_.plan().join_timeout) + ')');
    std::vector<std::string> keys;
    for (const int agent : awaited) keys.push_back(AgentsStore::key("agent", agent));
    StoreWait wait{link_.agents().connection(), keys, AgentsStore::key("gone")};
    const auto until = std::min(line.due(), last_call ? *last_call : deadline);
    while (!wait.is_over() && Clock::now() < until) {
      link_.wait_once(wait.descriptor(), until);
      if (link_.console().request()) return link_.end_by_request();
    }
  }
}

/// Waits between two rounds until enough agents are there, for `join_timeout` at most. Returns the end of the run if a
/// signal asks for it, if none comes in time, and where the number of nodes is fixed, so that no other one can come.
inline std::optional<RunEnd> LeadingAgent::wait_for_enough() {
  if (!roster_) return std::nullopt;
  const auto& plan = link_.plan();
  const auto deadline = Clock::now() + plan.join_timeout;
  std::optional<StoreWait> wait;
  int awaited = 0;  // the agent whose number `wait` waits for
  for (WaitingLine line{std::chrono::milliseconds{0}};;) {
    roster_->update(/*has_begun=*/true);
    const auto count = static_cast<int>(roster_->living().size());
    if (count >= plan.min_nodes) return std::nullopt;
    const auto too_few = rule_.too_few(count, "there");
    if (plan.min_nodes == plan.num_nodes)
      return rule_.end_without_nodes("a node was lost between two rounds: " + too_few);
    if (const auto signal = RoundWatch::told_signal(link_.agents(), link_.round().number))
      link_.console().hear_from_others(*signal);
    if (link_.console().request()) return link_.end_by_request();
    if (Clock::now() >= deadline)
      return rule_.end_without_nodes(
          too_few + ": too few came to " + link_.store().url() + " within " +
          std::to_string(plan.join_timeout.count() / 1000) +
          " s (--rdzv-conf join_timeout). Start ddpxx-run on more machines, or the run with a smaller --nnodes");
    if (line.take()) {
      link_.agents().set(AgentsStore::key("waits", link_.round().number), "");
      const int missing = plan.min_nodes - count;
      link_.console().say("waiting for " +
                          (missing == 1 ? std::string{"another node"} : std::to_string(missing) + " nodes") +
                          " to come to " + link_.store().url() + " (" + line.time_of(plan.join_timeout) + ')');
    }
    if (const auto next = roster_->awaited(1).front(); !wait || next != awaited) {
      awaited = next;
      wait.emplace(link_.agents().connection(), std::vector{AgentsStore::key("agent", awaited)});
    }
    const auto until = std::min({line.due(), deadline, Clock::now() + kLookEvery});
    while (!wait->is_over() && !link_.console().request() && Clock::now() < until)
      link_.wait_once(wait->descriptor(), until);
  }
}

/// Starts the next round with the agents that are there: makes its store and tells the other agents.
inline Next LeadingAgent::start(std::string because) {
  Round round{.number = link_.round().number + 1, .restart = rule_.restart(), .because = std::move(because)};
  round.token = make_secret();
  if (roster_) {
    round.agents = roster_->living();
    const auto max_nodes = static_cast<std::size_t>(link_.plan().num_nodes);
    if (round.agents.size() > max_nodes) round.agents.resize(max_nodes);
    // --master-port is the port of the store, so rank 0 of a Python program needs another one for its own store.
    const std::uint16_t port = link_.plan().master_port.value();
    round.master_port = free_port(port < 65535 ? static_cast<std::uint16_t>(port + 1) : std::uint16_t{0});
  } else if (auto given = environment("DDPXX_TOKEN"); given && !given->empty()) {
    round.token = *given;
  }
  link_.store().open_round(round.token);
  if (link_.has_others())
    link_.agents().set({AgentsStore::key("plan", round.number), AgentsStore::key("round")},
                       {to_text(round), std::to_string(round.number)});
  link_.begin(round);
  return round;
}

/// The other nodes of the round whose ranks have not ended: "node 1 (host)".
inline std::string LeadingAgent::without_result() {
  std::string nodes;
  for (std::size_t node = 0; node < link_.round().agents.size(); ++node) {
    const int agent = link_.round().agents[node];
    if (agent == link_.agent() || link_.agents().get(AgentsStore::key("result", link_.round().number, agent))) continue;
    nodes += (nodes.empty() ? "node " : ", node ") + std::to_string(node) + " (" + roster_->host_of(agent) + ')';
  }
  return nodes;
}

/// Waits for the results of all nodes. An agent that has not answered long after its ranks were told to stop or to end
/// counts as lost.
inline std::vector<NodeResult> LeadingAgent::collect(const NodeResult& own) {
  if (link_.round().agents.size() == 1) return {own};
  std::vector<std::string> keys;
  for (const int agent : link_.round().agents)
    if (agent != link_.agent()) keys.push_back(AgentsStore::key("result", link_.round().number, agent));
  StoreWait wait{link_.agents().connection(), keys};
  std::optional<Clock::time_point> until;
  for (WaitingLine line; !wait.is_over() && !link_.console().is_urgent() && (!until || Clock::now() < *until);) {
    if (!until && (link_.ends() || link_.grows() || link_.console().request())) until = Clock::now() + time_of_ranks();
    link_.wait_once(wait.descriptor(), std::min(line.due(), until.value_or(AgentLink::never())));
    if (!wait.is_over() && line.take())
      link_.console().say("the ranks of this node have ended; waiting for those of " + without_result());
  }
  link_.note_events();  // those that came after the last result
  std::vector<NodeResult> results;
  for (const int agent : link_.round().agents) {
    if (agent == link_.agent()) {
      results.push_back(own);
      continue;
    }
    const auto text = link_.agents().get(AgentsStore::key("result", link_.round().number, agent));
    const bool was_told = text && *text != AgentsStore::kLost;
    auto result = was_told ? parse_node_result(*text) : NodeResult{};
    // An agent may have ended after it had told that a rank had failed, and that has ended the round of the others.
    // After a second SIGINT an agent ends so on purpose.
    const bool has_left =
        link_.ends() && !link_.was_killed() && !result.asked && link_.agents().get(AgentsStore::key("lost", agent));
    if (!was_told || has_left) {
      roster_->note_loss(agent);
      result = {.host = roster_->host_of(agent), .is_lost = true};
    }
    results.push_back(std::move(result));
  }
  return results;
}

/// Tells the other agents the end of the run, and waits until they have read it, since the store ends with this agent.
inline RunEnd LeadingAgent::finish(RunEnd end, std::chrono::milliseconds patience) {
  if (!roster_) return end;
  link_.agents().set(AgentsStore::key("plan", link_.round().number + 1), to_text(end));
  roster_->update(/*has_begun=*/true);
  std::vector<std::string> readers;  // the keys of agents that have ended are set
  for (const int agent : roster_->all())
    if (agent != link_.agent()) readers.push_back(AgentsStore::key("read", agent));
  if (readers.empty()) return end;
  StoreWait wait{link_.agents().connection(), readers};
  for (const auto until = Clock::now() + patience;
       !wait.is_over() && Clock::now() < until && !link_.console().is_urgent();)
    link_.console().wait({wait.descriptor()}, until);
  return end;
}

}  // namespace ddpxx::detail
