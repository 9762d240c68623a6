// ddpxx/comm/torchrun_roll_call.hpp — the ranks that torchrun has started meet in the store of torchrun's agent.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

/// The roll call of one rank in the store of torchrun's agent, which is kept over restarts and does not notice the end
/// of a process. The number of restarts cannot separate one start from the next, because each of torchrun's agents
/// counts its own failures only. The ranks separate the starts themselves, by turns:
///
/// - A rank claims its number in the first turn in which no rank has claimed it. A number that is taken proves that the
///   ranks have been started again since, and ends that turn.
/// - Once all numbers of a turn are claimed, each rank confirms that it is there: a claim may be older than this start,
///   and a rank of an earlier start cannot confirm, because it ended before this one began.
///
/// Each of the two halves of a turn ends once, for all ranks: the rank that first writes its result decides it.
class TorchrunRoll {
 public:
  TorchrunRoll(c10d::Store& store, RollCall& call) : store_{&store}, call_{&call} {}

  /// Errors  as `call_roll`; those of the store.
  Roll call() {
    // Starts with another number of ranks do not share turns, so a turn is full only if each of its numbers is taken.
    const auto prefix = call_->prefix + "of" + std::to_string(call_->size) + '/';
    for (int turn = 0;; ++turn) {
      turn_ = prefix + "turn" + std::to_string(turn) + '/';
      if (!claim()) continue;
      if (!is_complete(call_->kind)) continue;
      set(key("here", call_->number), "yes");
      if (!is_complete("here")) continue;
      return {.facts = facts(), .prefix = turn_};
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kComplete = "complete";

  std::string key(const std::string& what, int number) const { return turn_ + what + std::to_string(number); }
  std::string result_key(const std::string& half) const { return turn_ + half + "-result"; }

  /// Whether this rank has its number in this turn.
  bool claim() {
    limit(call_->deadline);
    if (store_->compareSet(key(call_->kind, call_->number), std::string{}, call_->facts) == call_->facts) return true;
    for (const auto& half : {call_->kind, std::string{"here"}}) decide(half, std::to_string(call_->number));
    return false;
  }

  /// Waits for the result of a half of the turn, to which this rank has come. Returns whether all ranks have come; if
  /// not, they have been started again.
  /// Errors  `peer` if some never come, or if another process has come with this number.
  bool is_complete(const std::string& half) {
    limit(call_->deadline);
    if (store_->add(turn_ + half + "-count", 1) == call_->size) decide(half, kComplete);
    while (!wait_for(result_key(half), std::min(call_->deadline, call_->line.due()))) {
      if (const auto numbers = missing(half); !numbers.empty())
        report_missing(*call_, numbers);
      else
        decide(half, kComplete);  // the last rank that came has ended before it could do so
    }
    limit(Clock::now() + JobStoreConnection::kAnswerTime);
    const auto result = store_->get_to_str(result_key(half));
    if (result == std::to_string(call_->number)) throw two_processes(*call_);
    return result == kComplete;
  }

  /// Ends a half of the turn for all ranks: `kComplete`, or the number that was taken. The first result stays.
  void decide(const std::string& half, const std::string& result) {
    limit(call_->deadline);
    store_->compareSet(result_key(half), std::string{}, result);
  }

  /// Whether the key exists before `until`.
  bool wait_for(const std::string& key, Clock::time_point until) {
    try {
      store_->wait({key}, time_until(until));
      return true;
    } catch (const c10::DistNetworkError&) {
      throw;
    } catch (const c10::DistStoreError&) {
      return false;
    }
  }

  std::vector<int> missing(const std::string& half) {
    limit(Clock::now() + JobStoreConnection::kAnswerTime);
    std::vector<int> numbers;
    for (int other = 0; other < call_->size; ++other)
      if (!store_->check({key(half, other)})) numbers.push_back(other);
    return numbers;
  }

  std::vector<std::string> facts() {
    std::vector<std::string> keys, facts;
    for (int other = 0; other < call_->size; ++other) keys.push_back(key(call_->kind, other));
    limit(std::max(call_->deadline, Clock::now() + JobStoreConnection::kAnswerTime));
    for (const auto& value : store_->multiGet(keys)) facts.emplace_back(value.begin(), value.end());
    return facts;
  }

  void set(const std::string& key, const std::string& value) {
    limit(call_->deadline);
    store_->set(key, value);
  }

  static std::chrono::milliseconds time_until(Clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    return std::max(left, std::chrono::milliseconds{1});  // c10d takes zero for no limit
  }
  void limit(Clock::time_point until) { store_->setTimeout(time_until(until)); }

  c10d::Store* store_;
  RollCall* call_;
  std::string turn_ = {};  ///< Prefix of the keys of the current turn.
};

}  // namespace detail

/// Waits until all ranks of this start have arrived, as `call_roll`, in a store of torchrun's agent.
/// Errors  `peer`: some never came; another process has come with this number.
inline Roll call_roll_of_torchrun(c10d::Store& store, RollCall call) {
  return detail::TorchrunRoll{store, call}.call();
}

}  // namespace ddpxx
