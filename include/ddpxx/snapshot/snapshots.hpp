// ddpxx/snapshot/snapshots.hpp — the snapshots in a storage: listing, committing, setting aside and pruning them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/retention.hpp>
#include <ddpxx/snapshot/snapshot_facts.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// The result of reading a manifest: the manifest, or the text of its damage.
struct ReadSnapshot {
  StoredSnapshot stored;
  std::optional<Manifest> manifest;
  std::string damage;
  std::optional<StoredRange> unreadable = {};  ///< Set if the storage could not read the manifest, or had none.
};

/// The snapshots in a storage, in one folder for each step: `step-00000100/` holds a file of each rank and
/// `manifest.json`, which is written last. Readers ignore files that no manifest lists. Manifests are cached, so only
/// one thread at a time may call `read`, `try_commit` and `prune`.
/// Errors  `storage`, from every function.
class Snapshots {
 public:
  static constexpr const char* kManifest = "manifest.json";
  static constexpr const char* kRejected = "manifest.rejected.json";
  static constexpr const char* kAttempts = "attempts";

  explicit Snapshots(Storage& storage) : storage_{&storage} {}

  /// Returns the name of a step's folder, with a slash at the end.
  static std::string folder_of(std::int64_t step);

  /// Returns the step whose folder has this name, with a slash at the end; none for any other name.
  static std::optional<std::int64_t> step_of(std::string_view folder);

  /// Lists the folders of all steps, the newest first.
  std::vector<StoredSnapshot> list() const;

  /// Returns the names of symbolic links that are named like the folder of a step. `list` does not follow them.
  std::vector<std::string> linked_folders() const;

  /// Reads a manifest and compares the files' sizes with it. The files' checksums are checked when they are read.
  ReadSnapshot read(const StoredSnapshot& stored) const;

  /// Checks what `try_commit` checks before it creates the manifest, but for the files.
  /// Errors  `storage` if no reader would take the manifest.
  static void check(const Manifest& manifest);

  /// Commits the files of a step by creating its manifest. Replaces a manifest that this start of the program created
  /// earlier without seeing the reply. Returns a text that names the conflict if another run owns the step.
  /// Errors  `storage`, also if the manifest that is there is damaged: then its owner is unknown.
  std::optional<std::string> try_commit(const Manifest& manifest) const;

  /// Returns a text that names the conflict if another start has committed a later step than `manifest`. Ignores the
  /// steps in `known`, which were there when the run began.
  std::optional<std::string> find_later_of_another(const Manifest& manifest, const std::set<std::int64_t>& known) const;

  /// True if there is a manifest of that step, also a damaged one. A reader that misses a file asks this, since another
  /// program may have removed the snapshot meanwhile.
  bool is_there(std::int64_t step) const;

  /// True if the manifest of a step lists that file, or is damaged and may list it.
  bool is_in_use(std::int64_t step, std::string_view file) const;

  /// True if that start of the program wrote the manifest that is there now. Reads the manifest, since another start
  /// may have replaced it.
  bool is_written_by(const std::string& start, std::int64_t step) const;

  /// Moves the manifest of a damaged snapshot to another name, so that the run can save this step again. The files can
  /// be examined until `prune` removes them, which is when all snapshots that are kept are newer. If the manifest
  /// cannot be read, the file of that name holds the reason.
  void set_aside(const StoredSnapshot& stored) const;

  /// Returns how many starts were killed while they read this snapshot; 0 if what is stored is no number.
  ///
  /// Errors  UnreadableObject if the storage cannot read the count.
  std::int64_t attempts(const StoredSnapshot& stored) const;
  /// Writes the number of attempts to load the snapshot that have not ended.
  void write_attempts(const StoredSnapshot& stored, std::int64_t count) const;
  /// Removes the number of attempts.
  void clear_attempts(const StoredSnapshot& stored) const;

  /// Removes a snapshot. The manifest goes first, so that the rest is never taken for a snapshot.
  void remove(const StoredSnapshot& stored) const;

  /// Which snapshots and unfinished saves `prune` may remove.
  struct Owner {
    bool of_the_place = false;            ///< No other program writes here: all snapshots may be removed.
    std::span<const std::string> starts;  ///< Otherwise only those that these processes wrote may be removed.
  };

  /// Removes the owner's snapshots that `retention` does not keep. Also removes, from the steps before the newest
  /// snapshot, these files of the owner:
  ///   - files of saves that its starts did not complete,
  ///   - tensor files beside a kept snapshot that the manifest does not list,
  ///   - once all kept snapshots are newer: snapshots that were set aside, and, where no other program writes, the
  ///     unfinished saves of other starts.
  /// Keeps the newest snapshot, damaged ones, those whose manifest cannot be read, and all files that ddpxx has not
  /// written. After `patience` it reads no further manifest and removes no further snapshot; the next call goes on.
  /// Errors  `storage`, also if none of the owner's manifests could be read before one that cannot be read.
  void prune(const Retention& retention, const Owner& owner,
             std::chrono::milliseconds patience = std::chrono::hours{24}) const;

  /// How often a reader lists the snapshots while another program removes those that it has listed.
  static constexpr int kMaxListings = 5;

  Storage& storage() const noexcept { return *storage_; }

 private:
  /// Returns none also if the manifest is damaged.
  std::optional<Manifest> manifest_of(std::int64_t step) const;
  /// Reads the text of a manifest. A wrong checksum is read once more, since the bytes may have been damaged on the
  /// way.
  std::optional<std::string> manifest_text(std::int64_t step) const;
  std::string conflict_text(std::int64_t step) const;
  /// Checks that rank 0 sees all files of the manifest in their sizes.
  void check_files(const Manifest& manifest) const;

  Storage* storage_;
  mutable detail::SnapshotFactsCache facts_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/snapshots_inl.hpp>
#endif
