// ddpxx/train/snapshot_history.hpp — a place where a run saves its snapshots, and which snapshots there are its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/start_name.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/train/shared_place.hpp>

namespace ddpxx {

/// The storage of a run's snapshots, and what the run knows of the snapshots there. A SnapshotLoader and a
/// SnapshotSaver of one run share one history: the saver must not remove or replace what the loader has not found to be
/// the run's.
class SnapshotHistory {
 public:
  /// Prepares `storage` for writing and claims it for this process, where it has locks. `storage` may be any Storage;
  /// `open_storage(location)` makes one for a folder or an s3:// location.
  /// Ranks   Collective.
  /// Errors  `storage` on every rank if no snapshot can be written there, or if a rank on another machine has another
  ///         place of that name.
  SnapshotHistory(std::shared_ptr<Storage> storage, const Group& group)
      : storage_{std::move(storage)}, snapshots_{*storage_}, rank_{group.rank()}, world_size_{group.size()} {
    on_rank_zero(group, Errc::storage, [&] {
      try {
        if (const auto itself = snapshot_of_step_folder(*storage_))
          throw Error{Errc::storage, "it is the folder of one snapshot, of step " + std::to_string(*itself->step) +
                                         ": to go on with that run, name " + itself->place +
                                         "; to begin another run with "
                                         "that snapshot, set snapshot=" +
                                         itself->place + ':' + std::to_string(*itself->step) + " and another save_dir"};
        storage_->prepare();
        is_claimed_ = storage_->claim("process " + std::to_string(::getpid()) + " on " + host_name());
        for (const auto& link : snapshots_.linked_folders())
          throw Error{Errc::storage,
                      link + " is a symbolic link, and a folder is expected: replace the link by the folder itself"};
      } catch (const Error& error) {
        auto name = storage_->full_name("");
        if (name.size() > 1 && name.ends_with('/')) name.pop_back();
        throw Error{error.code(), "no snapshot can be written to " + name + ": choose another training.save_dir"}.with(
            "cause", error.what());
      }
    });
    starts_.push_back(broadcast_text(draw_start_name(), group));
    check_shared_place(*storage_, starts_.back(), group);
  }
  SnapshotHistory(const SnapshotHistory&) = delete;
  SnapshotHistory& operator=(const SnapshotHistory&) = delete;

  Storage& storage() const noexcept { return *storage_; }
  const Snapshots& snapshots() const noexcept { return snapshots_; }

  /// True on rank 0 if the storage has locks and this process holds its lock: no other program writes there.
  bool is_claimed() const noexcept { return is_claimed_; }

  /// The names of the starts of this run, the present one last. Manifests and file names contain them.
  const std::vector<std::string>& starts() const noexcept { return starts_; }

  /// The name of the file that this rank writes into the folder of each snapshot.
  std::string file_name() const {
    return "rank-" + std::to_string(rank_) + "-of-" + std::to_string(world_size_) + '.' + starts_.back() +
           ".safetensors";
  }

  /// Puts the starts that led to the loaded snapshot before the present one.
  void continue_from(const Manifest& loaded) {
    const auto count = std::min<std::size_t>(loaded.starts.size(), kMaxStarts);
    starts_.insert(starts_.begin(), loaded.starts.end() - static_cast<std::ptrdiff_t>(count), loaded.starts.end());
  }

  /// Notes which steps had a snapshot when this run began.
  void set_steps_at_start(std::set<std::int64_t> steps) { steps_at_start_ = std::move(steps); }

  /// Returns a text that names the conflict if another run has committed a snapshot of a later step than `manifest`
  /// since this run began. Returns none if the steps at the start were not noted.
  std::optional<std::string> find_later_of_another(const Manifest& manifest) const {
    return steps_at_start_ ? snapshots_.find_later_of_another(manifest, *steps_at_start_) : std::nullopt;
  }

 private:
  static constexpr std::size_t kMaxStarts = 100;

  std::shared_ptr<Storage> storage_;
  Snapshots snapshots_;
  int rank_;
  int world_size_;
  std::vector<std::string> starts_;
  bool is_claimed_ = false;
  std::optional<std::set<std::int64_t>> steps_at_start_;  ///< On rank 0.
};

}  // namespace ddpxx
