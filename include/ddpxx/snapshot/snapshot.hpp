// ddpxx/snapshot/snapshot.hpp — a snapshot whole in one process: for tools, for tests, for models that are used and not
// trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A run at the boundary between two steps, with all of its tensors.
/// These are named `model.NAME`, `optimizer.MOMENT.NAME`, `random.RANK` and so on.
struct Snapshot {
  std::int64_t step = 0;      ///< Optimizer steps done.
  std::int64_t epoch = 0;     ///< Passes over the data that are complete.
  std::int64_t position = 0;  ///< Samples of the present epoch consumed by all ranks together.
  int world_size = 1;
  Settings settings;  ///< The configuration of the run that saved it.
  std::map<std::string, at::Tensor> tensors;
  std::vector<OptimizedParameter> parameters = {};  ///< In the order in which the model registers them, if known.
  std::string optimizer = {};                       ///< What torch.optim calls it, if known.
  std::string overrides = {};                       ///< The arguments of that run: a YAML list.
  std::string config_hash = {};                     ///< A name for its settings.
};

/// Reads all tensors of a snapshot, or says what is damaged.
/// Errors  `storage` for what cannot be read.
inline std::variant<Snapshot, std::string> try_read_snapshot(Storage& storage, const Manifest& manifest) {
  Snapshot snapshot{.step = manifest.step,
                    .epoch = manifest.epoch,
                    .position = manifest.position,
                    .world_size = manifest.world_size,
                    .settings = manifest.settings,
                    .tensors = {},
                    .parameters = manifest.parameters,
                    .optimizer = manifest.optimizer,
                    .overrides = manifest.overrides,
                    .config_hash = manifest.config_hash};
  std::vector<StateSlice> slices;
  for (const auto& [name, stored] : manifest.tensors) {
    const auto tensor = at::empty(stored.shape, stored.dtype);
    slices.push_back(whole_slice(name, tensor));
    snapshot.tensors.emplace(name, tensor);
  }
  ShardReader reader{storage, Snapshots::folder_of(manifest.step), manifest};
  if (auto damage = reader.read(slices)) return std::move(*damage);
  return snapshot;
}
/// The same; damage is an error as well.
inline Snapshot read_snapshot(Storage& storage, const Manifest& manifest) {
  auto read = try_read_snapshot(storage, manifest);
  if (const auto* damage = std::get_if<std::string>(&read)) throw Error{Errc::storage, *damage};
  return std::get<Snapshot>(std::move(read));
}

/// The newest snapshot at a place that is whole; none where there is no snapshot.
/// Errors  `storage`, with every reason, when there are snapshots and none is whole: never taken for a fresh start.
inline std::optional<Snapshot> load_snapshot(Storage& storage) {
  const Snapshots snapshots{storage};
  std::string damages;
  for (const auto& stored : snapshots.list()) {
    if (!stored.published) continue;
    const auto found = snapshots.read(stored);
    auto damage = found.damage;
    if (found.manifest) {
      auto read = try_read_snapshot(storage, *found.manifest);
      if (auto* snapshot = std::get_if<Snapshot>(&read)) return std::move(*snapshot);
      damage = std::get<std::string>(std::move(read));
    }
    damages += "\n  " + damage;
  }
  if (!damages.empty())
    throw Error{Errc::storage, "no snapshot at " + storage.whole_name("") + " is usable:" + damages};
  return std::nullopt;
}
inline std::optional<Snapshot> load_snapshot(const std::filesystem::path& place) {
  return load_snapshot(*open_storage(place.string()));
}

/// Writes a snapshot, in one file, and publishes it.
/// Errors  `storage`; whatever was at the place before is as it was.
inline void save_snapshot(Storage& storage, const Snapshot& snapshot) {
  std::vector<StateSlice> slices;
  for (const auto& [name, tensor] : snapshot.tensors) slices.push_back(whole_slice(name, tensor));
  Shard shard{"all.safetensors", std::move(slices)};
  shard.write(storage, Snapshots::folder_of(snapshot.step));
  Manifest manifest{.step = snapshot.step,
                    .epoch = snapshot.epoch,
                    .position = snapshot.position,
                    .world_size = snapshot.world_size,
                    .written_at = seconds_since_1970(),
                    .starts = {},
                    .metrics = {},
                    .settings = snapshot.settings,
                    .files = {},
                    .tensors = {},
                    .parameters = snapshot.parameters,
                    .optimizer = snapshot.optimizer,
                    .overrides = snapshot.overrides,
                    .config_hash = snapshot.config_hash};
  const std::string reports[] = {shard.report()};
  add_reports(manifest, reports);
  Snapshots{storage}.publish(manifest);
}
inline void save_snapshot(const std::filesystem::path& place, const Snapshot& snapshot) {
  save_snapshot(*open_storage(place.string()), snapshot);
}

}  // namespace ddpxx
