// ddpxx/launch/agent/run_rule.hpp — decides what follows when a round has ended on all nodes.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/failure_report.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/restart_rule.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// The ranks start again.
struct Restart {
  int restart = 0;                     ///< Number of starts after a failure.
  std::string because = {};            ///< Why they start again, for the log.
  std::chrono::milliseconds pause{0};  ///< Time to wait before they start.
};

/// Decides for all nodes of a run; one agent, the one that serves the store, has it. After a failure the ranks start
/// again while restarts remain. A node that comes or is lost does not use up a restart. Where too few nodes are left,
/// the run ends if their number is fixed, and waits for others if it is not.
class RunRule {
 public:
  explicit RunRule(const LaunchPlan& plan)
      : max_restarts_{plan.max_restarts},
        min_nodes_{plan.min_nodes},
        has_nodes_{plan.num_nodes > 1},
        has_fixed_nodes_{plan.min_nodes == plan.num_nodes} {}

  /// What follows after a round. `nodes` are in the order of the round; `asked` is a signal that asked an agent to end
  /// the run; `grows` says that the ranks were asked to stop because another node has come.
  std::variant<Restart, RunEnd> after(std::span<const NodeResult> nodes, std::optional<int> asked, bool grows);

  /// The number of starts after a failure so far.
  int restart() const noexcept { return restart_; }
  /// "1 node is left, and --nnodes asks for at least 2": `are` says what the nodes are.
  std::string too_few(std::ptrdiff_t count, const std::string& are) const {
    return std::to_string(count) + (count == 1 ? " node is " : " nodes are ") + are +
           ", and --nnodes asks for at least " + std::to_string(min_nodes_);
  }
  /// The end of a run for which too few nodes have come between two rounds.
  RunEnd end_without_nodes(std::string failure) const {
    return {.code = static_cast<int>(Errc::peer),
            .failure = std::move(failure),
            .first_failure = first_failure_,
            .restart = restart_};
  }

 private:
  /// A rank's failure, with its node if there are several.
  std::string describe_failure(std::span<const NodeResult> nodes, const Exit& exit) const;
  std::string describe_loss(std::span<const NodeResult> nodes) const;

  int max_restarts_, min_nodes_;
  bool has_nodes_, has_fixed_nodes_;
  int restart_ = 0;
  RestartRule rule_;
  std::string first_failure_;
};

inline std::string RunRule::describe_failure(std::span<const NodeResult> nodes, const Exit& exit) const {
  std::string text =
      "rank " + std::to_string(exit.rank) + ": " + describe(exit) + (exit.hint.empty() ? "" : " (" + exit.hint + ')');
  if (!has_nodes_) return text;
  const auto has_rank = [&](const NodeResult& node) {
    return std::ranges::any_of(node.exits, [&](const Exit& other) { return other.rank == exit.rank; });
  };
  const auto node = std::ranges::find_if(nodes, has_rank);
  return "node " + std::to_string(node - nodes.begin()) + " (" + harmless(node->host) + "), " + text;
}

inline std::string RunRule::describe_loss(std::span<const NodeResult> nodes) const {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].is_lost)
      text += (text.empty() ? "node " : ", node ") + std::to_string(i) + " (" + harmless(nodes[i].host) + ')';
  return text + " is lost: its agent has ended, hangs or cannot be reached";
}

inline std::variant<Restart, RunEnd> RunRule::after(std::span<const NodeResult> nodes, std::optional<int> asked,
                                                    bool grows) {
  std::vector<Exit> exits;
  for (const auto& node : nodes) {
    exits.insert(exits.end(), node.exits.begin(), node.exits.end());
    if (!asked) asked = node.asked;
  }
  const auto left = std::ranges::count(nodes, false, &NodeResult::is_lost);
  const bool has_loss = left < std::ssize(nodes);
  const auto first = root_cause(exits, asked || !grows ? asked : std::optional{SIGTERM});
  // Ranks whose peers are on a lost node, or stop before them, may end with any code.
  const bool is_unclear = has_loss || (grows && !asked);
  const Exit* cause = first && (!is_unclear || explains_itself(exits[*first])) ? &exits[*first] : nullptr;
  const auto failure = cause ? describe_failure(nodes, *cause) : std::string{};

  RunEnd end{.code = cause || !has_loss ? exit_code(exits, asked) : static_cast<int>(Errc::peer),
             .asked = asked,
             .failure = failure,
             .first_failure = first_failure_,
             .restart = restart_};
  if (cause) end.cause = cause->rank;
  if (asked) {
    if (has_loss && !cause)
      end.failure = describe_loss(nodes) + "; " + signal_name(*asked) + " had asked the run to stop";
    return end;
  }
  // A program of ddpxx ends with 75 if it has stopped before it was done; another program may then end with 0.
  const bool all_done = std::ranges::all_of(
      exits, [](const Exit& exit) { return exit.code == 0 && (exit.is_ours || exit.signal_sent != SIGTERM); });
  if (has_loss && left < min_nodes_ && (has_fixed_nodes_ || all_done)) {
    if (!cause) end.failure = describe_loss(nodes) + "; " + too_few(left, "left");
    return end;
  }
  if (cause) {
    if (restart_ >= max_restarts_) return end;
    rule_.note(exits, *first);
    end.refusal = rule_.refusal();
    if (!end.refusal.empty()) return end;
    if (first_failure_.empty()) first_failure_ = failure;
    ++restart_;
    return Restart{
        .restart = restart_,
        .because = failure + "; restart " + std::to_string(restart_) + " of " + std::to_string(max_restarts_),
        .pause = rule_.pause()};
  }
  rule_.note_interruption(exits);
  if (has_loss)
    return Restart{
        .restart = restart_,
        .because = describe_loss(nodes) + "; " + (left < min_nodes_ ? too_few(left, "left") : "the others go on")};
  if (grows && !all_done) return Restart{.restart = restart_, .because = "another node has come"};
  return end;
}

}  // namespace ddpxx::detail
