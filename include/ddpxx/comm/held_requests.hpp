// ddpxx/comm/held_requests.hpp — requests to a job's store that wait for keys.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ddpxx/comm/store_limits.hpp>

namespace ddpxx::detail {

/// A request that is answered later: when its keys are set, when `unless` is set, or when its time is over.
struct HeldRequest {
  std::vector<std::string> keys = {};
  std::size_t next = 0;     ///< The first key that may be missing.
  std::string unless = {};  ///< Empty for none.
  std::chrono::steady_clock::time_point until = {};
  bool wants_value = false;  ///< Answers with the value of the only key.
  std::size_t bytes = 0;     ///< Size of its keys.

  void add(std::string_view key) {
    keys.emplace_back(key);
    bytes += key.size() + kBytesPerKey;
  }
};

/// Finds held requests, each by the number of its client, by the keys that they wait for next and by their time.
class HeldRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Adds a request, which must not change until `remove`.
  void add(std::uint64_t client, const HeldRequest& held) {
    by_time_.emplace(held.until, client);
    by_key_[held.keys[held.next]].insert(client);
    if (!held.unless.empty()) by_key_[held.unless].insert(client);
  }
  void remove(std::uint64_t client, const HeldRequest& held) {
    const auto forget = [&](const std::string& key) {
      const auto found = by_key_.find(key);
      if (found == by_key_.end()) return;
      found->second.erase(client);
      if (found->second.empty()) by_key_.erase(found);
    };
    by_time_.erase({held.until, client});
    forget(held.keys[held.next]);
    if (!held.unless.empty()) forget(held.unless);
  }

  /// The clients that wait for `key`.
  std::vector<std::uint64_t> waiting_for(const std::string& key) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return {};
    return {found->second.begin(), found->second.end()};
  }
  /// When the time of a request is over next; none if no request is held.
  std::optional<Time> next_deadline() const {
    return by_time_.empty() ? std::nullopt : std::optional{by_time_.begin()->first};
  }
  /// A client whose request has a time that is over at `now`; none if there is none.
  std::optional<std::uint64_t> late_at(Time now) const {
    if (by_time_.empty() || by_time_.begin()->first > now) return std::nullopt;
    return by_time_.begin()->second;
  }

 private:
  std::unordered_map<std::string, std::unordered_set<std::uint64_t>> by_key_;
  std::set<std::pair<Time, std::uint64_t>> by_time_;
};

}  // namespace ddpxx::detail
