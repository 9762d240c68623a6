// ddpxx/snapshot/snapshot_in_memory.hpp — a whole snapshot in one process, for tools, tests, and programs that use a
// model without training it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <ATen/core/Tensor.h>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/run_info.hpp>
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

/// Says by the name of a tensor whether to read it. An empty function reads all tensors.
using TensorFilter = std::function<bool(std::string_view name)>;

/// Reads the wanted tensors of a snapshot. Returns the snapshot, or a text that names the damage.
/// Errors  `storage` if the storage does not answer.
std::variant<Snapshot, std::string> try_read_snapshot(Storage& storage, const Manifest& manifest,
                                                      const TensorFilter& wanted = {});
/// Reads as `try_read_snapshot` does.
/// Errors  `storage` also for damage.
Snapshot read_snapshot(Storage& storage, const Manifest& manifest, const TensorFilter& wanted = {});

/// Reads the newest snapshot whose wanted tensors are whole. Returns none if there is no snapshot.
/// Errors  `storage`, with every reason, if there are snapshots and none is whole.
std::optional<Snapshot> load_snapshot(Storage& storage, const TensorFilter& wanted = {});

/// Writes a snapshot in one file and commits it.
/// Errors  `storage`, also if there is a snapshot of this step. What was in the storage before is unchanged then.
void save_snapshot(Storage& storage, const Snapshot& snapshot);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/snapshot_in_memory_inl.hpp>
#endif
