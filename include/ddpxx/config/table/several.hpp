// ddpxx/config/table/several.hpp — keys that set several settings: if aliases name `betas[0]` and `betas[1]`, a list
// behind `betas` sets both.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// The alias `key[index]` of one of several settings.
inline std::string item_key(const std::string& key, std::size_t index) {
  return key + '[' + std::to_string(index) + ']';
}

/// For a key such as `betas`, whose items `betas[0]`, `betas[1]` are aliases: the number of items. Otherwise 0.
inline std::size_t count_of_several(const ConfigTable& table, const std::string& key) {
  const auto is = [&](const std::string& path, KeyMeaning::Kind kind) { return table.meaning_of(path).kind == kind; };
  if (!is(key, KeyMeaning::Kind::unknown)) return 0;
  std::size_t count = 0;
  while (is(item_key(key, count), KeyMeaning::Kind::value)) ++count;
  return count;
}

/// The entries of the single settings, from an entry with a list.
inline std::vector<SourceEntry> parts_of(const SourceEntry& list) {
  std::vector<SourceEntry> parts;
  for (std::size_t i = 0; i < list.value.items.size(); ++i)
    parts.push_back({.path = item_key(list.path, i), .keys = list.keys, .value = list.value.items[i]});
  return parts;
}

}  // namespace ddpxx::detail
