// ddpxx/snapshot/snapshots.hpp — the snapshots in one place: found, published, set aside, pruned.
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

/// What lies under one step's name. Only one with a manifest is a snapshot; another one was begun and not finished, has
/// lost its manifest, or was set aside.
struct StoredSnapshot {
  std::int64_t step = 0;
  std::string folder;  ///< With a slash at its end.
  bool published = false;
  bool set_aside = false;                      ///< One was there and was set aside; `published` may be another one.
  std::map<std::string, std::uint64_t> sizes;  ///< Of its files, by their names in the folder.
};

/// A snapshot whose manifest is sound, or the reason why it is none.
struct ReadSnapshot {
  StoredSnapshot stored;
  std::optional<Manifest> manifest;
  std::string damage;
  std::optional<StoredRange> unreadable = {};  ///< Where the damage is that the manifest could not be read.
};

/// Snapshots in a storage, one folder a step: `step-00000100/` holds a file of each rank and, written last,
/// `manifest.json`. Whatever is in no manifest is not there.
/// What was read or published is known from then on: `read`, `publish` and `prune` are for one thread at a time.
/// Errors  `storage` from every deed.
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

  /// All that is there, the newest first.
  std::vector<StoredSnapshot> list() const {
    std::map<std::int64_t, StoredSnapshot> found;
    for (const auto& [name, size] : storage_->list(std::string{kFront})) {
      const auto step = step_in(name);
      if (!step) continue;
      auto& snapshot = found[*step];
      snapshot.step = *step;
      snapshot.folder = folder_of(*step);
      const auto file = name.substr(snapshot.folder.size());
      snapshot.published = snapshot.published || file == kManifest;
      snapshot.set_aside = snapshot.set_aside || file == kRejected;
      snapshot.sizes.emplace(file, size);
    }
    std::vector<StoredSnapshot> snapshots;
    for (auto each = found.rbegin(); each != found.rend(); ++each) snapshots.push_back(std::move(each->second));
    return snapshots;
  }

  /// The symbolic links that are named like the folder of a step. What lies behind them is not listed.
  std::vector<std::string> linked_folders() const {
    std::vector<std::string> linked;
    for (const auto& name : storage_->links())
      if (name.starts_with(kFront) && step_in(name + '/')) linked.push_back(storage_->whole_name(name));
    return linked;
  }

  /// Reads a manifest, and holds the files' sizes against it; their content is proved when it is read.
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
      know(manifest);
      snapshot.manifest = std::move(manifest);
    } catch (const Error& error) {
      if (text && is_of_another_version(*text))
        throw Error{Errc::storage, storage_->whole_name(stored.folder + kManifest) +
                                       " was written by another version of ddpxx: use that one, or another save_dir"};
      snapshot.damage = storage_->whole_name(stored.folder + kManifest) + " is not usable: " + error.what();
    }
    return snapshot;
  }

  /// Makes the files of a step a snapshot, if together they are one. A manifest that this start has published before,
  /// and did not learn of, is replaced: nobody knows whether that one would last.
  /// Returns why it is none where another run has a snapshot of this step.
  /// Errors  also where what is there is damaged: nobody knows whose it is.
  std::optional<std::string> try_publish(const Manifest& manifest) const {
    const auto name = folder_of(manifest.run.step) + kManifest;
    const auto text = print_manifest(manifest);
    if (text.size() > kMostManifestBytes)
      throw Error{Errc::storage, storage_->whole_name(name) + " would have " + std::to_string(text.size()) +
                                     " bytes, and no reader takes more than " + std::to_string(kMostManifestBytes) +
                                     ": save from fewer ranks, or a model of fewer tensors"};
    parse_manifest(text);
    check_files(manifest);
    failpoint("snapshot.before_publish");
    for (int round = 1; !storage_->create(name, bytes_of(text)); ++round) {
      const auto found = manifest_text(manifest.run.step);
      if (!found && round < kMostRounds) continue;  // removed in between
      if (!found) throw Error{Errc::storage, storage_->whole_name(name) + " is made and removed all the time"};
      const auto there = understood(*found);
      if (!there && !is_of_another_version(*found))
        throw Error{Errc::storage,
                    storage_->whole_name(name) + " is there already and damaged: nobody knows whose it is"};
      if (!there || manifest.starts.empty() || there->starts != manifest.starts)
        return conflict_text(manifest.run.step);
      const Bytes parts[] = {bytes_of(text)};
      storage_->write(name, parts);
      break;
    }
    failpoint("snapshot.after_publish");
    know(manifest);
    return std::nullopt;
  }
  /// The same; where another run has that step it is an error.
  void publish(const Manifest& manifest) const {
    if (const auto conflict = try_publish(manifest)) throw Error{Errc::storage, *conflict};
  }

  /// Says so where another start has published a later step than this one's. The steps of `known` were there before.
  std::optional<std::string> find_later_of_another(const Manifest& manifest,
                                                   const std::set<std::int64_t>& known) const {
    for (const auto& stored : list()) {
      if (stored.step <= manifest.run.step) break;
      if (!stored.published || known.contains(stored.step)) continue;
      const auto there = manifest_of(stored.step);
      if (there && (manifest.starts.empty() || there->starts.empty() || there->starts.back() != manifest.starts.back()))
        return conflict_text(stored.step);
    }
    return std::nullopt;
  }

  /// Whether a manifest counts on that file of a step; also where it cannot be understood.
  bool is_in_use(std::int64_t step, std::string_view file) const {
    const auto text = manifest_text(step);
    if (!text) return false;
    try {
      return std::ranges::any_of(parse_manifest(*text).files, [&](const ShardFile& each) { return each.name == file; });
    } catch (const Error&) {
      return true;
    }
  }

  /// Takes a damaged snapshot out of the way of the run that saves this step again. Its files stay to be looked at, as
  /// long as an older snapshot is kept. Of a manifest that cannot be read the reason stays.
  void set_aside(const StoredSnapshot& stored) const {
    const auto name = stored.folder + kManifest;
    failpoint("snapshot.before_set_aside");
    std::optional<std::string> text;
    try {
      text = storage_->read_text(name, kMostManifestBytes);
    } catch (const UnreadableObject& error) {
      text = std::string{error.what()} + '\n';
    }
    if (text) {
      const Bytes parts[] = {bytes_of(*text)};
      storage_->write(stored.folder + kRejected, parts);
    }
    forget_attempts(stored);  // before the step is free: they must not count for the snapshot that takes its place
    storage_->remove(name);
  }

  /// How many starts were killed while they read this snapshot.
  std::int64_t attempts(const StoredSnapshot& stored) const {
    if (!stored.sizes.contains(kAttempts)) return 0;
    const auto text = storage_->read_text(stored.folder + kAttempts, kMostAttemptsBytes).value_or("");
    std::int64_t count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    return std::max<std::int64_t>(count, 0);  // of what is no number nobody knows anything
  }
  /// Writes that number down, before the snapshot is read.
  void note_attempts(const StoredSnapshot& stored, std::int64_t count) const {
    const auto text = std::to_string(count) + '\n';
    const Bytes parts[] = {bytes_of(text)};
    storage_->write(stored.folder + kAttempts, parts);
  }
  void forget_attempts(const StoredSnapshot& stored) const { storage_->remove(stored.folder + kAttempts); }

  /// Removes a snapshot: first its manifest, so that nobody takes the rest for one.
  void remove(const StoredSnapshot& stored) const {
    failpoint("snapshot.before_remove");
    if (stored.published) storage_->remove(stored.folder + kManifest);
    failpoint("snapshot.after_remove_manifest");
    for (const auto& [file, size] : stored.sizes)
      if (file != kManifest) storage_->remove(stored.folder + file);
    failpoint("snapshot.after_remove");
  }

  /// Whose snapshots `prune` looks at, and whose unfinished ones it removes.
  struct Owner {
    bool of_the_place = false;            ///< No other program writes here: all are its own.
    std::span<const std::string> starts;  ///< Otherwise those of these starts are.
  };

  /// Removes what `retention` does not keep and, below the newest snapshot, files that belong to none: what these
  /// starts have begun and not finished, what was left beside a snapshot that is kept, and, once all that is kept is
  /// newer, what was set aside and what other starts have left. The newest one always stays, and so does what is
  /// damaged.
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
      if (const auto* facts = own_facts(known_or_read(stored))) sound.push_back(facts->retained);
      if (retention.last == 0 && !sound.empty()) break;  // all are kept, so that the newest one is all that matters
    }
    if (sound.empty()) return;
    const auto newest = sound.front().step;
    const auto kept = retention.keep(sound);
    const auto is_kept = [&](const StoredSnapshot& stored) {
      return stored.published && (retention.last == 0 || kept.contains(stored.step));
    };
    const auto oldest_kept = std::find_if(all.rbegin(), all.rend(), is_kept)->step;
    for (const auto& stored : all) {
      if (stored.step >= newest) continue;
      const auto* facts = own_facts(known(stored));
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
      else if (!stored.published && !stored.set_aside)
        remove_files(stored, [&](const std::string& file) { return is_of_starts(file) || (is_past && is_own(file)); });
      else if (!stored.published && is_past && std::ranges::all_of(stored.sizes, is_own_or_note))
        remove(stored);
    }
  }

  Storage& storage() const noexcept { return *storage_; }

 private:
  /// What pruning asks of a snapshot.
  struct Facts {
    RetainedSnapshot retained;
    std::string start;                           ///< That has written it.
    std::map<std::string, std::uint64_t> files;  ///< With their sizes.
  };

  void know(const Manifest& manifest) const {
    auto& facts = known_[manifest.run.step];
    facts = {{manifest.run.step, manifest.run.metrics, manifest.run.epoch, manifest.written_at},
             manifest.starts.empty() ? "" : manifest.starts.back(),
             {}};
    for (const auto& file : manifest.files) facts.files.emplace(file.name, file.bytes);
  }
  /// None for one that was never read, or is not whole any more.
  const Facts* known(const StoredSnapshot& stored) const {
    const auto facts = known_.find(stored.step);
    if (facts == known_.end() || !stored.published) return nullptr;
    const auto is_there = [&](const auto& file) {
      const auto there = stored.sizes.find(file.first);
      return there != stored.sizes.end() && there->second == file.second;
    };
    return std::ranges::all_of(facts->second.files, is_there) ? &facts->second : nullptr;
  }
  /// None for one that is damaged.
  const Facts* known_or_read(const StoredSnapshot& stored) const {
    if (stored.published && known(stored) == nullptr) read(stored);
    return known(stored);
  }

  /// Whether the manifest is that start's now: what is known of it may be past.
  bool is_written_by(const std::string& start, std::int64_t step) const {
    const auto manifest = manifest_of(step);
    return manifest && (manifest->starts.empty() ? "" : manifest->starts.back()) == start;
  }

  /// What ranks write, or `save_snapshot`.
  static bool is_shard(std::string_view file) { return file.starts_with("rank-") || file.starts_with("all."); }

  template <class IsLeft>
  void remove_files(const StoredSnapshot& stored, const IsLeft& is_left) const {
    for (const auto& [file, size] : stored.sizes)
      if (is_left(file)) storage_->remove(stored.folder + file);
  }

  /// None also for one that is damaged.
  std::optional<Manifest> manifest_of(std::int64_t step) const {
    try {
      const auto text = manifest_text(step);
      return text ? understood(*text) : std::nullopt;
    } catch (const UnreadableObject&) {
      return std::nullopt;
    }
  }
  /// One that makes no sense is read once more: it may have been damaged on its way here.
  std::optional<std::string> manifest_text(std::int64_t step) const {
    const auto read = [&] { return storage_->read_text(folder_of(step) + kManifest, kMostManifestBytes); };
    auto text = read();
    if (text && !is_whole_manifest(*text)) text = read();
    return text;
  }
  static std::optional<Manifest> understood(const std::string& text) {
    try {
      return parse_manifest(text);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::string conflict_text(std::int64_t step) const {
    return storage_->whole_name(folder_of(step) + kManifest) +
           " is there already: another run saves its snapshots here; choose another save_dir";
  }

  /// Before a manifest says so: all files are there, for this rank too, and of their sizes.
  void check_files(const Manifest& manifest) const {
    const auto folder = folder_of(manifest.run.step);
    const auto there = storage_->list(folder);
    for (const auto& file : manifest.files)
      if (std::find(there.begin(), there.end(), StoredObject{folder + file.name, file.bytes}) == there.end())
        throw Error{Errc::storage,
                    storage_->whole_name(folder + file.name) +
                        " was written and is not to be seen by rank 0: all ranks must share one save_dir"};
  }

  static constexpr std::string_view kFront = "step-";
  static constexpr std::uint64_t kMostAttemptsBytes = 100;
  static constexpr int kMostRounds = 10;

  static std::optional<std::int64_t> step_in(std::string_view name) {
    const auto slash = name.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto digits = name.substr(kFront.size(), slash - kFront.size());
    std::int64_t step = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (status != std::errc{} || end != digits.data() + digits.size() || step < 0 ||
        name.substr(0, slash + 1) != folder_of(step))
      return std::nullopt;
    return step;
  }

  Storage* storage_;
  mutable std::map<std::int64_t, Facts> known_;  ///< By their steps: what needs not be read at each save anew.
};

}  // namespace ddpxx
