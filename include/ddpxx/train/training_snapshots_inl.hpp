// ddpxx/train/training_snapshots_inl.hpp — definitions of training_snapshots.hpp; ddpxx/core/inline.hpp says how they
// are compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/storage/storage_opener.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/snapshot_history.hpp>
#include <ddpxx/train/snapshot_loader.hpp>
#include <ddpxx/train/snapshot_saver.hpp>
#include <ddpxx/train/training_settings.hpp>
#include <ddpxx/train/training_snapshots.hpp>

namespace ddpxx {

DDPXX_INLINE TrainingSnapshots::TrainingSnapshots(const Group& group, at::Device device, const TrainingConfig& training,
                                                  const SnapshotConfig& config, std::shared_ptr<Storage> storage,
                                                  StorageOpener open,
                                                  std::function<void(const SnapshotSaved&)> on_saved,
                                                  std::function<void(std::int64_t step)> on_failed)
    : group_{&group},
      device_{device},
      save_dir_{training.save_dir},
      seed_{training.seed},
      config_{config},
      storage_{std::move(storage)},
      open_{open},
      on_saved_{std::move(on_saved)},
      on_failed_{std::move(on_failed)},
      log_{group.rank()} {}

DDPXX_INLINE TrainingSnapshots::~TrainingSnapshots() = default;

DDPXX_INLINE std::optional<LoadedRun> TrainingSnapshots::load(const Settings& settings, const RunState& state,
                                                              bool has_stepped) {
  if (saver_) close();  // a training that was begun and not closed
  try {
    if (!save_dir_.empty())
      if (auto own = load_own(settings, state)) return own;
    if (has_loaded_ || has_stepped || config_.name.empty()) return std::nullopt;
    const auto chosen = load_chosen(config_.name, settings, state, *group_, device_, seed_, open_);
    return LoadedRun{chosen.run, held_state(state, chosen)};
  } catch (...) {
    saver_.reset();  // a later save would make the next start resume from a state that this one was not meant to have
    throw;
  }
}

DDPXX_INLINE bool TrainingSnapshots::is_part_done() const { return saver_ && saver_->is_part_done(); }

DDPXX_INLINE void TrainingSnapshots::advance(std::int64_t voted_at, std::int64_t step) {
  // The vote says nothing about a part that began later.
  if (saver_ && saver_->part_began_at() < voted_at) saver_->advance(step);
}

DDPXX_INLINE void TrainingSnapshots::save(const RunInfo& run, const RunState& state, Copies copies) {
  if (!saver_)
    throw Error{Errc::config, save_dir_.empty()
                                  ? "there is no place for a snapshot: set training.save_dir"
                                  : "save() comes between resume(), which opens training.save_dir, and close()"};
  if (saver_->save(run, state, copies)) saved_at_ = run.step;
}

DDPXX_INLINE bool TrainingSnapshots::has_saved(std::int64_t step) {
  if (saver_ && saved_at_ == step && loaded_at_ != step) finish();
  return saver_ && saved_at_ == step;
}

DDPXX_INLINE void TrainingSnapshots::expect_last() {
  finish();
  saver_->stop_on_failure();
}

DDPXX_INLINE void TrainingSnapshots::close() {
  finish();
  saver_.reset();
}

DDPXX_INLINE void TrainingSnapshots::finish() {
  try {
    if (!saver_->finish()) saved_at_ = -1;
  } catch (...) {
    saved_at_ = -1;  // a program may make room on the disk and save this step again
    throw;
  }
}

DDPXX_INLINE void TrainingSnapshots::warn_of_wait() const {
  const auto step = saver_ ? saver_->step_in_work() : std::nullopt;
  if (step)
    log_.warn("an error ends this rank once its work on the snapshot of step " + std::to_string(*step) +
              " is done; the other ranks may wait for it until then");
}

DDPXX_INLINE void TrainingSnapshots::finish_quietly() {
  if (saver_) try {
      saver_->finish();
    } catch (const std::exception& failure) {
      if (group_->rank() == 0) log_.warn(failure.what());
    }
}

DDPXX_INLINE std::string TrainingSnapshots::text() const {
  if (save_dir_.empty()) return "none, since training.save_dir is empty";
  const auto saved = saver_ ? saver_->committed() : std::nullopt;
  const auto newest = saved ? saved : loaded_at_;
  return newest ? "the last one is of step " + std::to_string(*newest) : "none so far";
}

DDPXX_INLINE std::optional<LoadedRun> TrainingSnapshots::load_own(const Settings& settings, const RunState& state) {
  const auto& chosen = config_.name;
  if (!chosen.empty()) on_rank_zero(*group_, Errc::config, [&] { check_chosen_place(chosen, save_dir_, open_); });
  on_every_rank(*group_, Errc::config, [&] {  // now, since the first save may come after hours of training
    check_types(state);
    return true;
  });
  const auto history = std::make_shared<SnapshotHistory>(storage_ ? storage_ : open_(save_dir_), *group_);
  saver_ = std::make_unique<SnapshotSaver>(history, config_, *group_, device_, on_saved_, on_failed_);
  auto found = SnapshotLoader{history, config_.load_attempts, *group_, device_}.load(settings, state, seed_);
  warn_of_little_space(*history, bytes_of_snapshot(state));
  if (!found) return found;
  if (!chosen.empty()) log_own_instead_of_chosen(chosen, save_dir_, found->info.step, log_, open_);
  saved_at_ = found->info.step;
  loaded_at_ = found->info.step;
  has_loaded_ = true;
  return found;
}

DDPXX_INLINE void TrainingSnapshots::warn_of_little_space(const SnapshotHistory& history, std::uint64_t bytes) const {
  if (group_->rank() != 0) return;
  try {
    const auto free = history.storage().free_bytes();
    if (!free) return;
    // A save removes old snapshots once the new one is complete. Those that exist take no more space.
    const auto kept = static_cast<std::uint64_t>(config_.keep_last) + static_cast<std::uint64_t>(config_.keep_best);
    const auto existing = static_cast<std::uint64_t>(history.snapshots().list().size());
    const auto more = config_.keep_last == 0 ? 1 : std::max(kept, existing) - existing + 1;
    if (*free / more >= bytes) return;
    log_.warn(save_dir_ + " has " + bytes_text(*free) + " free, a snapshot takes " + bytes_text(bytes) +
              (more > 1 ? ", and there may be " + std::to_string(more) + " more of them during a save" : "") +
              ": make room, keep fewer snapshots, or choose another training.save_dir, before a save fails");
  } catch (const Error&) {  // other ranks do not ask, and an answer is only advice
  }
}

}  // namespace ddpxx
