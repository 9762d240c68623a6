// ddpxx/snapshot/snapshot_choice.hpp — a snapshot as a user names it: PLACE, PLACE:STEP or PLACE:best.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Which snapshot to read: the newest one, that of a step, or the best one.
struct SnapshotChoice {
  std::string place;                        ///< A folder, or s3://bucket/prefix.
  std::optional<std::int64_t> step = {};    ///< None: the newest snapshot that is whole, unless `best` is set.
  bool best = false;                        ///< The best snapshot by the metric that the run has recorded.
  std::optional<std::int64_t> before = {};  ///< If set, only steps before this one.

  bool is_newest() const { return !step && !best; }
};

/// Reads `runs/a`, `runs/a:300` and `runs/a:best`.
SnapshotChoice parse_snapshot_choice(const std::string& text);

/// If the location is the folder of one snapshot, such as runs/a/step-00000300/, and not the place of a run: that
/// snapshot as it is named, runs/a:300. None for other locations.
/// Errors  `storage`.
std::optional<SnapshotChoice> snapshot_of_step_folder(Storage& storage);

/// Returns the manifest of the chosen snapshot. Reads manifests and the sizes of files; writes nothing. Calls
/// `on_skipped` with the text of the damage of each snapshot that it skips.
/// Errors  `storage` if there is no such snapshot, naming those that are there. For `best` also if any snapshot is
///         damaged, since its metrics are unknown.
Manifest choose_snapshot(Storage& storage, const SnapshotChoice& choice,
                         const std::function<void(const std::string&)>& on_skipped = {});

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/snapshot_choice_inl.hpp>
#endif
