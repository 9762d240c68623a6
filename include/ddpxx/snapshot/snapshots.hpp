// ddpxx/snapshot/snapshots.hpp — the snapshots in a storage: listing, committing, setting aside and pruning them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/retention.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// The files of one step. They are a snapshot only if a manifest is among them. Otherwise the save was not completed,
/// the manifest got lost, or the snapshot was set aside.
struct StoredSnapshot {
  std::int64_t step = 0;
  std::string folder;      ///< Its name, with a slash at the end.
  bool committed = false;  ///< There is a manifest.
  bool set_aside = false;  ///< A damaged snapshot of this step was set aside. A later one may be committed.
  std::map<std::string, std::uint64_t> sizes;  ///< The size of each file, by its name in the folder.
};

/// The result of reading a manifest: the manifest, or the text of its damage.
struct ReadSnapshot {
  StoredSnapshot stored;
  std::optional<Manifest> manifest;
  std::string damage;
  std::optional<StoredRange> unreadable = {};  ///< Set if the storage could not read the manifest.
};

/// The snapshots in a storage, in one folder for each step: `step-00000100/` holds a file of each rank and
/// `manifest.json`, which is written last. Readers ignore files that no manifest lists. Manifests are cached, so only
/// one thread at a time may call `read`, `commit` and `prune`.
/// Errors  `storage`, from every function.
class Snapshots {
 public:
  static constexpr const char* kManifest = "manifest.json";
  static constexpr const char* kRejected = "manifest.rejected.json";
  static constexpr const char* kAttempts = "attempts";

  explicit Snapshots(Storage& storage) : storage_{&storage} {}

  static std::string folder_of(std::int64_t step) {
    auto digits = std::to_string(step);
    digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
    return "step-" + digits + '/';
  }

  /// Lists the folders of all steps, the newest first.
  std::vector<StoredSnapshot> list() const {
    std::map<std::int64_t, StoredSnapshot> found;
    for (const auto& [name, size] : storage_->list(std::string{kPrefix})) {
      const auto step = step_in(name);
      if (!step) continue;
      auto& snapshot = found[*step];
      snapshot.step = *step;
      snapshot.folder = folder_of(*step);
      const auto file = name.substr(snapshot.folder.size());
      snapshot.committed = snapshot.committed || file == kManifest;
      snapshot.set_aside = snapshot.set_aside || file == kRejected;
      snapshot.sizes.emplace(file, size);
    }
    std::vector<StoredSnapshot> snapshots;
    for (auto each = found.rbegin(); each != found.rend(); ++each) snapshots.push_back(std::move(each->second));
    return snapshots;
  }

  /// Returns the names of symbolic links that are named like the folder of a step. `list` does not follow them.
  std::vector<std::string> linked_folders() const {
    std::vector<std::string> linked;
    for (const auto& name : storage_->links())
      if (name.starts_with(kPrefix) && step_in(name + '/')) linked.push_back(storage_->full_name(name));
    return linked;
  }

  /// Reads a manifest and compares the files' sizes with it. The files' checksums are checked when they are read.
  ReadSnapshot read(const StoredSnapshot& stored) const {
    ReadSnapshot snapshot{stored, std::nullopt, {}};
    std::optional<std::string> text;
    try {
      text = manifest_text(stored.step);
    } catch (const UnreadableObject& error) {
      snapshot.damage = error.what();
      snapshot.unreadable = error.range();
      return snapshot;
    }
    try {
      if (!text) throw Error{Errc::storage, "it is gone"};
      auto manifest = parse_manifest(*text);
      if (manifest.run.step != stored.step)
        throw Error{Errc::storage, "it is of step " + std::to_string(manifest.run.step)};
      for (const auto& file : manifest.files) {
        const auto size = stored.sizes.find(file.name);
        if (size == stored.sizes.end()) throw Error{Errc::storage, "its file " + file.name + " is missing"};
        if (size->second != file.bytes)
          throw Error{Errc::storage, "its file " + file.name + " has " + std::to_string(size->second) + " bytes, not " +
                                         std::to_string(file.bytes)};
      }
      remember(manifest);
      snapshot.manifest = std::move(manifest);
    } catch (const Error& error) {
      if (text && is_of_another_version(*text))
        throw Error{Errc::storage, storage_->full_name(stored.folder + kManifest) +
                                       " was written by another version of ddpxx: use that one, or another save_dir"};
      snapshot.damage = storage_->full_name(stored.folder + kManifest) + " is not usable: " + error.what();
    }
    return snapshot;
  }

  /// Commits the files of a step by creating its manifest. Replaces a manifest that this start of the program created
  /// earlier without seeing the reply. Returns a text that names the conflict if another run owns the step.
  /// Errors  `storage`, also if the manifest that is there is damaged: then its owner is unknown.
  std::optional<std::string> try_commit(const Manifest& manifest) const {
    const auto name = folder_of(manifest.run.step) + kManifest;
    const auto text = print_manifest(manifest);
    if (text.size() > kMaxManifestBytes)
      throw Error{Errc::storage, storage_->full_name(name) + " would have " + std::to_string(text.size()) +
                                     " bytes, and no reader takes more than " + std::to_string(kMaxManifestBytes) +
                                     ": save from fewer ranks, or a model of fewer tensors"};
    parse_manifest(text);
    check_files(manifest);
    failpoint("snapshot.before_commit");
    for (int tries = 1; !storage_->create(name, bytes_of(text)); ++tries) {
      const auto found = manifest_text(manifest.run.step);
      if (!found && tries < kMaxTries) continue;  // it was removed meanwhile
      if (!found)
        throw Error{Errc::storage, storage_->full_name(name) +
                                       " is created and removed again and again: another program works in this folder"};
      const auto there = parse_or_none(*found);
      if (!there && !is_of_another_version(*found))
        throw Error{
            Errc::storage,
            storage_->full_name(name) +
                " is there already and damaged, so its owner is unknown: remove it, or choose another save_dir"};
      if (!there || manifest.starts.empty() || there->starts != manifest.starts)
        return conflict_text(manifest.run.step);
      const Bytes parts[] = {bytes_of(text)};
      storage_->write(name, parts);
      break;
    }
    failpoint("snapshot.after_commit");
    remember(manifest);
    return std::nullopt;
  }
  /// Commits as `try_commit` does.
  /// Errors  `storage` also if another run owns the step.
  void commit(const Manifest& manifest) const {
    if (const auto conflict = try_commit(manifest)) throw Error{Errc::storage, *conflict};
  }

  /// Returns a text that names the conflict if another start has committed a later step than `manifest`. Ignores the
  /// steps in `known`, which were there when the run began.
  std::optional<std::string> find_later_of_another(const Manifest& manifest,
                                                   const std::set<std::int64_t>& known) const {
    for (const auto& stored : list()) {
      if (stored.step <= manifest.run.step) break;
      if (!stored.committed || known.contains(stored.step)) continue;
      const auto there = manifest_of(stored.step);
      if (there && (manifest.starts.empty() || there->starts.empty() || there->starts.back() != manifest.starts.back()))
        return conflict_text(stored.step);
    }
    return std::nullopt;
  }

  /// True if the manifest of a step lists that file, or is damaged and may list it.
  bool is_in_use(std::int64_t step, std::string_view file) const {
    const auto text = manifest_text(step);
    if (!text) return false;
    try {
      return std::ranges::any_of(parse_manifest(*text).files, [&](const ShardFile& each) { return each.name == file; });
    } catch (const Error&) {
      return true;
    }
  }

  /// Moves the manifest of a damaged snapshot to another name, so that the run can save this step again. The files can
  /// be examined until `prune` removes them, which is when all snapshots that are kept are newer. If the manifest
  /// cannot be read, the file of that name holds the reason.
  void set_aside(const StoredSnapshot& stored) const {
    const auto name = stored.folder + kManifest;
    failpoint("snapshot.before_set_aside");
    std::optional<std::string> text;
    try {
      text = storage_->read_text(name, kMaxManifestBytes);
    } catch (const UnreadableObject& error) {
      text = std::string{error.what()} + '\n';
    }
    if (text) {
      const Bytes parts[] = {bytes_of(*text)};
      storage_->write(stored.folder + kRejected, parts);
    }
    clear_attempts(stored);  // first, so that a count cannot apply to the step's next snapshot
    storage_->remove(name);
  }

  /// Returns how many starts were killed while they read this snapshot; 0 if the count is damaged.
  std::int64_t attempts(const StoredSnapshot& stored) const {
    if (!stored.sizes.contains(kAttempts)) return 0;
    const auto text = storage_->read_text(stored.folder + kAttempts, kMaxAttemptsBytes).value_or("");
    std::int64_t count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    return std::max<std::int64_t>(count, 0);
  }
  /// Writes the number of attempts to load the snapshot that have not ended.
  void write_attempts(const StoredSnapshot& stored, std::int64_t count) const {
    const auto text = std::to_string(count) + '\n';
    const Bytes parts[] = {bytes_of(text)};
    storage_->write(stored.folder + kAttempts, parts);
  }
  /// Removes the number of attempts.
  void clear_attempts(const StoredSnapshot& stored) const { storage_->remove(stored.folder + kAttempts); }

  /// Removes a snapshot. The manifest goes first, so that the rest is never taken for a snapshot.
  void remove(const StoredSnapshot& stored) const {
    failpoint("snapshot.before_remove");
    if (stored.committed) storage_->remove(stored.folder + kManifest);
    failpoint("snapshot.after_remove_manifest");
    for (const auto& [file, size] : stored.sizes)
      if (file != kManifest) storage_->remove(stored.folder + file);
    failpoint("snapshot.after_remove");
  }

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
  /// Keeps the newest snapshot and damaged ones.
  void prune(const Retention& retention, const Owner& owner) const {
    const auto is_of_starts = [&](std::string_view text) {
      return std::ranges::any_of(owner.starts,
                                 [text](const auto& start) { return text.find(start) != std::string_view::npos; });
    };
    const auto is_own = [&](std::string_view text) { return owner.of_the_place || is_of_starts(text); };
    const auto own_facts = [&](const Facts* facts) {
      return facts != nullptr && is_own(facts->start) ? facts : nullptr;
    };
    const auto all = list();
    std::vector<RetainedSnapshot> sound;
    for (const auto& stored : all) {
      if (const auto* facts = own_facts(cached_or_read(stored))) sound.push_back(facts->retained);
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
      if (stored.step >= newest) continue;
      const auto* facts = own_facts(cached(stored));
      const bool is_past = stored.step < oldest_kept;
      const auto is_own_or_note = [&](const auto& file) {
        return is_own(file.first) || file.first == kRejected || file.first == kAttempts;
      };
      if (facts != nullptr && !is_kept(stored)) {
        if (is_written_by(facts->start, stored.step)) remove(stored);
      } else if (facts != nullptr && !stored.set_aside)
        remove_files(stored, [&](const std::string& file) {
          return is_shard(file) && is_own(file) && !facts->files.contains(file);
        });
      else if (!stored.committed && !stored.set_aside)
        remove_files(stored, [&](const std::string& file) { return is_of_starts(file) || (is_past && is_own(file)); });
      else if (!stored.committed && is_past && std::ranges::all_of(stored.sizes, is_own_or_note))
        remove(stored);
    }
  }

  Storage& storage() const noexcept { return *storage_; }

 private:
  /// What `prune` needs to know of a snapshot.
  struct Facts {
    RetainedSnapshot retained;
    std::string start;                           ///< The name of the start that wrote it.
    std::map<std::string, std::uint64_t> files;  ///< Sizes by name.
  };

  void remember(const Manifest& manifest) const {
    auto& facts = facts_[manifest.run.step];
    facts = {{manifest.run.step, manifest.run.metrics, manifest.run.epoch, manifest.written_at},
             manifest.starts.empty() ? "" : manifest.starts.back(),
             {}};
    for (const auto& file : manifest.files) facts.files.emplace(file.name, file.bytes);
  }
  /// Returns the cached facts; null if the manifest was never read, or files are missing or changed in size.
  const Facts* cached(const StoredSnapshot& stored) const {
    const auto facts = facts_.find(stored.step);
    if (facts == facts_.end() || !stored.committed) return nullptr;
    const auto is_there = [&](const auto& file) {
      const auto there = stored.sizes.find(file.first);
      return there != stored.sizes.end() && there->second == file.second;
    };
    return std::ranges::all_of(facts->second.files, is_there) ? &facts->second : nullptr;
  }
  /// Returns the cached facts after reading the manifest if needed; null if the snapshot is damaged.
  const Facts* cached_or_read(const StoredSnapshot& stored) const {
    if (stored.committed && cached(stored) == nullptr) read(stored);
    return cached(stored);
  }

  /// True if that start wrote the manifest that is there now. Reads it: the cache may be out of date.
  bool is_written_by(const std::string& start, std::int64_t step) const {
    const auto manifest = manifest_of(step);
    return manifest && (manifest->starts.empty() ? "" : manifest->starts.back()) == start;
  }

  /// True for the name of a file with tensors, written by a rank or by `save_snapshot`.
  static bool is_shard(std::string_view file) { return file.starts_with("rank-") || file.starts_with("all."); }

  template <class IsLeft>
  void remove_files(const StoredSnapshot& stored, const IsLeft& is_left) const {
    for (const auto& [file, size] : stored.sizes)
      if (is_left(file)) storage_->remove(stored.folder + file);
  }

  /// Returns none also if the manifest is damaged.
  std::optional<Manifest> manifest_of(std::int64_t step) const {
    try {
      const auto text = manifest_text(step);
      return text ? parse_or_none(*text) : std::nullopt;
    } catch (const UnreadableObject&) {
      return std::nullopt;
    }
  }
  /// Reads the text of a manifest. A wrong checksum is read once more, since the bytes may have been damaged on the
  /// way.
  std::optional<std::string> manifest_text(std::int64_t step) const {
    const auto read = [&] { return storage_->read_text(folder_of(step) + kManifest, kMaxManifestBytes); };
    auto text = read();
    if (text && !is_whole_manifest(*text)) text = read();
    return text;
  }
  static std::optional<Manifest> parse_or_none(const std::string& text) {
    try {
      return parse_manifest(text);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::string conflict_text(std::int64_t step) const {
    return storage_->full_name(folder_of(step) + kManifest) +
           " is there already: another run saves its snapshots here; choose another save_dir";
  }

  /// Checks that rank 0 sees all files of the manifest in their sizes.
  void check_files(const Manifest& manifest) const {
    const auto folder = folder_of(manifest.run.step);
    const auto there = storage_->list(folder);
    for (const auto& file : manifest.files)
      if (std::find(there.begin(), there.end(), StoredObject{folder + file.name, file.bytes}) == there.end())
        throw Error{Errc::storage, storage_->full_name(folder + file.name) +
                                       " was written, but rank 0 cannot see it: all ranks must share one save_dir"};
  }

  static constexpr std::string_view kPrefix = "step-";
  static constexpr std::uint64_t kMaxAttemptsBytes = 100;
  static constexpr int kMaxTries = 10;

  static std::optional<std::int64_t> step_in(std::string_view name) {
    const auto slash = name.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto digits = name.substr(kPrefix.size(), slash - kPrefix.size());
    std::int64_t step = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (status != std::errc{} || end != digits.data() + digits.size() || step < 0 ||
        name.substr(0, slash + 1) != folder_of(step))
      return std::nullopt;
    return step;
  }

  Storage* storage_;
  mutable std::map<std::int64_t, Facts> facts_;  ///< By step. Saves reading each manifest at each save.
};

}  // namespace ddpxx
