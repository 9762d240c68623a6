// ddpxx/train/snapshot_committer.hpp — rank 0's part of a save: creating the manifest that makes files a snapshot.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/retention.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/train/snapshot_history.hpp>

namespace ddpxx {

/// Creates the manifest of a snapshot whose files all ranks have written, and removes snapshots that need not be kept.
/// Knows which manifests may exist although their creation failed: files that such a manifest names must stay.
/// Ranks   Local; only rank 0 calls `commit` and `prune`. Both may run in a thread, but not at the same time.
class SnapshotCommitter {
 public:
  using Clock = std::chrono::steady_clock;

  SnapshotCommitter(std::shared_ptr<const SnapshotHistory> history, const Retention& retention, const Log& log)
      : history_{std::move(history)}, retention_{retention}, log_{log} {}

  /// Completes `manifest` by the ranks' reports and creates it.
  /// Errors  `storage`, also if another run saves its snapshots here: then `has_lost_place()`.
  void commit(Manifest manifest, std::span<const std::string> reports) {
    add_reports(manifest, reports);
    auto conflict = history_->find_later_of_another(manifest);
    if (!conflict) conflict = create(manifest);
    has_lost_place_ = conflict.has_value();
    if (conflict) throw Error{Errc::storage, *conflict};
  }

  /// Removes snapshots that need not be kept. What takes too long is left to the next call, since other ranks may wait
  /// for this one. A failure is a warning.
  void prune() const {
    try {
      history_->snapshots().prune(retention_, {.of_the_place = history_->is_claimed(), .starts = history_->starts()},
                                  kPatienceToPrune);
    } catch (const std::exception& error) {
      log_.warn(std::string{"older snapshots were not removed: "} + error.what());
    }
  }

  /// True if the last `commit` found snapshots of another run.
  bool has_lost_place() const noexcept { return has_lost_place_; }
  /// True if a manifest of this run may exist for a step, whether or not `commit` reported success.
  bool may_be_committed(std::int64_t step) const { return uncertain_steps_.contains(step); }
  /// When the last `commit` had created its manifest.
  Clock::time_point committed_at() const noexcept { return committed_at_; }

 private:
  static constexpr std::chrono::seconds kPatienceToPrune{20};  // other ranks wait for minutes before they give up

  /// Returns the conflict if another run has a snapshot of this step.
  std::optional<std::string> create(const Manifest& manifest) {
    const auto step = manifest.run.step;
    try {
      uncertain_steps_.insert(step);
      auto conflict = history_->snapshots().try_commit(manifest);
      committed_at_ = Clock::now();
      if (conflict) uncertain_steps_.erase(step);
      return conflict;
    } catch (const std::exception&) {
      // A server may still carry out a request after we gave up waiting for its answer. A locked folder does not: what
      // is absent there now stays absent.
      if (history_->is_claimed() && is_absent(step)) uncertain_steps_.erase(step);
      throw;
    }
  }

  /// True if no manifest names this rank's file of a step; false if that cannot be found out.
  bool is_absent(std::int64_t step) const {
    try {
      return !history_->snapshots().is_in_use(step, history_->file_name());
    } catch (const Error&) {
      return false;
    }
  }

  std::shared_ptr<const SnapshotHistory> history_;
  Retention retention_;
  Log log_;
  bool has_lost_place_ = false;
  std::set<std::int64_t> uncertain_steps_;
  Clock::time_point committed_at_;
};

}  // namespace ddpxx
