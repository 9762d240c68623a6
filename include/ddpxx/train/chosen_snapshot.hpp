// ddpxx/train/chosen_snapshot.hpp — a run that begins with a snapshot of another place, which is only read.
#pragma once

#include <cstdint>
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

/// Loads the snapshot that `choice` names (see parse_snapshot_choice) into the run's state, and returns its manifest.
/// Ranks   Collective.
/// Errors  `storage` on every rank: it is not there, is damaged, or is of another model or run.
inline Manifest load_chosen(const std::string& choice, const Settings& settings, const RunState& state,
                            const Group& group, at::Device device, std::uint64_t seed) {
  const auto wanted = parse_snapshot_choice(choice);
  const auto storage = open_storage(wanted.place);
  std::string text;
  on_rank_zero(group, Errc::storage, [&] { text = print_manifest(choose_snapshot(*storage, wanted)); });
  auto manifest = parse_manifest(broadcast_text(text, group));
  const Log log{group.rank()};
  for (const auto& warning : compare_settings(settings, manifest))
    if (group.rank() == 0) log.warn(warning);
  check_state(state, manifest);
  if (const auto damage = read_state(*storage, manifest, state, group, device, seed); !damage.empty())
    throw Error{Errc::storage, damage};
  log.info("begins with step " + std::to_string(manifest.step) + " of " +
           storage->whole_name(Snapshots::folder_of(manifest.step)));
  return manifest;
}

/// A run that was told to begin with a chosen snapshot has found a snapshot in its own save_dir, and goes on with that,
/// as a restart of the same command must.
/// Errors  `config` where both lie in one place and are of different steps: what is saved next would follow another
/// one.
inline void check_own_instead_of_chosen(const std::string& choice, const std::string& save_dir, std::int64_t step,
                                        const Log& log) {
  const auto wanted = parse_snapshot_choice(choice);
  if (open_storage(wanted.place)->whole_name("") != open_storage(save_dir)->whole_name("")) {
    log.info("training.save_dir=" + save_dir + " has a snapshot already: the run goes on with its step " +
             std::to_string(step) + " and not with snapshot=" + choice);
  } else if (wanted.best || (wanted.step && *wanted.step != step)) {
    throw Error{Errc::config, "snapshot=" + choice + ": training.save_dir is the same place and has step " +
                                  std::to_string(step) + "; choose another training.save_dir"};
  }
}

}  // namespace ddpxx
