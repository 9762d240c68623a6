// ddpxx/launch/agent/node_result.hpp — how a round has ended on one node, as its agent tells the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>

namespace ddpxx::detail {

/// How the ranks of one node have ended.
struct NodeResult {
  std::string host = {};
  bool is_lost = false;  ///< Its agent has ended or cannot be reached.
  std::vector<Exit> exits = {};
  std::optional<int> asked = {};  ///< The signal by which its ranks were asked to end.
};

/// The result as text, without what only the report of the node itself needs: times, lines of output and files.
inline std::string to_text(const NodeResult& result) {
  auto exits = nlohmann::json::array();
  for (const Exit& exit : result.exits)
    exits.push_back({exit.rank, exit.local_rank, exit.pid, exit.code, exit.elapsed.count(), or_null(exit.signal_sent),
                     exit.is_ours, exit.trains, exit.stepped, exit.was_stopped, exit.is_silent, exit.hint});
  return agent_text({{"host", result.host}, {"asked", or_null(result.asked)}, {"exits", exits}});
}

/// Errors  `peer` if this version does not understand the text.
inline NodeResult parse_node_result(const std::string& text) {
  return read_agent_text(text, [](const nlohmann::json& value) {
    NodeResult result{.host = value.at("host"), .asked = number_or_none(value.at("asked"))};
    for (const auto& row : value.at("exits"))
      result.exits.push_back({.rank = row.at(0),
                              .local_rank = row.at(1),
                              .pid = row.at(2),
                              .code = row.at(3),
                              .elapsed = std::chrono::milliseconds{row.at(4).get<std::int64_t>()},
                              .signal_sent = number_or_none(row.at(5)),
                              .is_ours = row.at(6),
                              .trains = row.at(7),
                              .stepped = row.at(8),
                              .was_stopped = row.at(9),
                              .is_silent = row.at(10),
                              .hint = row.at(11)});
    return result;
  });
}

}  // namespace ddpxx::detail
