// ddpxx/launch/agent/agents_store.hpp — the keys by which the agents of a run know of each other.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/run_store.hpp>

namespace ddpxx::detail {

/// One agent's access to the agents' store. Keys, behind the prefix `ddpxx/agents/`:
///
///     agentA     the facts of agent A
///     lostA      is set when agent A has ended; so is `gone` when any agent has
///     refusedA   why agent A cannot take part
///     round      the number of the last round that has begun
///     planR      round R, or the end of the run in its place
///     waitsR     is set when too few agents are there to start the round after R
///     stopR/N    the Nth reason for which the ranks of round R are to stop and save
///     endR       is set when the ranks of round R are to end at once; its value says why
///     killR      is set when they are to be killed
///     resultR/A  how round R has ended on the node of agent A, or that A was lost before it told that
///     readA      is set when agent A has read the end of the run, or has ended
///
/// An agent takes its number and leaves its will with the store in one request, so that no agent is known without a
/// will; when its connection ends, the store sets `lostA`, `gone` and `readA`. During a round the leading agent waits
/// for `gone`, and ends the round if an agent that takes part in it is lost.
///
/// Errors  `peer` from all functions that ask the store, if it is gone.
class AgentsStore {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AgentsStore(JobStoreConnection& connection) : connection_{connection} {}

  static std::string key(const std::string& name) { return "ddpxx/agents/" + name; }
  static std::string key(const std::string& name, int number) { return key(name + std::to_string(number)); }
  static std::string key(const std::string& name, int number, int part) {
    return key(name, number) + '/' + std::to_string(part);
  }

  JobStoreConnection& connection() { return connection_; }

  /// The value of a key; none if it is not set.
  std::optional<std::string> get(const std::string& key) {
    const std::vector keys{key};
    if (!connection_.check(keys, soon())) return std::nullopt;
    return connection_.multi_get(keys, soon()).front();
  }
  void set(const std::string& key, const std::string& value) { connection_.set(key, value, soon()); }
  void set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
    connection_.multi_set(keys, values, soon());
  }
  /// Sets a key that is not set; returns the value that it has then.
  std::string set_if_missing(const std::string& key, const std::string& value) {
    return connection_.compare_set(key, "", value, soon());
  }
  void remove(const std::string& key) { connection_.remove(key, soon()); }

  /// Takes the number `agent` and makes the end of this agent known; returns false if another agent has the number.
  bool take_number(int agent, const std::string& facts) {
    const std::vector will{key("lost", agent), key("gone"), key("read", agent)};
    return connection_.claim(key("agent", agent), facts, will, kLost, soon()) == facts;
  }
  /// The value that the store sets for an agent that has ended.
  static constexpr const char* kLost = "lost";

 private:
  static constexpr std::chrono::seconds kRequestTime{30};  ///< Limit for an answer of the store.
  static Clock::time_point soon() { return Clock::now() + kRequestTime; }

  JobStoreConnection& connection_;
};

}  // namespace ddpxx::detail
