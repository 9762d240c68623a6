// ddpxx/config/line/text_setting.hpp — reads a key and the text of its value, from the command line and the
// environment.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/files/argument_value.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Adds the entries of a key and the text of its value to `entries`. Keys that take lists, and maps in braces, are
/// recognised by the table. Returns the problem that makes the text invalid; empty if it is valid.
inline std::string add_setting(SourceEntries& entries, const ConfigTable& table, const std::string& key,
                               std::string_view text, const Position& place) {
  const auto give = [&](const std::string& path, RawValue value) {
    entries.list.push_back(
        {.path = path, .keys = std::vector<Position>(path_segments(path).size(), place), .value = std::move(value)});
  };
  const auto meaning = table.meaning_of(key);
  const bool is_whole_map = meaning.row != nullptr && meaning.row->type->is_map() && !meaning.entry;
  if (is_whole_map && text.starts_with('{')) {
    auto map = read_argument_map(text, place);
    if (!map.problem.empty()) return map.problem;
    give(key, {.kind = RawValue::Kind::group, .place = place});  // replaces the whole map by these entries
    for (auto& [name, value] : map.entries) give(path_in(key, name), std::move(value));
    return {};
  }
  const bool takes_list = meaning.row != nullptr ? meaning.row->type->takes_list : count_of_several(table, key) > 0;
  auto read = read_argument_value(text, takes_list ? Brackets::are_list : Brackets::are_text, place);
  if (read.problem.empty()) give(key, std::move(read.value));
  return read.problem;
}

}  // namespace ddpxx::detail
