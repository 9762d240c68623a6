// ddpxx/launch/agent/roster.hpp — the agents that have come to a run, as the agent that leads it knows them.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/node_facts.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// The agents by their numbers: those of the plan's nodes, or, if the nodes are numbered by their arrival, 0, 1, 2, ...
/// without a gap.
class Roster {
 public:
  Roster(AgentsStore& store, const LaunchPlan& plan) : store_{store}, plan_{plan} {}

  /// Looks for agents that have come or ended since the last call. During the run an agent with other facts is refused;
  /// before it (`has_begun` is false) that ends the run, since it is not known which facts are right.
  /// Errors  `peer` if nodes disagree before the run.
  void update(bool has_begun);

  /// The numbers of all agents that have come.
  std::vector<int> all() const {
    return numbers_of([](const Member&) { return true; });
  }
  /// The numbers of the agents that are there.
  std::vector<int> living() const {
    return numbers_of([](const Member& member) { return !member.is_lost; });
  }
  /// The numbers of the agents that have ended.
  std::vector<int> lost() const {
    return numbers_of([](const Member& member) { return member.is_lost; });
  }
  /// The numbers of the next agents that may come.
  std::vector<int> awaited(int count) const {
    std::vector<int> agents;
    for (int number = 0; static_cast<int>(agents.size()) < count; ++number)
      if (!members_.contains(number)) agents.push_back(number);
    return agents;
  }
  void note_loss(int agent) { members_.at(agent).is_lost = true; }
  const std::string& host_of(int agent) const { return members_.at(agent).facts.host; }
  /// The longest time that the ranks of an agent that is there may need to end.
  std::chrono::milliseconds longest_grace() const {
    std::chrono::milliseconds longest{0};
    for (const auto& [number, member] : members_)
      if (!member.is_lost) longest = std::max(longest, member.facts.grace);
    return longest;
  }

 private:
  struct Member {
    NodeFacts facts;
    bool is_lost = false;
  };

  template <class Predicate>
  std::vector<int> numbers_of(const Predicate& belongs) const {
    std::vector<int> agents;
    for (const auto& [number, member] : members_)
      if (belongs(member)) agents.push_back(number);
    return agents;
  }

  AgentsStore& store_;
  const LaunchPlan& plan_;
  std::map<int, Member> members_;
};

inline void Roster::update(bool has_begun) {
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  for (int number = 0; by_arrival || number < plan_.num_nodes; ++number) {
    if (members_.contains(number)) continue;
    const auto text = store_.get(AgentsStore::key("agent", number));
    if (!text && by_arrival) break;
    if (!text) continue;
    const auto facts = NodeFacts::parse(*text);
    const auto contradiction = facts.contradiction(number, NodeFacts::of_this_node(plan_), plan_.node_rank);
    if (!contradiction.empty() && !has_begun) throw Error{Errc::peer, contradiction};
    if (!contradiction.empty()) store_.set(AgentsStore::key("refused", number), contradiction);
    members_[number] = {.facts = facts, .is_lost = !contradiction.empty()};
  }
  for (auto& [number, member] : members_)
    if (!member.is_lost) member.is_lost = store_.get(AgentsStore::key("lost", number)).has_value();
}

}  // namespace ddpxx::detail
