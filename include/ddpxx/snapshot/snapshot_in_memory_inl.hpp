// ddpxx/snapshot/snapshot_in_memory_inl.hpp — the definitions of snapshot_in_memory.hpp.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/unix_time.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshot_in_memory.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/start_name.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

DDPXX_INLINE std::variant<Snapshot, std::string> try_read_snapshot(Storage& storage, const Manifest& manifest,
                                                                   const TensorFilter& wanted) {
  Snapshot snapshot{
      .run = manifest.run, .world_size = manifest.world_size, .tensors = {}, .written_at = manifest.written_at};
  std::vector<StateSlice> slices;
  for (const auto& [name, stored] : manifest.tensors) {
    if (wanted && !wanted(name)) continue;
    const auto tensor = at::empty(stored.shape, stored.dtype);
    slices.push_back(whole_slice(name, tensor));
    snapshot.tensors.emplace(name, tensor);
  }
  ShardReader reader{storage, Snapshots::folder_of(manifest.run.step), manifest};
  if (auto damage = reader.read(slices)) return std::move(*damage);
  return snapshot;
}

DDPXX_INLINE Snapshot read_snapshot(Storage& storage, const Manifest& manifest, const TensorFilter& wanted) {
  auto read = try_read_snapshot(storage, manifest, wanted);
  if (const auto* damage = std::get_if<std::string>(&read)) throw Error{Errc::storage, *damage};
  return std::get<Snapshot>(std::move(read));
}

namespace detail {

inline std::variant<Snapshot, std::string> try_read_snapshot(const Snapshots& snapshots, const StoredSnapshot& stored,
                                                             const TensorFilter& wanted) {
  auto found = snapshots.read(stored);
  if (!found.manifest) return std::move(found.damage);
  return ddpxx::try_read_snapshot(snapshots.storage(), *found.manifest, wanted);
}

}  // namespace detail

DDPXX_INLINE std::optional<Snapshot> load_snapshot(Storage& storage, const TensorFilter& wanted) {
  const Snapshots snapshots{storage};
  std::string damages;
  auto all = snapshots.list();
  int listings = 1;
  for (auto stored = all.begin(); stored != all.end();) {
    if (!stored->committed) {
      ++stored;
      continue;
    }
    try {
      auto read = detail::try_read_snapshot(snapshots, *stored, wanted);
      if (auto* snapshot = std::get_if<Snapshot>(&read)) return std::move(*snapshot);
      if (snapshots.is_there(stored->step) || listings == Snapshots::kMaxListings) {
        damages += "\n  " + std::get<std::string>(read);
        ++stored;
        continue;
      }
    } catch (const Error&) {
      if (snapshots.is_there(stored->step) || listings == Snapshots::kMaxListings) throw;
    }
    ++listings;
    all = snapshots.list();  // there is a newer one now, for which this one was removed
    stored = all.begin();
    damages.clear();
  }
  if (!damages.empty()) throw Error{Errc::storage, "no snapshot at " + storage.full_name("") + " is usable:" + damages};
  return std::nullopt;
}

DDPXX_INLINE void save_snapshot(Storage& storage, const Snapshot& snapshot) {
  const Snapshots snapshots{storage};
  const auto folder = Snapshots::folder_of(snapshot.run.step);
  if (snapshots.is_there(snapshot.run.step))
    throw Error{Errc::storage, storage.full_name(folder + Snapshots::kManifest) +
                                   " is there already: remove that snapshot, or choose another place"};
  std::vector<StateSlice> slices;
  for (const auto& [name, tensor] : snapshot.tensors) slices.push_back(whole_slice(name, tensor));
  const auto start = draw_start_name();
  const auto file = "all." + start + ".safetensors";
  Shard shard{file, std::move(slices)};
  Manifest manifest{.run = snapshot.run,
                    .world_size = snapshot.world_size,
                    .written_at = snapshot.written_at > 0 ? snapshot.written_at : unix_time(),
                    .starts = {start},
                    .files = {},
                    .tensors = {}};
  const auto remove_unused_file = [&] {
    try {
      if (!snapshots.is_in_use(snapshot.run.step, file)) storage.remove(folder + file);
    } catch (const Error&) {  // the caller throws the error that came first
    }
  };
  bool is_sent = false;  // from then on a server may create the manifest although its answer got lost
  std::optional<std::string> conflict;
  try {
    shard.write(storage, folder);
    const std::string reports[] = {shard.report()};
    add_reports(manifest, reports);
    Snapshots::check(manifest);
    is_sent = true;
    conflict = snapshots.try_commit(manifest);
  } catch (const FileError&) {  // the file system has answered: a manifest that is absent now stays absent
    remove_unused_file();
    throw;
  } catch (...) {
    if (!is_sent) remove_unused_file();
    throw;
  }
  if (!conflict) return;
  storage.remove(folder + file);  // another program committed this step first, and its manifest does not list this file
  throw Error{Errc::storage, *conflict};
}

}  // namespace ddpxx
