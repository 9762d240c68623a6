// ddpxx/train/training_snapshots.hpp — the snapshots of one training: the one that it begins with, and those it saves.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/snapshot_history.hpp>
#include <ddpxx/train/snapshot_loader.hpp>
#include <ddpxx/train/snapshot_saver.hpp>
#include <ddpxx/train/training_config.hpp>

namespace ddpxx {

/// Opens the place of a training's snapshots, loads one, and saves others; knows which step was saved last.
/// Ranks   All functions are collective, except those that are const.
/// Errors  those of SnapshotHistory, SnapshotLoader, SnapshotSaver and load_chosen.
class TrainingSnapshots {
 public:
  /// Snapshots go to `storage`, or where it is null, to training.save_dir.
  TrainingSnapshots(const Group& group, at::Device device, const TrainingConfig& training, const SnapshotConfig& config,
                    std::shared_ptr<Storage> storage, std::function<void(const SnapshotSaved&)> on_saved)
      : group_{&group},
        device_{device},
        save_dir_{training.save_dir},
        seed_{training.seed},
        config_{config},
        storage_{std::move(storage)},
        on_saved_{std::move(on_saved)},
        log_{group.rank()} {}

  /// Opens save_dir, if there is one, and loads the newest snapshot there into `state`. Where there is none, loads the
  /// snapshot that `snapshot.name` chooses, unless `has_stepped`: the state is in use then. Returns none where nothing
  /// was loaded.
  std::optional<LoadedRun> load(const Settings& settings, const RunState& state, bool has_stepped) {
    if (saver_) close();  // a training that was begun and not closed
    if (!save_dir_.empty())
      if (auto own = load_own(settings, state)) return own;
    if (has_loaded_ || has_stepped || config_.name.empty()) return std::nullopt;
    const auto chosen = load_chosen(config_.name, settings, state, *group_, device_, seed_);
    return LoadedRun{chosen.run, !lacks_optimizer(chosen)};
  }

  /// Whether there is a place to save to: between load() with a save_dir, and close().
  bool is_open() const noexcept { return saver_.has_value(); }
  /// Whether the training goes on with a snapshot of its own.
  bool has_loaded() const noexcept { return has_loaded_; }
  /// Whether the last snapshot that was loaded or saved is of this step.
  bool is_saved(std::int64_t step) const noexcept { return saved_at_ == step; }

  /// Whether this rank has done its present part of the save under way.
  bool is_part_done() const { return saver_ && saver_->is_part_done(); }
  /// Goes on with the save under way, since all ranks voted at the begin of step `voted_at` that their parts are done;
  /// `step` counts the steps done.
  void advance(std::int64_t voted_at, std::int64_t step) {
    // The vote says nothing about a part that began later.
    if (saver_ && saver_->part_began_at() < voted_at) saver_->advance(step);
  }

  /// Saves the run, as SnapshotSaver::save does.
  /// Errors  `config` where no place is open.
  void save(const RunInfo& run, const RunState& state, Copies copies) {
    if (!saver_)
      throw Error{Errc::config, save_dir_.empty()
                                    ? "there is no place for a snapshot: set training.save_dir"
                                    : "save() comes between resume(), which opens training.save_dir, and close()"};
    if (saver_->save(run, state, copies)) saved_at_ = run.step;
  }

  /// Waits for the save under way, before the last save of the training: a failure ends the run from now on.
  void expect_last() {
    if (!saver_->finish()) saved_at_ = -1;
    saver_->stop_on_failure();
  }
  /// Waits for the save under way, and leaves the place.
  void close() {
    saver_->finish();
    saver_.reset();
  }
  /// Waits for the save under way while an error ends the training, which no other error must hide.
  void finish_quietly() {
    if (saver_) try {
        saver_->finish();
      } catch (const std::exception& failure) {
        if (group_->rank() == 0) log_.warn(failure.what());
      }
  }

  /// What there is to go back to, for an error that ends the training.
  std::string text() const {
    if (save_dir_.empty()) return "none, since training.save_dir is empty";
    if (saved_at_ < 0) return "none so far";
    return "the last one is of step " + std::to_string(saved_at_);
  }

 private:
  std::optional<LoadedRun> load_own(const Settings& settings, const RunState& state) {
    const auto& chosen = config_.name;
    if (!chosen.empty()) on_rank_zero(*group_, Errc::config, [&] { check_chosen_place(chosen, save_dir_); });
    const auto history = std::make_shared<SnapshotHistory>(storage_ ? storage_ : open_storage(save_dir_), *group_);
    saver_.emplace(history, config_, *group_, device_, on_saved_);
    auto found = SnapshotLoader{history, config_.load_attempts, *group_, device_}.load(settings, state, seed_);
    if (!found) return found;
    if (!chosen.empty()) log_own_instead_of_chosen(chosen, save_dir_, found->info.step, log_);
    saved_at_ = found->info.step;
    has_loaded_ = true;
    return found;
  }

  const Group* group_;
  at::Device device_;
  std::string save_dir_;
  std::uint64_t seed_;
  SnapshotConfig config_;
  std::shared_ptr<Storage> storage_;
  std::function<void(const SnapshotSaved&)> on_saved_;
  Log log_;
  std::optional<SnapshotSaver> saver_;
  std::int64_t saved_at_ = -1;
  bool has_loaded_ = false;
};

}  // namespace ddpxx
