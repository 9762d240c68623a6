// ddpxx/train/load_attempt.hpp — starts that did not outlive what they loaded, counted beside the snapshot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/snapshot/snapshots.hpp>

namespace ddpxx {

/// A start's attempt to load a snapshot: written down before it is read, forgotten once a step was done with it. What
/// several starts have tried and none has outlived is not tried again.
/// Ranks   Rank 0 counts; the others know the snapshot, so that each can say that an error is its own.
class LoadAttempt {
 public:
  /// `limit` starts may fail; 0 counts none. `snapshots` must outlive this.
  LoadAttempt(const Snapshots& snapshots, std::int64_t limit, Log log)
      : snapshots_{&snapshots}, limit_{limit}, log_{log} {}

  /// Writes down that the snapshot is about to be loaded, or says why it is not any more.
  /// Errors  `storage`.
  std::string begin(const StoredSnapshot& stored) {
    const auto before = snapshots_->attempts(stored);
    if (limit_ == 0) {
      if (before > 0) loading_ = stored;  // what was counted before is forgotten when this start outlives it
      return {};
    }
    const auto name = snapshots_->storage().whole_name(stored.folder);
    if (before >= limit_) {
      given_up_.push_back(stored);
      has_outlived_ = false;
      return name + " was loaded by " + std::to_string(before) +
             " starts that ended before their first step was done (snapshot.load_attempts=0 loads it all the same)";
    }
    if (before > 0)
      log_.warn(name + ": the last start that loaded it ended before its first step was done; once " +
                std::to_string(limit_) + " have, it is set aside");
    snapshots_->note_attempts(stored, before + 1);
    loading_ = stored;
    return {};
  }

  /// On a rank that does not count: the snapshot that is loaded.
  void join(const std::string& folder) { loading_.emplace().folder = folder; }

  /// Nobody will hold this start against the snapshot. A store that does not answer is asked again by the next call.
  void forget() {
    if (!loading_) return;
    quietly([&] {
      snapshots_->forget_attempts(*loading_);
      loading_.reset();
    });
  }

  /// The same on the rank that counts, once a step was done; what was given up for it is set aside then, and not
  /// before: a start that fails for another reason would use up one snapshot after the other. What cannot be set aside
  /// stays given up.
  void outlive() {
    forget();
    if (std::exchange(has_outlived_, true)) return;
    std::erase_if(given_up_, [&](const auto& stored) { return quietly([&] { snapshots_->set_aside(stored); }); });
  }

  /// On a rank that does not count.
  void leave() noexcept { loading_.reset(); }

  /// What was given up of a step and not set aside.
  std::optional<StoredSnapshot> given_up(std::int64_t step) const {
    const auto stored = std::ranges::find(given_up_, step, &StoredSnapshot::step);
    return stored == given_up_.end() ? std::nullopt : std::optional{*stored};
  }
  /// All steps of which that is so, but one.
  std::set<std::int64_t> given_up_but(std::int64_t step) const {
    std::set<std::int64_t> steps;
    for (const auto& stored : given_up_)
      if (stored.step != step) steps.insert(stored.step);
    return steps;
  }

 private:
  template <class Deed>
  bool quietly(Deed&& deed) {
    try {
      std::forward<Deed>(deed)();
      return true;
    } catch (const Error& error) {
      log_.warn(error.what());
      return false;
    }
  }

  const Snapshots* snapshots_;
  std::int64_t limit_;
  Log log_;
  std::optional<StoredSnapshot> loading_;  ///< What was loaded and is not yet known to be outlived.
  std::vector<StoredSnapshot> given_up_;   ///< What was not loaded, since starts before this one had tried.
  bool has_outlived_ = false;              ///< It was tried once to set these aside.
};

}  // namespace ddpxx
