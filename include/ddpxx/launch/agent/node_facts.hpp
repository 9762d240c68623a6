// ddpxx/launch/agent/node_facts.hpp — what an agent tells about its node when it comes to a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <ddpxx/core/host_name.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// The facts that must be equal on all nodes of a run, the name of the host, and the time of --grace.
struct NodeFacts {
  std::string host = {};
  int min_nodes = 1, num_nodes = 1, ranks_per_node = 1, max_restarts = 0;
  std::chrono::milliseconds grace{0};

  static NodeFacts of_this_node(const LaunchPlan& plan) {
    return {host_name(), plan.min_nodes, plan.num_nodes, plan.ranks_per_node, plan.max_restarts, plan.grace};
  }
  /// Errors  `peer` if this version does not understand the text.
  static NodeFacts parse(const std::string& text) {
    return read_agent_text(text, [](const nlohmann::json& value) {
      return NodeFacts{.host = value.at("host"),
                       .min_nodes = value.at("min_nodes"),
                       .num_nodes = value.at("num_nodes"),
                       .ranks_per_node = value.at("ranks_per_node"),
                       .max_restarts = value.at("max_restarts"),
                       .grace = std::chrono::milliseconds{value.at("grace").get<std::int64_t>()}};
    });
  }
  /// The facts as text. `mark` makes the texts of two agents with equal facts different.
  std::string text(const std::string& mark) const {
    return agent_text({{"host", host},
                       {"min_nodes", min_nodes},
                       {"num_nodes", num_nodes},
                       {"ranks_per_node", ranks_per_node},
                       {"max_restarts", max_restarts},
                       {"grace", grace.count()},
                       {"mark", mark}});
  }

  /// Why this node and another one cannot be in one run; empty if they can.
  std::string contradiction(int node, const NodeFacts& other, int other_node) const {
    const auto nodes = [](const NodeFacts& facts) {
      return (facts.min_nodes < facts.num_nodes ? std::to_string(facts.min_nodes) + ':' : "") +
             std::to_string(facts.num_nodes);
    };
    const auto name = "node " + std::to_string(node), other_name = "node " + std::to_string(other_node);
    if (nodes(*this) != nodes(other))
      return name + " was started for " + nodes(*this) + " nodes, but " + other_name + " for " + nodes(other) +
             ": give all nodes the same --nnodes";
    if (ranks_per_node != other.ranks_per_node)
      return name + " starts " + std::to_string(ranks_per_node) + " ranks, " + other_name + " starts " +
             std::to_string(other.ranks_per_node) + ": give all nodes the same --nproc-per-node";
    if (max_restarts != other.max_restarts)
      return name + " has --max-restarts " + std::to_string(max_restarts) + ", " + other_name + " has " +
             std::to_string(other.max_restarts) + ": give all nodes the same";
    return {};
  }
};

}  // namespace ddpxx::detail
