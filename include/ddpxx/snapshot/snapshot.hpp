// ddpxx/snapshot/snapshot.hpp — a whole snapshot in one process, read from a place that is given by its name.
#pragma once

#include <filesystem>
#include <optional>

#include <ddpxx/snapshot/snapshot_in_memory.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>

namespace ddpxx {

/// Reads from a folder, or from s3://bucket/prefix, as `load_snapshot` reads from a storage.
inline std::optional<Snapshot> load_snapshot(const std::filesystem::path& place, const TensorFilter& wanted = {}) {
  return load_snapshot(*open_storage(place.string()), wanted);
}

/// Writes to a folder, or to s3://bucket/prefix, as `save_snapshot` writes to a storage.
inline void save_snapshot(const std::filesystem::path& place, const Snapshot& snapshot) {
  save_snapshot(*open_storage(place.string()), snapshot);
}

}  // namespace ddpxx
