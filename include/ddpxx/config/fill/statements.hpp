// ddpxx/config/fill/statements.hpp — the entries of one source, assigned to the values of the table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/line/ignored_key.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/text/text.hpp>

namespace ddpxx {

/// The problems of a configuration, and the notices about it.
struct Findings {
  std::vector<ConfigProblem> problems{};
  std::vector<ConfigProblem> notices{};
  std::vector<std::string> spoilt{};  ///< Paths of values and groups that cannot be checked any further.
  bool is_all_spoilt = false;

  /// Adds a problem, after which the value or the group at `canonical` is not checked any further.
  void complain(ConfigProblem problem, std::string canonical) {
    spoilt.push_back(std::move(canonical));
    problems.push_back(std::move(problem));
  }
};

/// The entry of one source for each value. Finds unknown keys, and values that the source sets twice.
class Statements {
 public:
  /// Entries by the value's index in the table and the key in a map. Rows with one path use the index of the first.
  using MapKey = std::optional<std::string>;
  using Chosen = std::map<std::pair<std::size_t, MapKey>, const Given*>;

  Statements(Said said, const ConfigTable& table, Findings& findings)
      : said_{std::move(said)}, table_{table}, findings_{findings} {
    hide_secrets();
    for (const auto& problem : said_.problems) {
      findings.complain(problem, table.meaning_of(problem.path).path);
      findings.is_all_spoilt = findings.is_all_spoilt || problem.path.empty();
    }
    findings.notices.insert(findings.notices.end(), said_.notices.begin(), said_.notices.end());
    for (const auto& given : said_.given) choose(given);
  }
  Statements(const Statements&) = delete;  // chosen_ points into the entries
  Statements& operator=(const Statements&) = delete;

  const Chosen& chosen() const noexcept { return chosen_; }
  bool are_of_a_file() const noexcept { return said_.source && said_.source->is_file(); }

 private:
  void hide_secrets();
  void hide_lines(const std::set<std::size_t>& lines);
  void choose(const Given& given);
  void choose_row(const Given& given, const KeyMeaning& meaning);
  void choose_translated(const Given& given, const KeyMeaning& meaning);
  void choose_parts(const Given& given, const std::string& canonical, std::size_t count);
  void ignore(const Given& given, const KeyMeaning& meaning);
  void refuse(const Given& given, const std::string& canonical);

  Said said_;
  const ConfigTable& table_;
  Findings& findings_;
  Chosen chosen_;
  std::deque<Given> parts_;  // entries for several settings, or translated; a deque, because of pointers
};

namespace detail {

/// Adds the lines of the value and its items.
inline void add_lines(std::set<std::size_t>& lines, const GivenValue& value) {
  lines.insert(value.place.line);
  for (const auto& item : value.items) add_lines(lines, item);
}

template <class Place>
void for_each_place(GivenValue& value, const Place& visit) {
  visit(value.place);
  for (auto& item : value.items) for_each_place(item, visit);
}

}  // namespace detail

/// Hides lines that contain secrets from positions, and removes quoted secrets from problems.
inline void Statements::hide_secrets() {
  if (!said_.source || std::ranges::none_of(table_.rows, [](const auto& row) { return row.facts.is_secret; })) return;
  std::set<std::size_t> lines;
  for (auto& problem : said_.problems) {
    const bool is_argument =
        problem.path.empty() && said_.source->is_command_line() && problem.place.line - 1 < said_.source->lines.size();
    const auto key = is_argument ? key_of_argument(said_.source->lines[problem.place.line - 1], &table_) : problem.path;
    if (!leads_to_secret(table_, key)) continue;
    lines.insert(problem.place.line);
    problem.text = without_quotes(problem.text);
  }
  for (const auto& given : said_.given) {
    if (!leads_to_secret(table_, given.path)) continue;
    for (const auto& key : given.keys) lines.insert(key.line);
    detail::add_lines(lines, given.value);
  }
  if (!lines.empty()) hide_lines(lines);
}

/// Makes all positions use a copy of the source in which the lines are hidden.
inline void Statements::hide_lines(const std::set<std::size_t>& lines) {
  const auto before = said_.source;
  auto hidden = *before;
  for (const auto number : lines) {
    if (number - 1 >= hidden.lines.size()) continue;
    auto& line = hidden.lines[number - 1];
    const auto key =
        hidden.is_file() ? std::string::npos : line.find_first_of("= ");  // `--token abc` is an argument, too
    line = line.substr(0, key == std::string::npos ? 0 : key + 1) + "***";
  }
  said_.source = std::make_shared<const ConfigSource>(std::move(hidden));
  const auto move = [&](Position& place) {
    if (place.source == before) place.source = said_.source;
  };
  for (auto& problem : said_.problems) move(problem.place);
  for (auto& notice : said_.notices) move(notice.place);
  for (auto& given : said_.given) {
    for (auto& key : given.keys) move(key);
    detail::for_each_place(given.value, move);
  }
}

inline void Statements::choose(const Given& given) {
  const auto meaning = table_.meaning_of(given.path);
  if (meaning.kind == KeyMeaning::Kind::ignored) return ignore(given, meaning);
  if (meaning.kind == KeyMeaning::Kind::unknown) {
    const auto several = given.removes ? 0 : count_of_several(table_, given.path);
    return several > 0 ? choose_parts(given, meaning.path, several) : refuse(given, meaning.path);
  }
  if (meaning.translate != nullptr && given.value.kind == GivenValue::Kind::text && !is_interpolated(given.value))
    return choose_translated(given, meaning);
  if (meaning.kind == KeyMeaning::Kind::value) return choose_row(given, meaning);
  const bool says_nothing = is_null(given.value) || given.value.kind == GivenValue::Kind::group;
  if (says_nothing && !given.removes) return;
  // `strategy=fsdp` sets `strategy.name`: the key of a group with a field `name` stands for that field.
  if (const auto* name = table_.find(path_in(meaning.path, "name")); name != nullptr && !given.removes)
    return choose_row(given, {.kind = KeyMeaning::Kind::value, .path = name->path, .row = name});
  const auto names = one_of(detail::names_below(table_, meaning.path));
  findings_.complain({given.value.place, given.path, "is a group, with the keys " + names}, meaning.path);
}

inline void Statements::choose_row(const Given& given, const KeyMeaning& meaning) {
  if (given.removes && !meaning.entry)
    return findings_.complain({given.keys.back(), given.path, "only an entry of a map can be taken out"}, meaning.path);
  if (meaning.entry) {
    const auto depth = path_segments(*meaning.entry).size();  // a key with dots has one position
    const auto& entry_place = given.keys[given.keys.size() - std::min(depth, given.keys.size())];
    if (entry_place != given.keys.back()) {
      auto group = group_of(given.path);
      return findings_.complain(
          {entry_place, std::string{group}, "is a group; the entries of this map are single values"}, meaning.path);
    }
  }
  if (meaning.row->type->is_map() && !meaning.entry)  // replaces all earlier entries of the map
    std::erase_if(chosen_, [&](const auto& said) { return said.first.first == table_.index_of(*meaning.row); });
  const auto [place, is_new] = chosen_.try_emplace({table_.index_of(*meaning.row), meaning.entry}, &given);
  const Given& first = *place->second;
  if (is_new || first.path == given.path) {
    if (!is_new && said_.source && said_.source->is_command_line())
      findings_.notices.push_back({given.keys.back(), given.path,
                                   "is given before, by " + to_text(first.keys.back()) + "; the last one counts"});
    place->second = &given;
  } else {
    auto text = "is also given as " + first.path + " at " + to_text(first.keys.back()) + "; keep one of the two";
    findings_.complain({given.keys.back(), given.path, std::move(text)}, meaning.path);
  }
}

inline void Statements::choose_translated(const Given& given, const KeyMeaning& meaning) {
  auto& translated = parts_.emplace_back(given);
  translated.translation = meaning.translate(given.value.text);
  translated.value.text = translated.translation.value;
  choose_row(translated, meaning);
}

inline void Statements::choose_parts(const Given& given, const std::string& canonical, std::size_t count) {
  const auto& value = given.value;
  if (value.kind != GivenValue::Kind::list)
    return findings_.complain(
        {value.place, given.path,
         leads_to_secret(table_, given.path) ? without_quotes(not_a_list(value)) : not_a_list(value)},
        canonical);
  if (value.items.size() != count)
    return findings_.complain(
        {value.place, given.path,
         "needs " + std::to_string(count) + " items, and has " + std::to_string(value.items.size())},
        canonical);
  for (auto& part : parts_of(given)) choose(parts_.emplace_back(std::move(part)));
}

/// Adds one notice for all keys of an ignored group, or a problem for a value that cannot be ignored.
inline void Statements::ignore(const Given& given, const KeyMeaning& meaning) {
  if (auto problem = problem_of_ignored(table_, meaning, given.value); !problem.empty())
    return findings_.complain({given.value.place, given.path, std::move(problem)}, meaning.path);
  const auto written = path_segments(given.path);
  const auto count = std::min(path_segments(meaning.path).size(), written.size());
  const ConfigProblem notice{given.keys[count - 1], path_of(written, count), std::string{meaning.reason}};
  const auto is_same = [&](const ConfigProblem& other) {
    return other.path == notice.path && other.place.source == notice.place.source;
  };
  if (std::ranges::none_of(findings_.notices, is_same)) findings_.notices.push_back(notice);
}

inline void Statements::refuse(const Given& given, const std::string& canonical) {
  const auto written = path_segments(given.path);
  const auto length = path_segments(canonical).size();
  const auto first = first_unknown_segment(table_, canonical);
  // An alias changes the start of a path, so segments are matched from its end.
  const auto as_written = [&](std::size_t segment) {
    return written.size() - 1 - std::min(length - 1 - segment, written.size() - 1);
  };
  const Position& place = given.keys[as_written(first)];
  const auto path = path_of(written, as_written(first) + 1);
  const auto is_same = [&](const ConfigProblem& other) { return other.place == place && other.path == path; };
  if (!findings_.problems.empty() && is_same(findings_.problems.back()))
    return;  // another key of this unknown group was reported
  std::size_t end = first + 1;
  while (end < length && given.keys[as_written(end)] == place) ++end;
  const bool worth_it = findings_.problems.size() < kMaxProblems;
  findings_.complain({place, path, worth_it ? explain_unknown_key(table_, canonical, first, end) : "unknown key"},
                     canonical);
}

}  // namespace ddpxx
