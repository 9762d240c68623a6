// ddpxx/config/filling.hpp — what sources say, into a config; and all that is wrong with it, in one go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/unknown_key.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Fills one config from sources, the later ones over the earlier.
class Filling {
 public:
  /// `config` is a struct of the type that `table` describes.
  Filling(const ConfigTable& table, void* config) : table_{table}, config_{config}, origins_(table.rows.size()) {}

  /// Applies one source. All that it says holds together: it resets what earlier sources said, and nothing of its own.
  void apply(const Said& said);

  /// Applies the rules between fields, in every struct that lost no value to another problem.
  void check();

  const std::vector<ConfigProblem>& problems() const noexcept { return problems_; }

  /// What was accepted, and should be known all the same.
  const std::vector<ConfigProblem>& notices() const noexcept { return notices_; }

  /// Where the value was set last; no source for a default.
  const Position& origin(const ConfigRow& row) const { return origins_[index_of(row)]; }

 private:
  /// By row: the statement of the source that sets it.
  using Chosen = std::map<std::size_t, const Given*>;

  std::size_t index_of(const ConfigRow& row) const { return static_cast<std::size_t>(&row - table_.rows.data()); }

  /// Adds a problem that costs the value, or the group, at `canonical`.
  void complain(ConfigProblem problem, std::string canonical) {
    spoilt_.push_back(std::move(canonical));
    problems_.push_back(std::move(problem));
  }

  void choose(const Given& given, Chosen& chosen);
  void ignore(const Given& given, const KeyMeaning& meaning);
  void refuse(const Given& given, const std::string& canonical);
  void take_back_siblings(const ConfigRow& row);
  void set(const ConfigRow& row, const Given& given);

  const ConfigTable& table_;
  void* config_;
  std::vector<Position> origins_;
  std::vector<ConfigProblem> problems_;
  std::vector<ConfigProblem> notices_;
  std::vector<std::string> spoilt_;
  bool all_spoilt_ = false;
};

inline void Filling::apply(const Said& said) {
  for (const auto& problem : said.problems) {
    complain(problem, table_.meaning_of(problem.path).path);
    all_spoilt_ = all_spoilt_ || problem.path.empty();
  }
  Chosen chosen;
  for (const auto& given : said.given) choose(given, chosen);
  for (const auto& [index, given] : chosen) take_back_siblings(table_.rows[index]);  // before this source sets anything
  for (const auto& [index, given] : chosen) set(table_.rows[index], *given);
}

inline void Filling::choose(const Given& given, Chosen& chosen) {
  const auto meaning = table_.meaning_of(given.path);
  if (meaning.kind == KeyMeaning::Kind::ignored) return ignore(given, meaning);
  if (meaning.kind == KeyMeaning::Kind::unknown) return refuse(given, meaning.path);
  if (meaning.kind == KeyMeaning::Kind::group) {
    const bool says_nothing = is_null(given.value) || given.value.kind == GivenValue::Kind::group;
    if (says_nothing) return;
    // `strategy=fsdp` for `strategy.name=fsdp`: a group that has a name is known by it.
    if (const auto* name = table_.find(path_in(meaning.path, "name"))) {
      chosen.insert_or_assign(index_of(*name), &given);
      return;
    }
    const auto names = one_of(detail::names_below(table_, meaning.path));
    return complain({given.value.place, given.path, "is a group, with the keys " + names}, meaning.path);
  }
  const auto [place, is_new] = chosen.try_emplace(index_of(*meaning.row), &given);
  const Given& first = *place->second;
  if (is_new || first.path == given.path) {
    place->second = &given;  // of a repeated argument the last one counts
  } else {
    auto text = "is also given as " + first.path + " at " + to_text(first.keys.back()) + "; keep one of the two";
    complain({given.keys.back(), given.path, std::move(text)}, meaning.path);
  }
}

/// One notice for all that lies in an ignored group.
inline void Filling::ignore(const Given& given, const KeyMeaning& meaning) {
  const auto written = path_segments(given.path);
  const auto count = std::min(path_segments(meaning.path).size(), written.size());
  const ConfigProblem notice{given.keys[count - 1], path_of(written, count), std::string{meaning.reason}};
  const auto is_same = [&](const ConfigProblem& other) {
    return other.path == notice.path && other.place.source == notice.place.source;
  };
  if (std::ranges::none_of(notices_, is_same)) notices_.push_back(notice);
}

inline void Filling::refuse(const Given& given, const std::string& canonical) {
  const auto written = path_segments(given.path);
  const auto length = path_segments(canonical).size();
  const auto first = first_unknown_segment(table_, canonical);
  // An alias changes the front of a path: segments are matched from its end.
  const auto as_written = [&](std::size_t segment) {
    return written.size() - 1 - std::min(length - 1 - segment, written.size() - 1);
  };
  const Position& place = given.keys[as_written(first)];
  const auto path = path_of(written, as_written(first) + 1);
  const auto is_same = [&](const ConfigProblem& other) { return other.place == place && other.path == path; };
  if (!problems_.empty() && is_same(problems_.back())) return;  // another key of the same unknown group
  std::size_t end = first + 1;
  while (end < length && given.keys[as_written(end)] == place) ++end;
  const bool worth_it = problems_.size() < kMostProblems;
  complain({place, path, worth_it ? explain_unknown_key(table_, canonical, first, end) : "unknown key"}, canonical);
}

inline void Filling::take_back_siblings(const ConfigRow& row) {
  for (const auto& path : row.resets)
    for (std::size_t i = 0; i < table_.rows.size(); ++i) {
      if (!lies_in(table_.rows[i].path, path)) continue;
      table_.reset(table_.rows[i], config_);
      origins_[i] = {};
    }
}

inline void Filling::set(const ConfigRow& row, const Given& given) {
  const auto decoded = row.type->decode(table_.field(row, config_), given.value, row.facts);
  const auto path = given.path + decoded.item;
  if (!decoded.problem.empty()) return complain({decoded.place, path, decoded.problem}, row.path);
  if (!decoded.notice.empty()) notices_.push_back({decoded.place, path, decoded.notice});
  origins_[index_of(row)] = given.value.place;
}

inline void Filling::check() {
  if (all_spoilt_) return;
  const auto known = spoilt_;
  for (const auto& group : table_.groups) {
    const auto is_spoilt = [&](const std::string& path) { return lies_in(path, group.path); };
    if (group.check == nullptr || std::ranges::any_of(known, is_spoilt)) continue;
    for (auto& error : group.check(static_cast<const std::byte*>(config_) + group.offset)) {
      const auto path = error.field.empty() ? group.path : path_in(group.path, error.field);
      const ConfigRow* row = table_.find(path);
      problems_.push_back({row == nullptr ? Position{} : origin(*row), path, std::move(error.text)});
    }
  }
}

}  // namespace ddpxx
