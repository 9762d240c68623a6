// ddpxx/train/load_attempt.hpp — counts the starts of a run that were killed while they read a snapshot.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/snapshot/snapshots.hpp>

namespace ddpxx {

/// Counts the starts that were killed while they read a snapshot. The count is raised before the reading and removed
/// once all ranks have read the snapshot, or failed with an error that they could report. When it reaches the limit,
/// the other snapshots are tried before this one. A count that cannot be read, written or removed is a warning: no run
/// depends on it.
/// Ranks   Rank 0 alone counts.
class LoadAttempt {
 public:
  /// A `limit` of 0 counts nothing. `snapshots` must outlive this.
  LoadAttempt(const Snapshots& snapshots, std::int64_t limit, Log log)
      : snapshots_{&snapshots}, limit_{limit}, log_{log} {}

  /// Moves the snapshots whose count has reached the limit to the end, with a warning for each.
  void put_last(std::vector<StoredSnapshot>& found) const {
    const auto last = std::ranges::stable_partition(found, [&](const auto& stored) { return !is_at_limit(stored); });
    if (last.size() == found.size()) return;
    for (const auto& stored : last)
      log_.warn(killed_text(stored, limit_) + "; the other snapshots are tried before it");
  }

  /// Begins an attempt: counts this start, just before it reads `stored`. If the count has reached the limit, no other
  /// snapshot could be loaded or all have reached the limit; then all counts start again from 0.
  void begin(const StoredSnapshot& stored, const std::vector<StoredSnapshot>& found) {
    if (limit_ == 0) return;
    auto before = count(stored);
    if (before == limit_) {
      log_.warn(killed_text(stored, before) + ", and no other snapshot is left to try: it is tried again");
      for (const auto& each : found)
        if (each.sizes.contains(Snapshots::kAttempts)) warn_of_failure([&] { snapshots_->clear_attempts(each); });
      before = 0;
    } else if (before > 0) {
      log_.warn(killed_text(stored, before) + "; after " + std::to_string(limit_) +
                " such starts the other snapshots are tried before it");
    }
    const std::lock_guard lock{mutex_};
    reading_ = stored;
    warn_of_failure([&] { snapshots_->write_attempts(stored, before + 1); });
  }

  /// Ends the attempt: removes the count of the snapshot that `begin` named last. Without an attempt it does nothing.
  void end() {
    const std::lock_guard lock{mutex_};
    if (const auto stored = std::exchange(reading_, std::nullopt))
      warn_of_failure([&] { snapshots_->clear_attempts(*stored); });
  }

 private:
  /// A count above the limit, written by a run with a larger limit, counts as the limit. A count that cannot be read
  /// counts as 0.
  std::int64_t count(const StoredSnapshot& stored) const {
    std::int64_t count = 0;
    warn_of_failure([&] { count = snapshots_->attempts(stored); });
    return std::min(count, limit_);
  }
  bool is_at_limit(const StoredSnapshot& stored) const { return limit_ > 0 && count(stored) == limit_; }

  std::string killed_text(const StoredSnapshot& stored, std::int64_t starts) const {
    return snapshots_->storage().full_name(stored.folder) + ": " + std::to_string(starts) +
           (starts == 1 ? " start was" : " starts were") +
           " killed while reading it (snapshot.load_attempts=0 does not count them)";
  }

  template <class Operation>
  void warn_of_failure(Operation&& operation) const {
    try {
      std::forward<Operation>(operation)();
    } catch (const Error& error) {
      log_.warn(error.what());
    }
  }

  const Snapshots* snapshots_;
  std::int64_t limit_;
  Log log_;
  std::mutex mutex_;  ///< Guards `reading_` and the file with its count.
  std::optional<StoredSnapshot> reading_;
};

/// Ends the attempt as soon as a signal asks the process to stop. A scheduler kills a process that goes on reading for
/// too long after the signal, and that is not the snapshot's fault.
class EndAttemptOnSignal {
 public:
  EndAttemptOnSignal(LoadAttempt& attempt, const StopSignals& signals) {
    try {
      watcher_ = std::jthread{[&attempt, &signals](const std::stop_token& ended) {
        std::mutex mutex;
        std::unique_lock lock{mutex};
        std::condition_variable_any waiting;
        while (!waiting.wait_for(lock, ended, kPause, [&] { return ended.stop_requested(); }))
          if (signals.heard()) attempt.end();
      }};
    } catch (const std::system_error&) {
      // The system has no thread left. The count is then removed after reading.
    }
  }

 private:
  static constexpr std::chrono::milliseconds kPause{20};

  std::jthread watcher_;
};

}  // namespace ddpxx
