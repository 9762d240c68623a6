// ddpxx/data/stored_text.hpp — reads the text at s3://bucket/...: an object, those below a prefix, or those that match
// a pattern.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fnmatch.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/data_files.hpp>
#include <ddpxx/data/text_files.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/storage/storage_opener.hpp>

namespace ddpxx {

/// True if a path names a place such as s3://bucket/prefix, not a file.
inline bool is_stored(std::string_view path) { return path.find("://") != std::string_view::npos; }

/// The joined text of the objects that `place` names, sorted by their names: all objects below it; if there are none,
/// the object of this name, or those that match it as a pattern of find_data_files. Returns the first `max_bytes` of
/// the text (0: all), without a last character that is cut in two.
/// Errors  `data` if no object is found, or one is not text; `storage` if the storage does not answer or refuses;
///         `config` for a place that this program cannot reach.
inline std::string read_stored_text(const std::string& place, std::size_t max_bytes, StorageOpener open);

namespace detail {

inline std::string read_objects(Storage& storage, const std::vector<StoredObject>& objects, std::size_t max_bytes) {
  return join_texts(
      objects, max_bytes, [&storage](const StoredObject& object) { return storage.full_name(object.name); },
      [&storage](const StoredObject& object, std::size_t most) {
        std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(object.size, most)), '\0');
        storage.read(object.name, 0, std::as_writable_bytes(std::span{text}));
        return text;
      });
}

}  // namespace detail

inline std::string read_stored_text(const std::string& place, std::size_t max_bytes, StorageOpener open) {
  const auto below = open(place);
  const auto slash = place.find('/', place.find("://") + 3);
  if (const auto objects = below->list(""); !objects.empty()) return detail::read_objects(*below, objects, max_bytes);
  if (slash != std::string::npos) {
    const auto bucket = open(place.substr(0, slash));
    const auto name = place.substr(slash + 1);
    auto objects = bucket->list(name.substr(0, name.find_first_of("*?[")));
    if (std::ranges::find(objects, name, &StoredObject::name) == objects.end()) detail::refuse_double_star(place);
    std::erase_if(objects, [&name](const StoredObject& object) {
      constexpr int kAsPaths = FNM_PATHNAME | FNM_PERIOD | FNM_LEADING_DIR;  // objects below a match count too
      return object.name != name && ::fnmatch(name.c_str(), object.name.c_str(), kAsPaths) != 0;
    });
    if (!objects.empty()) return detail::read_objects(*bucket, objects, max_bytes);
  }
  throw Error{Errc::data, "there is no object " + place + ", and none below it"};
}

}  // namespace ddpxx
