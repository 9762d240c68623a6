// ddpxx/snapshot/snapshot.hpp — a snapshot whole in one process: for tools, for tests, for models that are used and not
// trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/unix_time.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/start_name.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A run at the boundary between two steps, with its tensors in memory.
/// Tensors are named `model.NAME`, `optimizer.MOMENT.NAME`, `random.RANK` and so on.
struct Snapshot {
  RunInfo run = {};
  int world_size = 1;
  std::map<std::string, at::Tensor> tensors = {};
  std::int64_t written_at = 0;  ///< Seconds since 1970-01-01 UTC; `save_snapshot` takes the present time instead of 0.
};

/// Whether a tensor is wanted, by its name; one without content wants all.
using TensorFilter = std::function<bool(std::string_view name)>;

/// Reads the tensors of a snapshot that are wanted, or says what is damaged.
/// Errors  `storage` for what cannot be read.
inline std::variant<Snapshot, std::string> try_read_snapshot(Storage& storage, const Manifest& manifest,
                                                             const TensorFilter& wanted = {}) {
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
/// The same; damage is an error as well.
inline Snapshot read_snapshot(Storage& storage, const Manifest& manifest, const TensorFilter& wanted = {}) {
  auto read = try_read_snapshot(storage, manifest, wanted);
  if (const auto* damage = std::get_if<std::string>(&read)) throw Error{Errc::storage, *damage};
  return std::get<Snapshot>(std::move(read));
}

/// The newest snapshot at a place of which all that is wanted is whole; none where there is no snapshot.
/// Errors  `storage`, with every reason, when there are snapshots and none is whole: never taken for a fresh start.
inline std::optional<Snapshot> load_snapshot(Storage& storage, const TensorFilter& wanted = {}) {
  const Snapshots snapshots{storage};
  std::string damages;
  for (const auto& stored : snapshots.list()) {
    if (!stored.published) continue;
    const auto found = snapshots.read(stored);
    auto damage = found.damage;
    if (found.manifest) {
      auto read = try_read_snapshot(storage, *found.manifest, wanted);
      if (auto* snapshot = std::get_if<Snapshot>(&read)) return std::move(*snapshot);
      damage = std::get<std::string>(std::move(read));
    }
    damages += "\n  " + damage;
  }
  if (!damages.empty())
    throw Error{Errc::storage, "no snapshot at " + storage.whole_name("") + " is usable:" + damages};
  return std::nullopt;
}
inline std::optional<Snapshot> load_snapshot(const std::filesystem::path& place, const TensorFilter& wanted = {}) {
  return load_snapshot(*open_storage(place.string()), wanted);
}

/// Writes a snapshot, in one file, and publishes it.
/// Errors  `storage`, also where there is a snapshot of this step; whatever was at the place before is as it was.
inline void save_snapshot(Storage& storage, const Snapshot& snapshot) {
  const auto folder = Snapshots::folder_of(snapshot.run.step);
  if (!storage.list(folder + Snapshots::kManifest).empty())
    throw Error{Errc::storage, storage.whole_name(folder + Snapshots::kManifest) +
                                   " is there already: remove that snapshot, or choose another place"};
  std::vector<StateSlice> slices;
  for (const auto& [name, tensor] : snapshot.tensors) slices.push_back(whole_slice(name, tensor));
  const auto start = draw_start_name();
  const auto file = "all." + start + ".safetensors";
  Shard shard{file, std::move(slices)};
  shard.write(storage, folder);
  Manifest manifest{.run = snapshot.run,
                    .world_size = snapshot.world_size,
                    .written_at = snapshot.written_at > 0 ? snapshot.written_at : unix_time(),
                    .starts = {start},
                    .files = {},
                    .tensors = {}};
  const std::string reports[] = {shard.report()};
  add_reports(manifest, reports);
  const auto conflict = Snapshots{storage}.try_publish(manifest);
  if (!conflict) return;
  storage.remove(folder + file);  // somebody else was faster, and no manifest names it
  throw Error{Errc::storage, *conflict};
}
inline void save_snapshot(const std::filesystem::path& place, const Snapshot& snapshot) {
  save_snapshot(*open_storage(place.string()), snapshot);
}

}  // namespace ddpxx
