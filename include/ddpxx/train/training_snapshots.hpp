// ddpxx/train/training_snapshots.hpp — the snapshots of one training: the one that it begins with, and those it saves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/storage/storage_opener.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

class SnapshotHistory;
class SnapshotSaver;

/// Opens the place of a training's snapshots, loads one, and saves others; knows which step was saved last.
/// Ranks   All functions are collective, except those that are const.
/// Errors  those of SnapshotHistory, SnapshotLoader, SnapshotSaver and load_chosen.
class TrainingSnapshots {
 public:
  /// Snapshots go to `storage`, or where it is null, to training.save_dir, which `open` opens. `on_saved` and
  /// `on_failed` are called as SnapshotSaver says.
  TrainingSnapshots(const Group& group, at::Device device, const TrainingConfig& training, const SnapshotConfig& config,
                    std::shared_ptr<Storage> storage, StorageOpener open,
                    std::function<void(const SnapshotSaved&)> on_saved,
                    std::function<void(std::int64_t step)> on_failed);
  TrainingSnapshots(const TrainingSnapshots&) = delete;
  TrainingSnapshots& operator=(const TrainingSnapshots&) = delete;
  ~TrainingSnapshots();

  /// Opens save_dir, if there is one, and loads the newest snapshot there into `state`. Where there is none, loads the
  /// snapshot that `snapshot.name` chooses, unless `has_stepped`: the state is in use then. Returns none where nothing
  /// was loaded. After an error no place is open.
  std::optional<LoadedRun> load(const Settings& settings, const RunState& state, bool has_stepped);

  /// Whether there is a place to save to: between load() with a save_dir, and close().
  bool is_open() const noexcept { return saver_ != nullptr; }
  /// Whether the training resumes from a snapshot of its own.
  bool has_loaded() const noexcept { return has_loaded_; }
  /// Whether the last snapshot that was loaded or saved is of this step.
  bool is_saved(std::int64_t step) const noexcept { return saved_at_ == step; }
  /// Whether a snapshot of this step was loaded or is complete; waits for one that is being written.
  /// Ranks   Collective.
  bool has_saved(std::int64_t step);

  /// Whether this rank has done its present part of the save under way.
  bool is_part_done() const;
  /// Goes on with the save under way, since all ranks voted at the begin of step `voted_at` that their parts are done;
  /// `step` counts the steps done.
  void advance(std::int64_t voted_at, std::int64_t step);

  /// Saves the run, as SnapshotSaver::save does.
  /// Errors  `config` where no place is open.
  void save(const RunInfo& run, const RunState& state, Copies copies);

  /// Waits for the save under way, before the last save of the training: a failure ends the run from now on.
  void expect_last();
  /// Waits for the save under way, and leaves the place.
  void close();
  /// If an error ends this rank while it still works on a snapshot, warns that it ends only after that: until then the
  /// other ranks do not notice its failure.
  /// Ranks   Local.
  void warn_of_wait() const;
  /// Waits for the save under way while an error ends the training, which no other error must hide.
  void finish_quietly();

  /// A text that names the newest complete snapshot of this training, for an error that ends it. Call finish_quietly()
  /// before.
  std::string text() const;

 private:
  std::optional<LoadedRun> load_own(const Settings& settings, const RunState& state);
  /// Warns on rank 0 if the place has no space for the snapshots of this run, of `bytes` each.
  void warn_of_little_space(const SnapshotHistory& history, std::uint64_t bytes) const;
  /// Waits for the save under way. Its step is not saved if that has failed.
  void finish();

  const Group* group_;
  at::Device device_;
  std::string save_dir_;
  std::uint64_t seed_;
  SnapshotConfig config_;
  std::shared_ptr<Storage> storage_;
  StorageOpener open_;
  std::function<void(const SnapshotSaved&)> on_saved_;
  std::function<void(std::int64_t step)> on_failed_;
  Log log_;
  std::unique_ptr<SnapshotSaver> saver_;
  std::int64_t saved_at_ = -1;                  ///< Step of the last snapshot that was loaded or whose save was begun.
  std::optional<std::int64_t> loaded_at_ = {};  ///< Step of the snapshot that was loaded from the place.
  bool has_loaded_ = false;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/training_snapshots_inl.hpp>
#endif
