// snapshot_place.hpp — opens the place of the snapshot that a verb needs.
#pragma once

#include <memory>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/storage/open_storage.hpp>

inline ddpxx::Error no_snapshot(const std::string& verb) {
  return {ddpxx::Errc::config, "mingpt " + verb +
                                   " needs a snapshot: --from PLACE, PLACE:STEP or PLACE:best, where PLACE "
                                   "is the training.save_dir of a run"};
}

/// The place that `choice` (PLACE, PLACE:STEP, PLACE:best) names.
/// Errors  `config` if `choice` is empty.
inline std::unique_ptr<ddpxx::Storage> open_snapshot_place(const std::string& choice, const std::string& verb) {
  if (choice.empty()) throw no_snapshot(verb);
  return ddpxx::open_storage(ddpxx::parse_snapshot_choice(choice).place);
}
