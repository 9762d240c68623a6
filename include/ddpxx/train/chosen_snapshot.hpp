// ddpxx/train/chosen_snapshot.hpp — begins a run with a snapshot from another location, which is only read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/read_state.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Rank 0 finds the chosen snapshot; all ranks call `read(manifest)`. `read` returns the text of the damage that this
/// rank found, or an empty text. If any rank found damage and the newest snapshot was chosen, the one before it is
/// tried after a warning. Returns the manifest of the snapshot that was read.
/// Ranks   Collective; `read` may be as well.
/// Errors  `storage` on every rank if there is no such snapshot or it is damaged; those of `read`.
template <class Read>
Manifest read_chosen(Storage& storage, SnapshotChoice choice, const Group& group, Read&& read) {
  const Log log{group.rank()};
  on_rank_zero(group, Errc::storage, [&] {
    for (const auto& link : Snapshots{storage}.linked_folders())
      log.warn(link + " is a symbolic link and is left out: links are not followed");
  });
  for (;;) {
    std::string text;
    on_rank_zero(group, Errc::storage, [&] {
      text = print_manifest(choose_snapshot(storage, choice, [&](const std::string& damage) {
        if (choice.is_newest()) log.warn(damage + "; the snapshot before it is taken");
      }));
    });
    auto manifest = parse_manifest(broadcast_text(text, group));
    const auto damages = all_gather_text(read(manifest), group);
    const auto damage = std::ranges::find_if(damages, [](const std::string& each) { return !each.empty(); });
    if (damage == damages.end()) return manifest;
    if (!choice.is_newest()) throw Error{Errc::storage, *damage};
    if (group.rank() == 0) log.warn(*damage + "; the snapshot before it is taken");
    choice.before = manifest.run.step;
  }
}

/// Loads the snapshot that `choice` names (see parse_snapshot_choice) into the run's state, and returns its manifest.
/// Ranks   Collective.
/// Errors  `storage` on every rank if it is missing, damaged, or of another model or run.
inline Manifest load_chosen(const std::string& choice, const Settings& settings, const RunState& state,
                            const Group& group, at::Device device, std::uint64_t seed) {
  const auto wanted = parse_snapshot_choice(choice);
  const auto storage = open_storage(wanted.place);
  const Log log{group.rank()};
  const auto manifest = read_chosen(*storage, wanted, group, [&](const Manifest& found) {
    for (const auto& warning : compare_settings(settings, found))
      if (group.rank() == 0) log.warn(warning);
    check_state(state, found);
    return read_state(*storage, found, state, group, device, seed).text;
  });
  log.info("begins with step " + std::to_string(manifest.run.step) + " of " +
           storage->full_name(Snapshots::folder_of(manifest.run.step)));
  return manifest;
}

namespace detail {

inline bool is_same_location(const std::string& a, const std::string& b) {
  const auto is_folder = [](const std::string& place) { return place.find("://") == std::string::npos; };
  if (!is_folder(a) || !is_folder(b)) return open_storage(a)->full_name("") == open_storage(b)->full_name("");
  const auto path = [](const std::string& place) {
    auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(place)).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();  // with or without a slash at the end
  };
  return path(a) == path(b);
}

}  // namespace detail

/// Refuses to begin with a step or `best` of the location in which the run saves: a restart of the same command could
/// not tell the run's own snapshots from the ones that were there before.
/// Errors  `config`.
inline void check_chosen_place(const std::string& choice, const std::string& save_dir) {
  const auto wanted = parse_snapshot_choice(choice);
  if (!wanted.is_newest() && detail::is_same_location(wanted.place, save_dir))
    throw Error{Errc::config, "snapshot=" + choice +
                                  ": training.save_dir is the same place; choose another training.save_dir, or leave "
                                  "the step out to go on with the newest"};
}

/// Logs that the run goes on with a snapshot in its own save_dir instead of the chosen one, as a restart of the same
/// command must.
inline void log_own_instead_of_chosen(const std::string& choice, const std::string& save_dir, std::int64_t step,
                                      const Log& log) {
  if (!detail::is_same_location(parse_snapshot_choice(choice).place, save_dir))
    log.info("training.save_dir=" + save_dir + " has a snapshot already: the run goes on with its step " +
             std::to_string(step) + " and not with snapshot=" + choice);
}

}  // namespace ddpxx
