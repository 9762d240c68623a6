// ddpxx/config/fill/source_overrides.hpp — the entries of one source, assigned to the values of the table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/config/fill/diagnostics.hpp>
#include <ddpxx/config/fill/hide_secrets.hpp>
#include <ddpxx/config/line/ignored_key.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// The entry of one source for each value. Finds unknown keys, and values that the source sets twice.
class SourceOverrides {
 public:
  /// Entries by the value's index in the table and the key in a map. Rows with one path use the index of the first.
  using MapKey = std::optional<std::string>;
  using Chosen = std::map<std::pair<std::size_t, MapKey>, const SourceEntry*>;

  SourceOverrides(SourceEntries entries, const ConfigTable& table, Diagnostics& diagnostics)
      : entries_{std::move(entries)}, table_{table}, diagnostics_{diagnostics} {
    hide_secrets(entries_, table);
    for (const auto& problem : entries_.problems) {
      diagnostics.complain(problem, table.meaning_of(problem.path).path);
      diagnostics.is_all_invalid = diagnostics.is_all_invalid || problem.path.empty();
    }
    diagnostics.notices.insert(diagnostics.notices.end(), entries_.notices.begin(), entries_.notices.end());
    for (const auto& entry : entries_.list) choose(entry);
  }
  SourceOverrides(const SourceOverrides&) = delete;  // chosen_ points into the entries
  SourceOverrides& operator=(const SourceOverrides&) = delete;

  const Chosen& chosen() const noexcept { return chosen_; }
  bool are_of_a_file() const noexcept { return entries_.source && entries_.source->is_file(); }

 private:
  void choose(const SourceEntry& entry);
  void choose_row(const SourceEntry& entry, const KeyMeaning& meaning);
  void choose_translated(const SourceEntry& entry, const KeyMeaning& meaning);
  void choose_parts(const SourceEntry& entry, const std::string& canonical, std::size_t count);
  void ignore(const SourceEntry& entry, const KeyMeaning& meaning);
  void refuse(const SourceEntry& entry, const std::string& canonical);

  SourceEntries entries_;
  const ConfigTable& table_;
  Diagnostics& diagnostics_;
  Chosen chosen_;
  std::deque<SourceEntry> parts_;  // entries for several settings, or translated; a deque, because of pointers
};

inline void SourceOverrides::choose(const SourceEntry& entry) {
  const auto meaning = table_.meaning_of(entry.path);
  if (meaning.kind == KeyMeaning::Kind::ignored) return ignore(entry, meaning);
  if (meaning.kind == KeyMeaning::Kind::unknown) {
    const auto several = entry.removes ? 0 : count_of_several(table_, entry.path);
    return several > 0 ? choose_parts(entry, meaning.path, several) : refuse(entry, meaning.path);
  }
  if (meaning.translate != nullptr) return choose_translated(entry, meaning);
  if (meaning.kind == KeyMeaning::Kind::value) return choose_row(entry, meaning);
  const bool says_nothing = is_null(entry.value) || entry.value.kind == RawValue::Kind::group;
  if (says_nothing && !entry.removes) return;
  // `strategy=fsdp` sets `strategy.name`: the key of a group with a field `name` stands for that field.
  if (const auto* name = table_.find(path_in(meaning.path, "name")); name != nullptr && !entry.removes)
    return choose_row(entry, {.kind = KeyMeaning::Kind::value, .path = name->path, .row = name});
  const auto names = names_below(table_, meaning.path);
  const auto keys = names.empty() ? "without keys" : "with the keys " + one_of(names);
  diagnostics_.complain({entry.value.place, entry.path, "is a group, " + keys}, meaning.path);
}

/// True for a value that its alias translates to nothing: another key of the source may then give the setting.
inline bool is_translated_to_nothing(const SourceEntry& entry) {
  if (entry.translate == nullptr || entry.value.kind != RawValue::Kind::text || is_interpolated(entry.value))
    return false;
  const auto translation = entry.translate(entry.value.text);
  return translation.problem.empty() && translation.value.empty();
}

inline void SourceOverrides::choose_row(const SourceEntry& entry, const KeyMeaning& meaning) {
  if (entry.removes && !meaning.entry)
    return diagnostics_.complain({entry.keys.back(), entry.path, "only an entry of a map can be taken out"},
                                 meaning.path);
  if (meaning.entry) {
    const auto depth = path_segments(*meaning.entry).size();  // a key with dots has one position
    const auto& entry_place = entry.keys[entry.keys.size() - std::min(depth, entry.keys.size())];
    if (entry_place != entry.keys.back()) {
      auto group = group_of(entry.path);
      return diagnostics_.complain(
          {entry_place, std::string{group}, "is a group; the entries of this map are single values"}, meaning.path);
    }
  }
  if (meaning.row->type->is_map() && !meaning.entry)  // replaces all earlier entries of the map
    std::erase_if(chosen_, [&](const auto& chosen) { return chosen.first.first == table_.index_of(*meaning.row); });
  const auto [place, is_new] = chosen_.try_emplace({table_.index_of(*meaning.row), meaning.entry}, &entry);
  const SourceEntry& first = *place->second;
  if (is_new || first.path == entry.path) {
    if (!is_new && entries_.source && entries_.source->is_command_line())
      diagnostics_.notices.push_back({entry.keys.back(), entry.path,
                                      "is given before, by " + to_text(first.keys.back()) + "; the last one counts"});
    place->second = &entry;
  } else if (is_translated_to_nothing(first)) {
    place->second = &entry;
  } else if (!is_translated_to_nothing(entry)) {
    auto text = "is also given as " + first.path + " at " + to_text(first.keys.back()) + "; keep one of the two";
    diagnostics_.complain({entry.keys.back(), entry.path, std::move(text)}, meaning.path);
  }
}

inline void SourceOverrides::choose_translated(const SourceEntry& entry, const KeyMeaning& meaning) {
  auto& translated = parts_.emplace_back(entry);
  translated.translate = meaning.translate;
  choose_row(translated, meaning);
}

inline void SourceOverrides::choose_parts(const SourceEntry& entry, const std::string& canonical, std::size_t count) {
  const auto& value = entry.value;
  if (value.kind != RawValue::Kind::list)
    return diagnostics_.complain(
        {value.place, entry.path,
         leads_to_secret(table_, entry.path) ? without_quotes(not_a_list(value)) : not_a_list(value)},
        canonical);
  if (value.items.size() != count)
    return diagnostics_.complain(
        {value.place, entry.path,
         "needs " + std::to_string(count) + " items, and has " + std::to_string(value.items.size())},
        canonical);
  for (auto& part : parts_of(entry)) choose(parts_.emplace_back(std::move(part)));
}

/// Adds one notice for all keys of an ignored group, or a problem for a value that cannot be ignored.
inline void SourceOverrides::ignore(const SourceEntry& entry, const KeyMeaning& meaning) {
  if (auto problem = problem_of_ignored(table_, meaning, entry.value); !problem.empty())
    return diagnostics_.complain({entry.value.place, entry.path, std::move(problem)}, meaning.path);
  const auto written = path_segments(entry.path);
  const auto count = std::min(path_segments(meaning.path).size(), written.size());
  const ConfigProblem notice{entry.keys[count - 1], path_of(written, count), std::string{meaning.reason}};
  const auto is_same = [&](const ConfigProblem& other) {
    return other.path == notice.path && other.place.source == notice.place.source;
  };
  if (std::ranges::none_of(diagnostics_.notices, is_same)) diagnostics_.notices.push_back(notice);
}

inline void SourceOverrides::refuse(const SourceEntry& entry, const std::string& canonical) {
  const auto written = path_segments(entry.path);
  const auto length = path_segments(canonical).size();
  const auto first = first_unknown_segment(table_, canonical);
  // An alias changes the start of a path, so segments are matched from its end.
  const auto as_written = [&](std::size_t segment) {
    return written.size() - 1 - std::min(length - 1 - segment, written.size() - 1);
  };
  const Position& place = entry.keys[as_written(first)];
  const auto path = path_of(written, as_written(first) + 1);
  const auto is_same = [&](const ConfigProblem& other) { return other.place == place && other.path == path; };
  if (!diagnostics_.problems.empty() && is_same(diagnostics_.problems.back()))
    return;  // another key of this unknown group was reported
  std::size_t end = first + 1;
  while (end < length && entry.keys[as_written(end)] == place) ++end;
  const bool worth_it = diagnostics_.problems.size() < kMaxProblems;
  diagnostics_.complain({place, path, worth_it ? explain_unknown_key(table_, canonical, first, end) : "unknown key"},
                        canonical);
}

}  // namespace ddpxx::detail
