// ddpxx/train/chosen_snapshot_inl.hpp — definitions of chosen_snapshot.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/storage/storage_opener.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/read_state.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

DDPXX_INLINE Manifest read_chosen(Storage& storage, SnapshotChoice choice, const Group& group,
                                  const std::function<std::string(const Manifest&)>& read) {
  const Log log{group.rank()};
  on_rank_zero(group, Errc::storage, [&] {
    for (const auto& link : Snapshots{storage}.linked_folders())
      log.warn(link + " is a symbolic link and is left out: links are not followed");
  });
  const auto was_removed = [&](std::int64_t step) {
    std::string answer;
    on_rank_zero(group, Errc::storage, [&] { answer = Snapshots{storage}.is_there(step) ? "no" : "yes"; });
    return broadcast_text(answer, group) == "yes";
  };
  for (int listings = 1;;) {
    std::string text;
    on_rank_zero(group, Errc::storage, [&] {
      text = print_manifest(choose_snapshot(storage, choice, [&](const std::string& damage) {
        if (choice.is_newest()) log.warn(damage + "; the snapshot before it is taken");
      }));
    });
    auto manifest = parse_manifest(broadcast_text(text, group));
    std::string own_damage;
    try {
      // An error of one rank alone would leave the others waiting for it.
      own_damage = on_every_rank(group, Errc::storage, [&] { return read(manifest); });
    } catch (const Error& error) {
      if (error.code() != Errc::storage || listings++ == Snapshots::kMaxListings || !was_removed(manifest.run.step))
        throw;
      continue;  // the run that saves here has removed it, since there are newer ones
    }
    const auto damages = all_gather_text(own_damage, group);
    const auto damage = std::ranges::find_if(damages, [](const std::string& each) { return !each.empty(); });
    if (damage == damages.end()) return manifest;
    if (!choice.is_newest()) throw Error{Errc::storage, *damage};
    if (group.rank() == 0) log.warn(*damage + "; the snapshot before it is taken");
    choice.before = manifest.run.step;
  }
}

DDPXX_INLINE Manifest load_chosen(const std::string& choice, const Settings& settings, const RunState& state,
                                  const Group& group, at::Device device, std::uint64_t seed, StorageOpener open) {
  const auto wanted = parse_snapshot_choice(choice);
  const auto storage = open(wanted.place);
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

/// Whether two places are one. Places that cannot be examined are compared by their names: a run that resumes from its
/// own snapshots does not need the place that it was begun from, which may be out of reach by then.
inline bool is_same_location(const std::string& a, const std::string& b, StorageOpener open) {
  if (a == b) return true;
  const auto is_folder = [](const std::string& place) { return place.find("://") == std::string::npos; };
  if (!is_folder(a) || !is_folder(b)) {
    try {
      return open(a)->full_name("") == open(b)->full_name("");
    } catch (const Error&) {
      return false;
    }
  }
  const auto path = [](const std::string& place) {
    std::error_code unknown, unreadable;
    std::filesystem::path whole =
        std::filesystem::weakly_canonical(std::filesystem::absolute(place, unknown), unreadable);
    if (unknown || unreadable) whole = place;
    whole = whole.lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();  // with or without a slash at the end
  };
  return path(a) == path(b);
}

}  // namespace detail

DDPXX_INLINE void check_chosen_place(const std::string& choice, const std::string& save_dir, StorageOpener open) {
  const auto wanted = parse_snapshot_choice(choice);
  if (!wanted.is_newest() && detail::is_same_location(wanted.place, save_dir, open))
    throw Error{Errc::config, "snapshot=" + choice +
                                  ": training.save_dir is the same place; choose another training.save_dir, or leave "
                                  "the step out to go on with the newest"};
}

DDPXX_INLINE void log_own_instead_of_chosen(const std::string& choice, const std::string& save_dir, std::int64_t step,
                                            const Log& log, StorageOpener open) {
  if (!detail::is_same_location(parse_snapshot_choice(choice).place, save_dir, open))
    log.info("training.save_dir=" + save_dir + " has a snapshot already: the run resumes from its step " +
             std::to_string(step) + " and does not use snapshot=" + choice);
}

}  // namespace ddpxx
