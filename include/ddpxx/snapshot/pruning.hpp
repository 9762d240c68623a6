// ddpxx/snapshot/pruning.hpp — one pruning of a storage: decides which snapshots and files go, and removes them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/snapshot/retention.hpp>
#include <ddpxx/snapshot/snapshot_facts.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>

namespace ddpxx::detail {

/// Removes what `Snapshots::prune` says.
class Pruning {
 public:
  /// `facts` are those that `snapshots` keeps of the manifests that it has read.
  Pruning(const Snapshots& snapshots, const SnapshotFactsCache& facts, const Snapshots::Owner& owner)
      : snapshots_{&snapshots}, facts_{&facts}, owner_{&owner} {}

  /// Ends after `patience`, and the next call goes on: the facts of the manifests that were read are kept.
  void run(const Retention& retention, std::chrono::milliseconds patience) const {
    const auto all = snapshots_->list();
    const auto until = std::chrono::steady_clock::now() + patience;
    std::vector<RetainedSnapshot> sound;
    for (const auto& stored : all) {
      if (std::chrono::steady_clock::now() >= until) return;
      const auto* facts = sound.empty() ? read_own_facts(stored) : try_read_own_facts(stored);
      if (facts != nullptr) sound.push_back(facts->retained);
      if (retention.last == 0 && !sound.empty()) break;  // all are kept: only the newest step is needed
    }
    if (sound.empty()) return;
    const auto newest = sound.front().step;
    const auto kept = retention.keep(sound);
    const auto is_kept = [&](const StoredSnapshot& stored) {
      return stored.committed && (retention.last == 0 || kept.contains(stored.step));
    };
    const auto oldest_kept = std::find_if(all.rbegin(), all.rend(), is_kept)->step;
    for (const auto& stored : all) {
      if (std::chrono::steady_clock::now() >= until) return;
      if (stored.step < newest) prune(stored, is_kept(stored), stored.step < oldest_kept);
    }
  }

 private:
  /// `is_past`: all snapshots that are kept are newer.
  void prune(const StoredSnapshot& stored, bool is_kept, bool is_past) const {
    const auto* facts = own_facts(stored);
    const auto is_own_shard = [&](const std::string& file) { return is_shard(file) && is_own(file); };
    const auto is_own_file = [&](const std::string& file) { return is_own_shard(file) || is_note(file); };
    const auto has_only_own_shards = [&] {
      return std::ranges::all_of(stored.sizes,
                                 [&](const auto& file) { return !is_shard(file.first) || is_own(file.first); });
    };
    if (facts != nullptr && !is_kept) {
      if (snapshots_->is_written_by(facts->start, stored.step))
        remove_snapshot(stored,
                        [&](const std::string& file) { return facts->files.contains(file) || is_own_file(file); });
    } else if (facts != nullptr && !stored.set_aside)
      remove_files(stored, [&](const std::string& file) { return is_own_shard(file) && !facts->files.contains(file); });
    else if (!stored.committed && !stored.set_aside)
      remove_files(stored, [&](const std::string& file) {
        return is_of_starts(file) || (is_past && (is_own_shard(file) || (is_note(file) && owner_->of_the_place)));
      });
    else if (!stored.committed && is_past && has_only_own_shards())
      remove_snapshot(stored, is_own_file);
  }

  bool is_of_starts(std::string_view text) const {
    return std::ranges::any_of(owner_->starts,
                               [text](const auto& start) { return text.find(start) != std::string_view::npos; });
  }
  bool is_own(std::string_view text) const { return owner_->of_the_place || is_of_starts(text); }

  /// Returns the cached facts of a snapshot of the owner; null for any other.
  const SnapshotFacts* own_facts(const StoredSnapshot& stored) const {
    const auto* facts = facts_->find(stored);
    return facts != nullptr && is_own(facts->start) ? facts : nullptr;
  }
  /// Returns the facts after reading the manifest if needed; null also if the snapshot is damaged.
  const SnapshotFacts* read_own_facts(const StoredSnapshot& stored) const {
    if (stored.committed && facts_->find(stored) == nullptr) snapshots_->read(stored);
    return own_facts(stored);
  }

  /// Keeps a snapshot whose manifest cannot be read, for example one of another version. Called once a newer snapshot
  /// is known, so that a storage that does not answer is still an error.
  const SnapshotFacts* try_read_own_facts(const StoredSnapshot& stored) const {
    try {
      return read_own_facts(stored);
    } catch (const Error&) {
      return nullptr;
    }
  }

  /// True for the name of a file with tensors, written by a rank or by `save_snapshot`.
  static bool is_shard(std::string_view file) { return file.starts_with("rank-") || file.starts_with("all."); }

  /// True for the name of a file that a loader leaves beside the tensors.
  static bool is_note(std::string_view file) { return file == Snapshots::kRejected || file == Snapshots::kAttempts; }

  /// Removes the manifest and the files that ddpxx wrote. Others, such as a user's own, stay in the folder.
  template <class IsPart>
  void remove_snapshot(StoredSnapshot stored, const IsPart& is_part) const {
    std::erase_if(stored.sizes, [&](const auto& file) { return !is_part(file.first); });
    snapshots_->remove(stored);
  }

  template <class IsLeft>
  void remove_files(const StoredSnapshot& stored, const IsLeft& is_left) const {
    for (const auto& [file, size] : stored.sizes)
      if (is_left(file)) snapshots_->storage().remove(stored.folder + file);
  }

  const Snapshots* snapshots_;
  const SnapshotFactsCache* facts_;
  const Snapshots::Owner* owner_;
};

}  // namespace ddpxx::detail
