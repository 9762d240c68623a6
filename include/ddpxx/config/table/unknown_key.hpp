// ddpxx/config/table/unknown_key.hpp — explains a key that the table does not have, with suggestions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/launcher_flag.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/core/suggest.hpp>

namespace ddpxx::detail {

/// The index of the first segment of an unknown `path` that the table does not have.
inline std::size_t first_unknown_segment(const ConfigTable& table, std::string_view path) {
  const auto parts = path_segments(path);
  std::size_t first = 0;
  while (first + 1 < parts.size() && table.find_group(path_of(parts, first + 1)) != nullptr) ++first;
  const bool value_with_keys = first + 1 < parts.size() && table.find(path_of(parts, first + 1)) != nullptr;
  return value_with_keys ? first + 1 : first;
}

/// The message about the segments from `first` to `end`, with suggestions.
inline std::string explain_unknown_key(const ConfigTable& table, std::string_view path, std::size_t first,
                                       std::size_t end);

inline void add_name_below(std::vector<std::string>& names, std::string_view group, std::string_view path) {
  if (path == group || !lies_in(path, group)) return;
  auto name = path_segments(path.substr(group.empty() ? 0 : group.size() + 1)).front();
  if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
}

/// The names directly below a group.
inline std::vector<std::string> names_below(const ConfigTable& table, std::string_view group) {
  std::vector<std::string> names;
  for (const auto& row : table.rows) add_name_below(names, group, row.path);
  return names;
}

/// The aliases of keys in the group.
inline std::vector<std::string> aliases_below(const ConfigTable& table, std::string_view group) {
  std::vector<std::string> names;
  for (const auto& alias : table.aliases) add_name_below(names, group, alias.key);
  return names;
}

/// The paths of all values with that name.
inline std::vector<std::string> paths_of(const ConfigTable& table, std::string_view name) {
  std::vector<std::string> paths;
  for (const auto& row : table.rows)
    if (name_of(row.path) == name && std::ranges::find(paths, row.path) == paths.end()) paths.push_back(row.path);
  return paths;
}

/// The keys that a name without its group may mean: values with that name, or with a synonym of it, or the nearest
/// name.
inline std::vector<std::string> meant_by_name(const ConfigTable& table, const std::string& name) {
  if (auto exact = paths_of(table, folded(name)); !exact.empty()) return exact;
  if (const auto synonym = synonym_of(name, table.synonyms))
    if (auto known = paths_of(table, *synonym); !known.empty()) return known;
  if (nearest(name, names_below(table, ""))) return {};  // a similar name at the top level comes first
  std::vector<std::string> names;
  for (const auto& row : table.rows) names.emplace_back(name_of(row.path));
  const auto meant = nearest(name, names);
  return meant ? paths_of(table, *meant) : std::vector<std::string>{};
}

/// The path for a name such as `model_n_layer`, which has an underscore in the place of a dot.
inline std::optional<std::string> with_dots(const ConfigTable& table, const std::string& name) {
  for (auto at = name.find('_'); at != std::string::npos; at = name.find('_', at + 1)) {
    auto path = name;
    path[at] = '.';
    if (table.meaning_of(path).row != nullptr) return path;
  }
  return std::nullopt;
}

/// The groups that have a value with that name: `a`, `b` or `c`.
inline std::string homes_of(const ConfigTable& table, std::string_view name) {
  std::vector<std::string> homes;
  for (const auto& path : paths_of(table, name))
    homes.push_back(group_of(path).empty() ? "the top level" : '`' + std::string{group_of(path)} + '`');
  constexpr std::size_t kMax = 3;
  homes.resize(std::min(homes.size(), kMax));
  return one_of(homes);
}

/// The path with the segments from `first` on replaced by the nearest known names, as far as there are such names.
inline std::optional<std::string> corrected(const ConfigTable& table, std::vector<std::string> parts, std::size_t first,
                                            std::size_t end) {
  std::string path = path_of(parts, first);
  for (std::size_t i = first; i < std::min(end, parts.size()); ++i) {
    const auto names = names_below(table, path);
    auto meant = nearest(parts[i], names);
    if (const auto synonym = synonym_of(parts[i], table.synonyms);
        synonym && std::ranges::find(names, *synonym) != names.end())
      meant = synonym;
    if (!meant) meant = nearest(parts[i], aliases_below(table, path));
    if (!meant) break;
    path = table.meaning_of(path_in(path, *meant)).path;
  }
  if (path == path_of(parts, first)) return std::nullopt;
  return path;
}

inline std::string explain_unknown_key(const ConfigTable& table, std::string_view path, std::size_t first,
                                       std::size_t end) {
  const auto parts = path_segments(path);
  const auto group = path_of(parts, first);
  if (const auto* moved = ConfigTable::most_specific(table.moved, path); moved != nullptr)
    return "that key moved to " + moved->leads_to + std::string{path.substr(moved->key.size())};
  if (table.find(group) != nullptr) return "unknown key; `" + group + "` is a value and has no keys";
  const bool is_name_alone = first == 0 && parts.size() == 1;
  if (parts.front() == "defaults" && first == 0)
    return "unknown key; a file names the files that it builds on by `include: [base.yaml, other.yaml]`";
  if (is_name_alone) {
    if (is_launcher_flag(parts.front()))
      return "unknown key; the flags of ddpxx-run stand before the program: ddpxx-run FLAGS PROGRAM ARGUMENTS";
    if (const auto meant = with_dots(table, parts.front()))
      return "unknown key; did you mean " + *meant + "? (in an environment variable __ stands for the dot)";
    if (auto meant = meant_by_name(table, parts.front()); !meant.empty()) {
      constexpr std::size_t kMax = 3;
      meant.resize(std::min(meant.size(), kMax));
      return "unknown key; did you mean " + one_of(meant) + '?';
    }
  }
  if (parts.back() == "name" && first > 0 && table.find(path_in(group, "name")) == nullptr)
    return "unknown key; `" + group + "` is of one kind only; it has " + one_of(names_below(table, group));
  if (const auto meant = corrected(table, parts, first, end)) return "unknown key; did you mean " + *meant + '?';
  if (const auto synonym = synonym_of(parts.back(), table.synonyms))
    if (const auto known = paths_of(table, *synonym); !known.empty())
      return "unknown key; did you mean " + known.front() + '?';
  if (const auto homes = homes_of(table, parts.back()); !homes.empty())
    return "unknown key; `" + parts.back() + "` lives in " + homes;
  const auto names = names_below(table, group);
  return "unknown key; " + (group.empty() ? "the top level" : '`' + group + '`') + " has " +
         (names.empty() ? "no keys" : one_of(names));
}

}  // namespace ddpxx::detail
