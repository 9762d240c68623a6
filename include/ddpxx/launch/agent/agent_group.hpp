// ddpxx/launch/agent/agent_group.hpp — the agents of a run agree on its rounds, through the store that one of them
// serves.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/agent_link.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/following_agent.hpp>
#include <ddpxx/launch/agent/leading_agent.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// An agent's part in a run: it leads the run if it serves the store, and follows another agent otherwise.
class AgentGroup {
 public:
  /// Errors  those of `AgentLink`.
  AgentGroup(const LaunchPlan& plan, const std::string& run_id, Console& console) : link_{plan, run_id, console} {
    if (link_.store().serves())
      leader_.emplace(link_);
    else
      follower_.emplace(link_);
  }

  AgentLink& link() noexcept { return link_; }

  /// Tells how the last round has ended here (null: there was none yet), and waits for what follows.
  /// Ranks   Collective over the agents of the round.
  /// Errors  `peer` if agents do not come or disagree about the run, or the agent that serves the store has ended.
  Next next(const NodeResult* last);

  /// Ends the run because of an error of this agent. The other agents end with its code if it leads the run; otherwise
  /// its node is lost.
  void give_up(const Error& error) {
    if (leader_) leader_->give_up(error);
  }

 private:
  AgentLink link_;
  std::optional<LeadingAgent> leader_;
  std::optional<FollowingAgent> follower_;  // if this agent does not lead
};

inline Next AgentGroup::next(const NodeResult* last) {
  // A failure that may have its cause on another node is told when the time to find that cause is over. If all ranks
  // were asked to stop, those of the other nodes have --grace for it. SIGUSR1 and SIGUSR2 may have reached this node
  // only, or all of them, whose ranks then save.
  const bool all_were_asked = link_.console().request() || link_.grows();
  if (last && !all_were_asked && !std::ranges::all_of(last->exits, is_well))
    link_.tell_end_after(last->asked ? link_.plan().grace : kPeerGrace);
  if (leader_) {
    try {
      return leader_->next(last);
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
  }
  try {
    return follower_->next(last);
  } catch (const Error&) {
    try {
      link_.agents().get(AgentsStore::key("round"));
    } catch (const Error&) {
      // After a second SIGINT there, the leading agent does not wait for the others.
      if (link_.was_killed()) return link_.end_by_request();
      throw link_.leader_loss();
    }
    throw;
  }
}

}  // namespace ddpxx::detail
