// ddpxx/storage/open_storage.hpp — the storage that a user's word for a place stands for.
#pragma once

#include <memory>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// The storage at a place: a folder's path. Nothing is read or written yet.
/// Errors  `config` for a place that this build cannot reach.
inline std::unique_ptr<Storage> open_storage(const std::string& place) {
  const auto scheme = place.find("://");
  if (scheme == std::string::npos) return std::make_unique<Folder>(place);
  throw Error{Errc::config, "\"" + place + "\": " + place.substr(0, scheme) + ":// is no kind of place; give a folder"};
}

}  // namespace ddpxx
