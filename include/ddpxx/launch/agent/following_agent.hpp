// ddpxx/launch/agent/following_agent.hpp — an agent that does what the leading agent has decided.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <ddpxx/comm/waiting_line.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/launch/agent/agent_link.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/node_facts.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/round_watch.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>

namespace ddpxx::detail {

/// Takes part in a run that another agent leads.
class FollowingAgent {
 public:
  explicit FollowingAgent(AgentLink& link) : link_{link} {}

  /// Tells how the last round has ended here (null: there was none yet), and waits for what follows.
  /// Errors  `peer` if the run does not take this agent, or does not begin in time, or the leading agent has ended.
  Next next(const NodeResult* last);

 private:
  using Clock = AgentLink::Clock;

  Next wait_for_plan(int number, Clock::time_point until, const std::string& reason);
  void check_facts();
  std::chrono::milliseconds time_of_leader();

  AgentLink& link_;
};

inline Next FollowingAgent::next(const NodeResult* last) {
  if (last) {
    link_.agents().set(AgentsStore::key("result", link_.round().number, link_.agent()), to_text(*last));
    failpoint("agent.after_result");
    auto next = wait_for_plan(link_.round().number + 1, AgentLink::never(),
                              "waiting until node 0 starts the next round or ends the run");
    if (const auto* round = std::get_if<Round>(&next)) {
      if (!round->node_of(link_.agent()))
        throw Error{Errc::peer, "the other nodes go on without this one, which did not answer in time"};
      link_.console().say(round->because);
      link_.begin(*round);
    }
    return next;
  }
  // The leader's time for the meeting may have begun later than that of this agent.
  const auto came = Clock::now();
  auto until = came + link_.plan().join_timeout + link_.plan().last_call + AgentLink::kBeyondGrace;
  const bool is_fixed = link_.plan().min_nodes == link_.plan().num_nodes;
  const auto begun = link_.agents().get(AgentsStore::key("round"));
  int number = begun ? std::atoi(begun->c_str()) : 0;
  for (std::string reason;; ++number) {
    auto next = wait_for_plan(number, until, reason);
    const auto* round = std::get_if<Round>(&next);
    if (!round) return next;
    if (round->node_of(link_.agent())) {
      link_.begin(*round);
      return next;
    }
    if (link_.console().request()) return link_.end_by_request();
    check_facts();
    const bool is_full = static_cast<int>(round->agents.size()) == link_.plan().num_nodes;
    if (is_full && is_fixed)
      throw Error{Errc::peer, "all " + std::to_string(link_.plan().num_nodes) + " nodes of the run have come to " +
                                  link_.store().url() +
                                  " before this one: start it on --nnodes machines, or give this run another "
                                  "--rdzv-id"};
    const bool too_few = link_.agents().get(AgentsStore::key("waits", number)).has_value();
    reason = too_few   ? "too few nodes of the run are there; waiting for more"
             : is_full ? "the run has all of its " + std::to_string(link_.plan().num_nodes) +
                             " nodes; waiting until one is lost"
                       : "waiting until the ranks of the run have stopped";
    link_.console().say(reason);
    if (is_full && !too_few)
      until = came + link_.plan().join_timeout;
    else
      RoundWatch::tell_arrival(link_.agents(), number);
  }
}

/// Compares this node with that of the leading agent, before anything is asked of its run: an agent with other flags
/// must not stop the ranks.
inline void FollowingAgent::check_facts() {
  const auto leader = link_.agents().get(AgentsStore::key("agent", 0));
  if (!leader) return;
  const auto mine = NodeFacts::of_this_node(link_.plan());
  if (const auto why = mine.contradiction(link_.agent(), NodeFacts::parse(*leader), 0); !why.empty())
    throw Error{Errc::peer, why};
}

/// How long the leading agent may take to end the run after a signal: its own ranks have their time, and then those of
/// the nodes whose results it lacks.
/// Errors  `peer` if the store does not answer.
inline std::chrono::milliseconds FollowingAgent::time_of_leader() {
  auto grace = link_.plan().grace;
  for (const int agent : link_.round().agents)
    if (const auto facts = link_.agents().get(AgentsStore::key("agent", agent)))
      grace = std::max(grace, NodeFacts::parse(*facts).grace);
  return 2 * (grace + AgentLink::kBeyondGrace);
}

inline Next FollowingAgent::wait_for_plan(int number, Clock::time_point until, const std::string& reason) {
  const bool is_member = link_.round().number >= 0;
  StoreWait wait{
      link_.agents().connection(), {AgentsStore::key("plan", number)}, AgentsStore::key("refused", link_.agent())};
  std::optional<Clock::time_point> limit;  // after a request to end the run
  for (WaitingLine line; !wait.is_over();) {
    // Where the plan comes together with a signal, the other agents count on this one: it begins, and tells them.
    if (link_.console().request() && !is_member) return link_.end_by_request();
    link_.wait_once(wait.descriptor(), std::min({until, line.due(), limit.value_or(until)}));
    if (link_.console().is_urgent()) return link_.end_by_request();
    // The leading agent ends the run once the ranks of all nodes have ended, unless it hangs.
    if (link_.console().request() && !limit) limit = Clock::now() + time_of_leader();
    if (limit && Clock::now() >= *limit) throw link_.leader_loss();
    if (Clock::now() >= until)
      throw Error{Errc::peer, reason.empty()
                                  ? "the agent of node 0 at " + link_.store().url() + " does not start the run"
                                  : reason + " took too long (--rdzv-conf join_timeout)"};
    if (line.take() && !reason.empty()) link_.console().say(reason);
  }
  if (const auto refusal = wait.interruption()) throw Error{Errc::peer, *refusal};
  auto next = parse_next(link_.agents().get(AgentsStore::key("plan", number)).value_or(""));
  if (std::holds_alternative<RunEnd>(next)) link_.agents().set(AgentsStore::key("read", link_.agent()), "");
  return next;
}

}  // namespace ddpxx::detail
