// ddpxx/snapshot/snapshots_inl.hpp — the definitions of snapshots.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/pruning.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

namespace detail {

inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::uint64_t kMaxAttemptsBytes = 100;
inline constexpr int kMaxTriesToCommit = 10;

/// Returns the text of a manifest.
/// Errors  `storage` if no reader would take it; `name` is its full name.
inline std::string checked_text(const Manifest& manifest, const std::string& name) {
  auto text = print_manifest(manifest);
  if (text.size() > kMaxManifestBytes)
    throw Error{Errc::storage, name + " would have " + std::to_string(text.size()) +
                                   " bytes, and no reader takes more than " + std::to_string(kMaxManifestBytes) +
                                   ": save from fewer ranks, or a model of fewer tensors"};
  parse_manifest(text);
  return text;
}

/// Returns none if the manifest is damaged.
inline std::optional<Manifest> parse_or_none(const std::string& text) {
  try {
    return parse_manifest(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace detail

DDPXX_INLINE std::string Snapshots::folder_of(std::int64_t step) {
  auto digits = std::to_string(step);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return "step-" + digits + '/';
}

DDPXX_INLINE std::optional<std::int64_t> Snapshots::step_of(std::string_view folder) {
  const auto digits = folder.substr(std::min(folder.size(), detail::kStepPrefix.size()));
  std::int64_t step = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (step < 0 || folder_of(step) != folder) return std::nullopt;
  return step;
}

DDPXX_INLINE std::vector<StoredSnapshot> Snapshots::list() const {
  std::map<std::int64_t, StoredSnapshot> found;
  for (const auto& [name, size] : storage_->list(std::string{detail::kStepPrefix})) {
    const auto step = step_of(std::string_view{name}.substr(0, name.find('/') + 1));
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

DDPXX_INLINE std::vector<std::string> Snapshots::linked_folders() const {
  std::vector<std::string> linked;
  for (const auto& name : storage_->links())
    if (step_of(name + '/')) linked.push_back(storage_->full_name(name));
  return linked;
}

DDPXX_INLINE ReadSnapshot Snapshots::read(const StoredSnapshot& stored) const {
  ReadSnapshot snapshot{stored, std::nullopt, {}};
  std::optional<std::string> text;
  try {
    text = manifest_text(stored.step);
  } catch (const UnreadableObject& error) {
    snapshot.damage = error.what();
    snapshot.unreadable = error.range();
    return snapshot;
  }
  const auto manifest_name = stored.folder + kManifest;
  const auto not_usable = storage_->full_name(manifest_name) + " is not usable: ";
  if (!text) {  // another program has removed it, or the storage gives wrong answers for a while
    snapshot.damage = not_usable + "it is gone";
    snapshot.unreadable = StoredRange{.name = manifest_name, .max_bytes = kMaxManifestBytes};
    return snapshot;
  }
  try {
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
    facts_.remember(manifest);
    snapshot.manifest = std::move(manifest);
  } catch (const Error& error) {
    if (is_of_another_version(*text))
      throw Error{Errc::storage, storage_->full_name(manifest_name) +
                                     " was written by another version of ddpxx: use that one, or another save_dir"};
    snapshot.damage = not_usable + error.what();
  }
  return snapshot;
}

DDPXX_INLINE void Snapshots::check(const Manifest& manifest) {
  detail::checked_text(manifest, folder_of(manifest.run.step) + kManifest);
}

DDPXX_INLINE std::optional<std::string> Snapshots::try_commit(const Manifest& manifest) const {
  const auto name = folder_of(manifest.run.step) + kManifest;
  const auto text = detail::checked_text(manifest, storage_->full_name(name));
  check_files(manifest);
  failpoint("snapshot.before_commit");
  for (int tries = 1; !storage_->create(name, bytes_of(text)); ++tries) {
    const auto found = manifest_text(manifest.run.step);
    if (!found && tries < detail::kMaxTriesToCommit) continue;  // it was removed meanwhile
    if (!found)
      throw Error{Errc::storage, storage_->full_name(name) +
                                     " is created and removed again and again: another program works in this folder"};
    const auto there = detail::parse_or_none(*found);
    if (!there && !is_of_another_version(*found))
      throw Error{Errc::storage,
                  storage_->full_name(name) +
                      " is there already and damaged, so its owner is unknown: remove it, or choose another save_dir"};
    if (!there || manifest.starts.empty() || there->starts != manifest.starts) return conflict_text(manifest.run.step);
    write_text(*storage_, name, text);
    break;
  }
  failpoint("snapshot.after_commit");
  facts_.remember(manifest);
  return std::nullopt;
}

DDPXX_INLINE std::optional<std::string> Snapshots::find_later_of_another(const Manifest& manifest,
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

DDPXX_INLINE bool Snapshots::is_there(std::int64_t step) const {
  const auto name = folder_of(step) + kManifest;
  return std::ranges::any_of(storage_->list(name), [&](const StoredObject& object) { return object.name == name; });
}

DDPXX_INLINE bool Snapshots::is_in_use(std::int64_t step, std::string_view file) const {
  const auto text = manifest_text(step);
  if (!text) return false;
  try {
    return std::ranges::any_of(parse_manifest(*text).files, [&](const ShardFile& each) { return each.name == file; });
  } catch (const Error&) {
    return true;
  }
}

DDPXX_INLINE bool Snapshots::is_written_by(const std::string& start, std::int64_t step) const {
  const auto manifest = manifest_of(step);
  return manifest && (manifest->starts.empty() ? "" : manifest->starts.back()) == start;
}

DDPXX_INLINE void Snapshots::set_aside(const StoredSnapshot& stored) const {
  const auto name = stored.folder + kManifest;
  failpoint("snapshot.before_set_aside");
  std::optional<std::string> text;
  try {
    text = storage_->read_text(name, kMaxManifestBytes);
  } catch (const UnreadableObject& error) {
    text = std::string{error.what()} + '\n';
  }
  if (text) write_text(*storage_, stored.folder + kRejected, *text);
  clear_attempts(stored);  // first, so that a count cannot apply to the step's next snapshot
  storage_->remove(name);
}

DDPXX_INLINE std::int64_t Snapshots::attempts(const StoredSnapshot& stored) const {
  if (!stored.sizes.contains(kAttempts)) return 0;
  const auto text = storage_->read_text(stored.folder + kAttempts, detail::kMaxAttemptsBytes).value_or("");
  std::int64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return std::max<std::int64_t>(count, 0);
}

DDPXX_INLINE void Snapshots::write_attempts(const StoredSnapshot& stored, std::int64_t count) const {
  write_text(*storage_, stored.folder + kAttempts, std::to_string(count) + '\n');
}

DDPXX_INLINE void Snapshots::clear_attempts(const StoredSnapshot& stored) const {
  storage_->remove(stored.folder + kAttempts);
}

DDPXX_INLINE void Snapshots::remove(const StoredSnapshot& stored) const {
  failpoint("snapshot.before_remove");
  if (stored.committed) storage_->remove(stored.folder + kManifest);
  failpoint("snapshot.after_remove_manifest");
  for (const auto& [file, size] : stored.sizes)
    if (file != kManifest) storage_->remove(stored.folder + file);
  failpoint("snapshot.after_remove");
}

DDPXX_INLINE void Snapshots::prune(const Retention& retention, const Owner& owner,
                                   std::chrono::milliseconds patience) const {
  detail::Pruning{*this, facts_, owner}.run(retention, patience);
}

DDPXX_INLINE std::optional<Manifest> Snapshots::manifest_of(std::int64_t step) const {
  try {
    const auto text = manifest_text(step);
    return text ? detail::parse_or_none(*text) : std::nullopt;
  } catch (const UnreadableObject&) {
    return std::nullopt;
  }
}

DDPXX_INLINE std::optional<std::string> Snapshots::manifest_text(std::int64_t step) const {
  const auto read = [&] { return storage_->read_text(folder_of(step) + kManifest, kMaxManifestBytes); };
  auto text = read();
  if (text && !is_whole_manifest(*text)) text = read();
  return text;
}

DDPXX_INLINE std::string Snapshots::conflict_text(std::int64_t step) const {
  return storage_->full_name(folder_of(step) + kManifest) +
         " is there already: another run saves its snapshots here; choose another save_dir";
}

DDPXX_INLINE void Snapshots::check_files(const Manifest& manifest) const {
  const auto folder = folder_of(manifest.run.step);
  const auto there = storage_->list(folder);
  for (const auto& file : manifest.files)
    if (std::find(there.begin(), there.end(), StoredObject{folder + file.name, file.bytes}) == there.end())
      throw Error{Errc::storage, storage_->full_name(folder + file.name) +
                                     " was written, but rank 0 cannot see it: all ranks must share one save_dir, and "
                                     "nothing may remove its files while a run saves there"};
}

}  // namespace ddpxx
