// ddpxx/launch/agent/round.hpp — what the agents of a run agree on before their ranks start: the next round, or the
// end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx::detail {

/// One start of all ranks, by the agents that take part. An agent has a number that stays during the run; its place
/// among the agents of a round is the number of its node in that round.
struct Round {
  int number = 0;                 ///< Counts every start.
  int restart = 0;                ///< Counts the starts after a failure.
  std::vector<int> agents = {0};  ///< In the order of the nodes.
  std::uint16_t master_port = 0;  ///< MASTER_PORT, where Python programs meet; 0: each agent chooses.
  std::string token = {};         ///< Secret of the ranks of this round.
  std::string because = {};       ///< Why the ranks start again, for the log; empty for the first round.

  /// The number of the agent's node; none if it does not take part.
  std::optional<int> node_of(int agent) const {
    const auto found = std::find(agents.begin(), agents.end(), agent);
    return found == agents.end() ? std::nullopt : std::optional{static_cast<int>(found - agents.begin())};
  }
};

/// The end of a run.
struct RunEnd {
  int code = 0;                    ///< Exit code of all agents.
  std::optional<int> asked = {};   ///< The signal that asked the run to end.
  std::optional<int> cause = {};   ///< The rank whose failure has ended the run, if there is one.
  std::string failure = {};        ///< What has failed and where, for the agents of other nodes.
  std::string refusal = {};        ///< Why the ranks do not start again although restarts remain; empty if none do.
  std::string first_failure = {};  ///< The failure before the first restart; empty for none.
  int restart = 0;                 ///< Number of starts after a failure.
};

using Next = std::variant<Round, RunEnd>;

/// Reads a text that another agent has written.
/// Errors  `peer` if this version does not understand it.
template <class Read>
auto read_agent_text(const std::string& text, Read&& read) {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception&) {
    throw Error{Errc::peer, "cannot read what the agent of another node sent, \"" + harmless(text.substr(0, 200)) +
                                "\": start the same version of ddpxx on all nodes"};
  }
}

template <class Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json{};
}
inline std::optional<int> number_or_none(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional{value.get<int>()};
}

/// The text that the agents exchange. Bytes that are not UTF-8, which a name of a host or a file may have, are
/// replaced.
inline std::string agent_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline std::string to_text(const Next& next) {
  if (const auto* round = std::get_if<Round>(&next))
    return agent_text({{"round", round->number},
                       {"restart", round->restart},
                       {"agents", round->agents},
                       {"master_port", round->master_port},
                       {"token", round->token},
                       {"because", round->because}});
  const auto& end = std::get<RunEnd>(next);
  return agent_text({{"code", end.code},
                     {"asked", or_null(end.asked)},
                     {"cause", or_null(end.cause)},
                     {"failure", end.failure},
                     {"refusal", end.refusal},
                     {"first_failure", end.first_failure},
                     {"restart", end.restart}});
}

/// Errors  `peer` if this version does not understand the text.
inline Next parse_next(const std::string& text) {
  return read_agent_text(text, [](const nlohmann::json& value) -> Next {
    if (value.contains("round"))
      return Round{.number = value.at("round"),
                   .restart = value.at("restart"),
                   .agents = value.at("agents"),
                   .master_port = value.at("master_port"),
                   .token = value.at("token"),
                   .because = value.at("because")};
    return RunEnd{.code = value.at("code"),
                  .asked = number_or_none(value.at("asked")),
                  .cause = number_or_none(value.at("cause")),
                  .failure = value.at("failure"),
                  .refusal = value.at("refusal"),
                  .first_failure = value.at("first_failure"),
                  .restart = value.at("restart")};
  });
}

}  // namespace ddpxx::detail
