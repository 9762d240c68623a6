// ddpxx/comm/roll_call.hpp — the processes of a job find out whether all of them have arrived, and which are missing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/waiting_line.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/number_list.hpp>

namespace ddpxx {

/// One process's part in a roll call.
struct RollCall {
  std::string kind = "rank";  ///< What is counted, as errors call it: "rank" or "node".
  int number = 0;
  int size = 1;
  std::string prefix = {};            ///< Prefix of the keys, another one for each start of the job.
  std::string facts = {};             ///< Facts about this process for the others. No two processes have equal facts.
  std::string where = {};             ///< Name of the store in errors.
  std::chrono::milliseconds limit{};  ///< The whole time for which processes wait, for log lines.
  std::chrono::steady_clock::time_point deadline = {};
  std::function<void(const std::string&)> say = {};  ///< Receives the log lines that name the missing processes.
  WaitingLine line{};
};

namespace detail {

inline Error two_processes(const RollCall& call) {
  return {Errc::peer,
          "two processes came to " + call.where + " as " + call.kind + ' ' + std::to_string(call.number) +
              ": each needs a " +
              (call.kind == "rank" ? "RANK of its own, and joins once: a further group of its ranks is a part of the "
                                     "first one, made by Group::split()"
                                   : "number of its own")};
}

/// Logs a line that names the missing processes, if it is due and this process is the lowest of those that have come.
/// Errors  `peer` after the deadline.
inline void report_missing(RollCall& call, const std::vector<int>& missing) {
  if (std::chrono::steady_clock::now() >= call.deadline)
    throw Error{Errc::peer, call.kind + ' ' + number_list(missing) + " never came to " + call.where + " within " +
                                std::to_string(call.limit.count() / 1000) + " s"}
        .with("world_size", call.size);
  int lowest = 0;
  while (static_cast<std::size_t>(lowest) < missing.size() && missing[static_cast<std::size_t>(lowest)] == lowest)
    ++lowest;
  if (call.line.take() && lowest == call.number && call.say)
    call.say("waiting for " + call.kind + ' ' + number_list(missing) + " to come to " + call.where + " (" +
             call.line.time_of(call.limit) + ')');
}

/// Claims the number of `call` in the first turn in which no process has had it. Returns the prefix of that turn's
/// keys.
/// Errors  `peer` if a running process has the number.
template <class Store>
std::string take_turn(Store& store, const RollCall& call) {
  // The store may notice the end of a process shortly after its successor connects.
  constexpr std::chrono::milliseconds kHandover{500};
  const auto number = std::to_string(call.number);
  for (int turn = 0;; ++turn) {
    const auto prefix = turn == 0 ? call.prefix : call.prefix + "turn" + std::to_string(turn) + '/';
    const auto left = prefix + "left" + number;
    const std::vector<std::string> will{left, prefix + "gone"};
    if (store.claim(prefix + call.kind + number, call.facts, will, number, call.deadline) == call.facts) {
      failpoint("roll_call.after_claim");
      return prefix;
    }
    const auto until = std::min(call.deadline, std::chrono::steady_clock::now() + kHandover);
    if (store.wait(std::vector<std::string>{left}, "", until, call.deadline + JobStoreConnection::kAnswerTime)
            .missing.empty())
      continue;
    throw two_processes(call);
  }
}

}  // namespace detail

/// The processes that have arrived.
struct Roll {
  std::vector<std::string> facts = {};  ///< The facts in the order of the processes' numbers.
  std::string prefix = {};              ///< Prefix of keys that only these processes use.
};

/// Waits until all processes have arrived. If a process with this number has ended, such as the first of two programs
/// that one rank runs, this process belongs to the next turn and waits for the others of that turn.
/// `Store` is a `JobStoreConnection` or has its functions claim, wait and multi_get.
/// Errors  `peer`: some never came, or one came and ended (both named); another process has come with this number, and
///         that one is not disturbed.
template <class Store>
Roll call_roll(Store& store, RollCall call) {
  using Clock = std::chrono::steady_clock;
  const std::string prefix = detail::take_turn(store, call), gone = prefix + "gone";
  std::vector<std::string> keys;
  for (int other = 0; other < call.size; ++other) keys.push_back(prefix + call.kind + std::to_string(other));

  while (true) {
    const WaitResult result = store.wait(keys, gone, std::min(call.deadline, call.line.due()),
                                         call.deadline + JobStoreConnection::kAnswerTime);
    if (result.interruption) {
      const int left = std::atoi(result.interruption->c_str());
      throw Error{Errc::peer, call.kind + ' ' + std::to_string(left) + " came to " + call.where +
                                  " and ended before all had come; its own message says more"}
          .copied_from(left);
    }
    if (result.missing.empty()) break;
    detail::report_missing(call, {result.missing.begin(), result.missing.end()});
  }
  return {store.multi_get(keys, std::max(call.deadline, Clock::now() + JobStoreConnection::kAnswerTime)), prefix};
}

}  // namespace ddpxx
