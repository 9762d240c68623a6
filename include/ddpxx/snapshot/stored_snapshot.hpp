// ddpxx/snapshot/stored_snapshot.hpp — the files of one step, as a listing of a storage finds them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ddpxx {

/// The files of one step. They are a snapshot only if a manifest is among them. Otherwise the save was not completed,
/// the manifest got lost, or the snapshot was set aside.
struct StoredSnapshot {
  std::int64_t step = 0;
  std::string folder;      ///< Its name, with a slash at the end.
  bool committed = false;  ///< There is a manifest.
  bool set_aside = false;  ///< A damaged snapshot of this step was set aside. A later one may be committed.
  std::map<std::string, std::uint64_t> sizes;  ///< The size of each file, by its name in the folder.
};

}  // namespace ddpxx
