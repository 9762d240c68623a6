// ddpxx/config/table/several.hpp — a key that stands for several settings: where aliases name `betas[0]` and
// `betas[1]`, the list behind `betas` is theirs, item by item.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx {

/// `key[index]`, as an alias names a setting that is one of several.
inline std::string item_key(const std::string& key, std::size_t index) {
  return key + '[' + std::to_string(index) + ']';
}

/// How many settings the key stands for, while it is none itself; 0 for all other keys.
inline std::size_t count_of_several(const ConfigTable& table, const std::string& key) {
  const auto is = [&](const std::string& path, KeyMeaning::Kind kind) { return table.meaning_of(path).kind == kind; };
  if (!is(key, KeyMeaning::Kind::unknown)) return 0;
  std::size_t count = 0;
  while (is(item_key(key, count), KeyMeaning::Kind::value)) ++count;
  return count;
}

/// A list as what is said of each of its settings.
inline std::vector<Given> parts_of(const Given& list) {
  std::vector<Given> parts;
  for (std::size_t i = 0; i < list.value.items.size(); ++i)
    parts.push_back({.path = item_key(list.path, i), .keys = list.keys, .value = list.value.items[i]});
  return parts;
}

}  // namespace ddpxx
