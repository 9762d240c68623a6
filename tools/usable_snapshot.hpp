// usable_snapshot.hpp — finds the newest snapshot of a place that can be used, or that of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/storage.hpp>

/// The damage of a snapshot, checked in all of its files; empty if every byte is as it was written.
inline std::string damage_of(ddpxx::Storage& storage, const ddpxx::Manifest& manifest) {
  return ddpxx::ShardReader{storage, ddpxx::Snapshots::folder_of(manifest.run.step), manifest}.verify().value_or("");
}

/// Advice for a place without snapshots that is the folder of one snapshot (runs/a/step-00000300/), a name as mingpt
/// takes it (runs/a:300), or a checkpoint of torch.distributed.checkpoint; empty for other places.
inline std::string hint_of_place(ddpxx::Storage& storage) {
  if (const auto itself = ddpxx::snapshot_of_step_folder(storage))
    return ", which is one snapshot itself: name " + itself->place + " with step=" + std::to_string(*itself->step);
  const auto is_part = [](const ddpxx::StoredObject& object) { return object.name.ends_with(".distcp"); };
  if (std::ranges::any_of(storage.list("__"), is_part))
    return ", which is a checkpoint of torch.distributed.checkpoint: make one file of it by `python -m "
           "torch.distributed.checkpoint.format_utils dcp_to_torch " +
           ddpxx::detail::shell_word(storage.full_name("")) +
           " checkpoint.pt`, where it lies on a disk, and name that file";
  auto name = storage.full_name("");
  while (name.ends_with('/')) name.pop_back();
  const auto choice = ddpxx::parse_snapshot_choice(name);
  return choice.step ? "; a step is named apart here: " + choice.place + " with step=" + std::to_string(*choice.step)
                     : "";
}

/// The snapshot of a step, or the newest one, in which `find_damage` finds nothing.
template <class FindDamage>
ddpxx::Manifest usable_snapshot(ddpxx::Storage& storage, std::int64_t step, FindDamage&& find_damage) {
  const ddpxx::Snapshots snapshots{storage};
  std::string damages;
  auto all = snapshots.list();
  int listings = 1;
  for (auto stored = all.begin(); stored != all.end();) {
    if (!stored->committed || (step >= 0 && stored->step != step)) {
      ++stored;
      continue;
    }
    const auto is_removed = [&] {
      return listings < ddpxx::Snapshots::kMaxListings && !snapshots.is_there(stored->step);
    };
    try {
      auto snapshot = snapshots.read(*stored);
      if (snapshot.manifest) snapshot.damage = find_damage(*snapshot.manifest);
      if (snapshot.damage.empty()) return std::move(*snapshot.manifest);
      if (!is_removed()) {
        if (step < 0) ddpxx::Log{0}.info("ddpxx: " + snapshot.damage + "; trying the snapshot before it");
        damages += "\n  " + snapshot.damage;
        ++stored;
        continue;
      }
    } catch (const ddpxx::Error&) {
      if (!is_removed()) throw;
    }
    ++listings;
    all = snapshots.list();  // there is a newer one now, for which this one was removed
    stored = all.begin();
    damages.clear();
  }
  throw ddpxx::Error{ddpxx::Errc::storage, "there is no usable snapshot" +
                                               (step >= 0 ? " of step " + std::to_string(step) : "") + " at " +
                                               storage.full_name("") + hint_of_place(storage) + damages};
}
