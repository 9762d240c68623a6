// ddpxx/train/snapshot_saver.hpp — saves a run while it trains: each rank writes its part, and all parts count or none.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/unix_time.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/train/rank_file.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/snapshot_committer.hpp>
#include <ddpxx/train/snapshot_history.hpp>
#include <ddpxx/train/task.hpp>

namespace ddpxx {

/// Saves the snapshots of a run. A save has two parts: every rank writes its file and reports it, then rank 0 commits
/// the snapshot by creating its manifest. Once all ranks know of it, rank 0 removes snapshots that need not be kept; no
/// rank waits for this before the next save. A save that fails has a third part: the ranks remove their files. In the
/// background the parts run in threads while training goes on. The trainer asks `is_part_done()` on each rank, lets the
/// ranks agree, and calls `advance` once the part is done on all of them. There is one save at a time.
/// Ranks   All functions are collective, except those that are const.
/// Errors  `storage` on every rank if a save fails and the configuration does not let the run go on; snapshots that
///         were there before are then unchanged.
class SnapshotSaver {
 public:
  /// Rank 0 calls `on_saved` for each snapshot that is complete, inside `save`, `advance` or `finish`. The other ranks
  /// wait for it, and fail with it. Every rank calls `on_failed` with the step of a save that failed while the run goes
  /// on.
  SnapshotSaver(std::shared_ptr<const SnapshotHistory> history, const SnapshotConfig& config, const Group& group,
                at::Device device, std::function<void(const SnapshotSaved&)> on_saved = {},
                std::function<void(std::int64_t step)> on_failed = {})
      : config_{config},
        group_{&group},
        on_saved_{std::move(on_saved)},
        on_failed_{std::move(on_failed)},
        log_{group.rank()},
        history_{std::move(history)},
        runs_{config.writing == SnapshotWriting::background ? TaskRuns::in_background : TaskRuns::when_asked},
        file_{history_, group, device, runs_},
        committer_{history_, config.retention(), log_} {}
  SnapshotSaver(const SnapshotSaver&) = delete;
  SnapshotSaver& operator=(const SnapshotSaver&) = delete;

  /// Saves the run. In the background it returns as soon as the state is copied.
  /// Returns false if there will be no snapshot: the previous save is not complete and `busy` says to skip this one, or
  /// the save failed and `on_failure` lets the run go on.
  bool save(const RunInfo& run, const RunState& state, Copies copies) {
    if (config_.busy == SnapshotBusy::skip && !complete_without_waiting(run.step)) {
      log_.info("no snapshot of step " + std::to_string(run.step) +
                ": the last one is still being written or committed");
      return false;
    }
    finish();
    const auto begun = Clock::now();
    Manifest manifest{
        .run = run, .world_size = group_->size(), .written_at = unix_time(), .starts = history_->starts()};
    std::erase_if(manifest.run.metrics, [](const auto& metric) { return !std::isfinite(metric.second); });
    save_ = Save{.step = run.step,
                 .part_began_at = run.step,
                 .manifest = std::move(manifest),
                 .report = file_.start_writing(state, copies, run.step),
                 .committing = {},
                 .clearing = {},
                 .begun = begun,
                 .blocked = Clock::now() - begun};
    return runs_ == TaskRuns::in_background || finish();
  }

  /// The step of the save under way, while a thread of this rank still works on it.
  std::optional<std::int64_t> step_in_work() const {
    return save_ && !is_part_done() ? std::optional{save_->step} : std::nullopt;
  }
  /// True if a save is under way and the present part is done on this rank.
  bool is_part_done() const {
    if (!save_) return false;
    if (save_->clearing) return is_done(*save_->clearing);
    return save_->committing ? is_done(*save_->committing) : is_done(save_->report);
  }
  /// The step that the run had done when the present part began, if a save is under way. An `is_part_done()` from
  /// before that step was about the part before.
  std::optional<std::int64_t> part_began_at() const {
    return save_ ? std::optional{save_->part_began_at} : std::nullopt;
  }

  /// Ends the present part, which is done on all ranks, and begins the next one. `step` counts the steps done.
  void advance(std::int64_t step) {
    if (!save_) return;
    if (save_->clearing) return finish_clearing();
    handle_failure([&] {
      if (save_->committing) return finish_committing();
      begin_committing();
    });
    if (save_) save_->part_began_at = step;
    report_and_prune();
  }

  /// Waits until the save under way is complete. Returns false if it failed and `on_failure` lets the run go on.
  bool finish() {
    if (!save_) return true;
    const bool committed = !save_->clearing && handle_failure([&] {
      if (!save_->committing) begin_committing();
      finish_committing();
    });
    if (save_) finish_clearing();
    report_and_prune();
    return committed;
  }

  /// The step of the last snapshot that was saved completely; none so far if there is none.
  std::optional<std::int64_t> committed() const noexcept { return committed_; }

  /// From now on a save that fails is an error, whatever the configuration says. For the last snapshot of a run.
  void stop_on_failure() noexcept { config_.on_failure = SnapshotFailure::stop; }

 private:
  using Clock = SnapshotCommitter::Clock;

  /// A save under way. The destructor of each future waits for its thread.
  struct Save {
    std::int64_t step;
    std::int64_t part_began_at;  ///< Steps done when the present part began.
    Manifest manifest;           ///< Without files and tensors, which are in the reports.
    std::future<std::string> report;
    std::optional<std::future<void>> committing;  ///< Set in the second part; has a thread on rank 0 only.
    std::optional<std::future<void>> clearing;    ///< Set in the third part.
    Clock::time_point begun;
    Clock::duration blocked;                  ///< How long training was blocked by this save so far.
    Clock::time_point blocked_since = begun;  ///< When training was blocked last.
  };

  /// Runs `operation` for the save under way. If it fails and the run goes on, begins to clear the files and returns
  /// false. A conflict with another run always ends the run.
  /// Ranks   Collective; every rank gets the same result.
  template <class Operation>
  bool handle_failure(Operation&& operation) {
    save_->blocked_since = Clock::now();
    try {
      std::forward<Operation>(operation)();
      if (save_) save_->blocked += Clock::now() - save_->blocked_since;
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::storage && error.code() != Errc::memory) {
        save_.reset();
        throw;
      }
      // Rank 0 decides: it made the last request for the manifest, and another rank may see an older state of a server.
      const auto verdict = broadcast_text(std::string{committer_.has_lost_place() ? "lost " : ""} +
                                              (committer_.may_be_committed(save_->step) ? "" : "removable"),
                                          *group_);
      const bool is_lost = verdict.starts_with("lost"), is_removable = verdict.ends_with("removable");
      if (is_lost || config_.on_failure == SnapshotFailure::stop) {
        if (is_removable) file_.remove(save_->step);
        save_.reset();
        throw;
      }
      warn_of(error);
      if (on_failed_) on_failed_(save_->step);
      save_->clearing = start_task(runs_, [this, step = save_->step, is_removable] {
        if (is_removable) file_.remove(step);
      });
      return false;
    }
  }

  void warn_of(const Error& error) {
    ++failures_;
    if (group_->rank() != 0) return;
    std::string reason = error.what();
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    log_.warn("the snapshot of step " + std::to_string(save_->step) +
              " failed and training goes on; failed snapshots of this run: " + std::to_string(failures_) +
              "; the reason: " + reason);
  }

  /// Gathers the reports of all ranks; then rank 0 starts to commit the snapshot.
  /// Ranks   Collective.
  void begin_committing() {
    auto reports = gather_reports(save_->report, save_->step, *group_);
    save_->committing.emplace();
    if (group_->rank() == 0)
      *save_->committing = start_task(runs_, [this, manifest = std::move(save_->manifest), reports] {
        if (pruning_.valid()) pruning_.get();
        committer_.commit(manifest, reports);
      });
  }

  /// Ranks   Collective.
  void finish_committing() {
    on_rank_zero(*group_, Errc::storage, [&] { save_->committing->get(); });
    committed_ = save_->step;
    const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
    saved_ = SnapshotSaved{.step = save_->step,
                           .path = history_->storage().full_name(Snapshots::folder_of(save_->step)),
                           .seconds = seconds(committer_.committed_at() - save_->begun),
                           .waited_seconds = seconds(save_->blocked + (Clock::now() - save_->blocked_since))};
    save_.reset();
  }

  /// Reports the snapshot that has become complete, if one has, and begins to remove old ones.
  /// Ranks   Collective.
  void report_and_prune() {
    const auto saved = std::exchange(saved_, {});
    if (!saved) return;
    on_rank_zero(*group_, Errc::storage, [&] {
      if (on_saved_) on_saved_(*saved);
    });
    if (group_->rank() != 0) return;
    pruning_ = start_task(runs_, [this] { committer_.prune(); });
    if (runs_ == TaskRuns::when_asked) pruning_.get();
  }

  /// Ranks   Collective.
  void finish_clearing() {
    save_->clearing->get();
    save_.reset();
    barrier(*group_);  // removing a folder's last file removes the folder, and the next save may use the same folder
  }

  /// Advances the save under way as long as no rank has to wait. Returns true if it is complete.
  /// Ranks   Collective.
  bool complete_without_waiting(std::int64_t step) {
    while (save_ && is_part_done_everywhere()) advance(step);
    return !save_;
  }

  bool is_part_done_everywhere() const {
    auto ranks_left = at::zeros({1}, at::TensorOptions{}.dtype(at::kLong));
    if (!is_part_done()) ranks_left.fill_(1);
    ranks_left = ranks_left.to(group_->device());
    all_reduce(ranks_left, *group_);
    return ranks_left.to(at::kCPU).item<std::int64_t>() == 0;
  }

  SnapshotConfig config_;
  const Group* group_;
  std::function<void(const SnapshotSaved&)> on_saved_;
  std::function<void(std::int64_t step)> on_failed_;
  Log log_;
  std::shared_ptr<const SnapshotHistory> history_;
  TaskRuns runs_;
  RankFile file_;
  SnapshotCommitter committer_;
  std::int64_t failures_ = 0;
  std::optional<std::int64_t> committed_ = {};
  std::optional<SnapshotSaved> saved_ = {};  ///< A snapshot that is complete and not yet reported.
  std::future<void> pruning_;                ///< On rank 0. The destructor waits for its thread.
  std::optional<Save> save_;                 ///< The save under way.
};

}  // namespace ddpxx
