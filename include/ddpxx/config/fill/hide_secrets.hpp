// ddpxx/config/fill/hide_secrets.hpp — hides the lines of a source that contain secrets.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Adds the lines of the value and its items.
inline void add_lines(std::set<std::size_t>& lines, const RawValue& value) {
  lines.insert(value.place.line);
  for (const auto& item : value.items) add_lines(lines, item);
}

template <class Place>
void for_each_place(RawValue& value, const Place& visit) {
  visit(value.place);
  for (auto& item : value.items) for_each_place(item, visit);
}

/// Whether a line of a file that could not be read may hold a secret: it or the line before has the last part of a
/// secret's key as a word.
inline bool may_hold_secret(const ConfigTable& table, const ConfigSource& file, std::size_t number) {
  const auto has_word = [](std::string_view line, std::string_view word) {
    const auto is_inside = [&](std::size_t at) {
      return at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_');
    };
    for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1))
      if ((at == 0 || !is_inside(at - 1)) && !is_inside(at + word.size())) return true;
    return false;
  };
  return std::ranges::any_of(table.rows, [&](const ConfigRow& row) {
    const auto key = std::string_view{row.path}.substr(row.path.rfind('.') + 1);
    for (std::size_t line = number < 2 ? 1 : number - 1; row.facts.is_secret && line <= number; ++line)
      if (line <= file.lines.size() && has_word(file.lines[line - 1], key)) return true;
    return false;
  });
}

/// Makes all positions use a copy of the source in which the lines are hidden.
inline void hide_lines(SourceEntries& entries, const std::set<std::size_t>& lines) {
  const auto before = entries.source;
  auto hidden = *before;
  for (const auto number : lines) {
    if (number - 1 >= hidden.lines.size()) continue;
    auto& line = hidden.lines[number - 1];
    const auto key =
        hidden.is_file() ? std::string::npos : line.find_first_of("= ");  // `--token abc` is an argument, too
    line = line.substr(0, key == std::string::npos ? 0 : key + 1) + "***";
  }
  entries.source = std::make_shared<const ConfigSource>(std::move(hidden));
  const auto move = [&](Position& place) {
    if (place.source == before) place.source = entries.source;
  };
  for (auto& problem : entries.problems) move(problem.place);
  for (auto& notice : entries.notices) move(notice.place);
  for (auto& entry : entries.list) {
    for (auto& key : entry.keys) move(key);
    for_each_place(entry.value, move);
  }
}

/// Hides lines that contain secrets from positions, and removes quoted secrets from problems.
inline void hide_secrets(SourceEntries& entries, const ConfigTable& table) {
  if (!entries.source) return;
  std::set<std::size_t> lines;
  for (auto& problem : entries.problems) {
    const bool is_argument = problem.path.empty() && entries.source->is_command_line() &&
                             problem.place.line - 1 < entries.source->lines.size();
    const std::string& line = is_argument ? entries.source->lines[problem.place.line - 1] : problem.path;
    const auto key = is_argument ? key_of_argument(line, &table) : problem.path;
    // An argument that is only a word has no value to hide, and a hidden word would leave the message without its
    // subject.
    const bool is_word = is_argument && line.find_first_of("= ") == std::string::npos;
    const bool is_unread = problem.path.empty() && entries.source->is_file();
    if (!(is_word ? leads_to_secret(table, key) : may_be_secret(table, key)) &&
        !(is_unread && may_hold_secret(table, *entries.source, problem.place.line)))
      continue;
    lines.insert(problem.place.line);
    problem.text = without_quotes(problem.text);
  }
  for (const auto& entry : entries.list) {
    if (!may_be_secret(table, entry.path)) continue;
    for (const auto& key : entry.keys) lines.insert(key.line);
    add_lines(lines, entry.value);
  }
  if (!lines.empty()) hide_lines(entries, lines);
}

}  // namespace ddpxx::detail
