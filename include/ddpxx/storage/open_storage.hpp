// ddpxx/storage/open_storage.hpp — the storage at a location that a user names.
#pragma once

#include <memory>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/storage/storage.hpp>
#ifdef DDPXX_WITH_S3
#include <ddpxx/storage/s3_storage.hpp>
#endif

namespace ddpxx {

/// Opens the storage at a location, which is a folder's path or s3://bucket/prefix. Reads and writes nothing.
/// Errors  `config` for a location that this build cannot reach.
inline std::unique_ptr<Storage> open_storage(const std::string& place) {
  const auto scheme = place.find("://");
  if (scheme == std::string::npos) return std::make_unique<Folder>(place);
  if (place.starts_with("s3://")) {
#ifdef DDPXX_WITH_S3
    return std::make_unique<S3Storage>(parse_s3_place(place));
#else
    throw Error{Errc::config,
                "this program cannot use s3://, because it was built without S3; link it to ddpxx::s3, which is there "
                "where aws-c-s3 is found (docs/storage.md), or give a folder"};
#endif
  }
  throw Error{Errc::config, "\"" + place + "\": " + place.substr(0, scheme) +
                                ":// is not a supported kind of place; give a folder, or s3://bucket/prefix"};
}

}  // namespace ddpxx
