// ddpxx/train/chosen_snapshot.hpp — begins a run with a snapshot from another location, which is only read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/storage/storage_opener.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Rank 0 finds the chosen snapshot; all ranks call `read(manifest)`. `read` returns the text of the damage that this
/// rank found, or an empty text. If any rank found damage and the newest snapshot was chosen, the one before it is
/// tried after a warning. Returns the manifest of the snapshot that was read.
/// Ranks   Collective; `read` may be as well.
/// Errors  `storage` on every rank if there is no such snapshot or it is damaged; those of `read`.
Manifest read_chosen(Storage& storage, SnapshotChoice choice, const Group& group,
                     const std::function<std::string(const Manifest&)>& read);

/// Loads the snapshot that `choice` names (see parse_snapshot_choice) into the run's state, and returns its manifest.
/// Ranks   Collective.
/// Errors  `storage` on every rank if it is missing, damaged, or of another model or run.
Manifest load_chosen(const std::string& choice, const Settings& settings, const RunState& state, const Group& group,
                     at::Device device, std::uint64_t seed, StorageOpener open);

/// Refuses to begin with a step or `best` of the location in which the run saves: a restart of the same command could
/// not tell the run's own snapshots from the ones that were there before.
/// Errors  `config`.
void check_chosen_place(const std::string& choice, const std::string& save_dir, StorageOpener open);

/// Logs that the run resumes from a snapshot in its own save_dir instead of the chosen one, as a restart of the same
/// command must.
void log_own_instead_of_chosen(const std::string& choice, const std::string& save_dir, std::int64_t step,
                               const Log& log, StorageOpener open);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/chosen_snapshot_inl.hpp>
#endif
