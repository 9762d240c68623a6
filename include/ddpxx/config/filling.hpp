// ddpxx/config/filling.hpp — what sources say, into a config; and all that is wrong with it, in one go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/interpolation.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/sweep_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/unknown_key.hpp>
#include <ddpxx/config/yaml.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

namespace detail {

/// The place without what is written there: for a secret, which no message shows.
inline Position without_text(const Position& place) {
  if (!place.source || place.line == 0 || place.line > place.source->lines.size()) return place;
  auto source = *place.source;
  auto& line = source.lines[place.line - 1];
  const auto key = source.is_file() ? std::string::npos : line.find_first_of("= ");  // `--token abc` is one, too
  line = line.substr(0, key == std::string::npos ? 0 : key + 1) + "***";
  return {std::make_shared<const ConfigSource>(std::move(source)), place.line, place.column};
}

}  // namespace detail

/// A value as some source set it.
struct SetValue {
  std::string value;  ///< As YAML; a secret is not told.
  Position place{};
};

/// Fills one config from sources, the later ones over the earlier: the alternatives of variants first, then values,
/// then the values that name others, at last the rules between fields.
class Filling {
 public:
  /// `config` is a struct of the type that `table` describes.
  Filling(const ConfigTable& table, void* config) : table_{table}, config_{config}, history_(table.rows.size()) {}

  /// Adds one source. All that it says holds together: it resets what earlier sources said, and nothing of its own.
  void apply(Said said) { sources_.push_back({std::move(said), {}}); }

  /// Fills the config, once.
  void finish();

  const std::vector<ConfigProblem>& problems() const noexcept { return problems_; }

  /// What was accepted, and should be known all the same.
  const std::vector<ConfigProblem>& notices() const noexcept { return notices_; }

  /// Who set the value, the last one at the end; empty for a default.
  const std::vector<SetValue>& history(const ConfigRow& row) const { return history_[index_of(row)]; }

  /// The value's text before other settings and variables were put into it; none for others.
  std::optional<std::string> as_written(const ConfigRow& row) const {
    const auto found = written_.find(index_of(row));
    return found == written_.end() ? std::nullopt : std::optional{found->second};
  }

 private:
  /// By row, and by entry of a map: the statement of the source that sets it. Rows of one path count as the first.
  using MapKey = std::optional<std::string>;
  using Chosen = std::map<std::pair<std::size_t, MapKey>, const Given*>;
  struct Source {
    Said said;
    Chosen chosen;
  };
  /// What has to wait until the values that it names are known.
  struct Waiting {
    const Given* given;
    MapKey entry;
  };

  std::size_t index_of(const ConfigRow& row) const { return static_cast<std::size_t>(&row - table_.rows.data()); }

  /// Adds a problem that costs the value, or the group, at `canonical`.
  void complain(ConfigProblem problem, std::string canonical) {
    spoilt_.push_back(std::move(canonical));
    problems_.push_back(std::move(problem));
  }

  void hide_secret(Given& given) const;
  void choose(const Given& given, Chosen& chosen);
  void choose_row(const Given& given, const KeyMeaning& meaning, Chosen& chosen);
  void ignore(const Given& given, const KeyMeaning& meaning);
  void refuse(const Given& given, const std::string& canonical);
  void choose_alternative(const ConfigRow& row);
  void set_values(std::size_t source);
  void take_back_siblings(const ConfigRow& row);
  const ConfigRow* active_row(const ConfigRow& row, const Given& given, std::size_t source);
  void set(const ConfigRow& row, const MapKey& entry, const Given& given);
  void decode(const ConfigRow& row, const MapKey& entry, const Given& given, const GivenValue& value);
  void resolve(std::size_t index);
  std::optional<GivenValue> resolved(GivenValue value, const ConfigRow& row, const Given& given);
  std::optional<GivenValue> value_of(const TextPiece& piece, const ConfigRow& row, const Given& given);
  std::string chain_to(std::string_view end) const;
  void check_rules();

  const ConfigTable& table_;
  void* config_;
  std::deque<Source> sources_;
  std::vector<std::vector<SetValue>> history_;
  std::map<std::size_t, std::size_t> chosen_by_;  // rows that choose an alternative, and the source that did
  std::map<std::size_t, std::vector<Waiting>> waiting_;
  std::vector<std::size_t> resolving_;  // from the first asked for to the one at work
  std::map<std::size_t, std::string> written_;
  std::vector<ConfigProblem> problems_;
  std::vector<ConfigProblem> notices_;
  std::vector<std::string> spoilt_;
  bool all_spoilt_ = false;
};

inline void Filling::finish() {
  for (auto& source : sources_) {
    for (const auto& problem : source.said.problems) {
      complain(problem, table_.meaning_of(problem.path).path);
      all_spoilt_ = all_spoilt_ || problem.path.empty();
    }
    notices_.insert(notices_.end(), source.said.notices.begin(), source.said.notices.end());
    for (auto& given : source.said.given) {
      hide_secret(given);
      choose(given, source.chosen);
    }
  }
  for (const auto& row : table_.rows)
    if (row.chooses) choose_alternative(row);
  for (std::size_t i = 0; i < sources_.size(); ++i) set_values(i);
  while (!waiting_.empty()) resolve(waiting_.begin()->first);
  check_rules();
}

/// From here on no place shows what stands there.
inline void Filling::hide_secret(Given& given) const {
  const auto* row = table_.meaning_of(given.path).row;
  if (row == nullptr || !row->facts.is_secret) return;
  for (auto& key : given.keys) key = detail::without_text(key);
  given.value.place = detail::without_text(given.value.place);
}

inline void Filling::choose(const Given& given, Chosen& chosen) {
  const auto meaning = table_.meaning_of(given.path);
  if (meaning.kind == KeyMeaning::Kind::ignored) return ignore(given, meaning);
  if (meaning.kind == KeyMeaning::Kind::unknown) return refuse(given, meaning.path);
  if (meaning.kind == KeyMeaning::Kind::value) return choose_row(given, meaning, chosen);
  const bool says_nothing = is_null(given.value) || given.value.kind == GivenValue::Kind::group;
  if (says_nothing && !given.removes) return;
  // `strategy=fsdp` for `strategy.name=fsdp`: a group that has a name is known by it.
  if (const auto* name = table_.find(path_in(meaning.path, "name")); name != nullptr && !given.removes)
    return choose_row(given, {.kind = KeyMeaning::Kind::value, .path = name->path, .row = name}, chosen);
  const auto names = one_of(detail::names_below(table_, meaning.path));
  complain({given.value.place, given.path, "is a group, with the keys " + names}, meaning.path);
}

inline void Filling::choose_row(const Given& given, const KeyMeaning& meaning, Chosen& chosen) {
  if (given.removes && !meaning.entry)
    return complain({given.keys.back(), given.path, "only an entry of a map can be taken out"}, meaning.path);
  if (meaning.entry) {
    const auto depth = path_segments(*meaning.entry).size();  // a key with dots in it has one place
    const auto& entry_place = given.keys[given.keys.size() - std::min(depth, given.keys.size())];
    if (entry_place != given.keys.back()) {
      auto group = group_of(given.path);
      return complain({entry_place, std::string{group}, "is a group; the entries of this map are single values"},
                      meaning.path);
    }
  }
  if (meaning.row->type->is_map() && !meaning.entry)  // all of a map, in place of what was said before
    std::erase_if(chosen, [&](const auto& said) { return said.first.first == index_of(*meaning.row); });
  const auto [place, is_new] = chosen.try_emplace({index_of(*meaning.row), meaning.entry}, &given);
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

/// Of all that sources say about an alternative, the last one holds; it may be overridden as any value.
inline void Filling::choose_alternative(const ConfigRow& row) {
  if (!table_.is_active(row, config_)) return;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const auto& chosen = sources_[i].chosen;
    const auto found = chosen.find({index_of(*table_.find(row.path)), std::nullopt});
    if (found == chosen.end()) continue;
    const auto before = row.type->index(table_.field(row, std::as_const(config_)));
    const auto value = resolved(found->second->value, row, *found->second);
    if (value) decode(row, std::nullopt, *found->second, *value);
    if (row.type->index(table_.field(row, std::as_const(config_))) != before) chosen_by_[index_of(row)] = i;
  }
}

inline void Filling::set_values(std::size_t source) {
  const auto& [said, chosen] = sources_[source];
  const bool is_file = said.source && said.source->is_file();
  for (const auto& [key, given] : chosen)  // before it sets anything
    if (const auto* row = table_.find_active(table_.rows[key.first].path, config_)) take_back_siblings(*row);
  const ConfigRow* map = nullptr;
  for (const auto& [key, given] : chosen) {
    const auto& named = table_.rows[key.first];
    const ConfigRow* row = active_row(named, *given, source);
    if (row == nullptr || row->chooses) continue;        // alternatives are chosen already
    if (row->type->is_map() && is_file && row != map) {  // a file gives all of a map
      map = row;
      row->type->decode(table_.field(*row, config_), {.kind = GivenValue::Kind::group}, row->facts);
      waiting_.erase(index_of(*row));
    }
    set(*row, key.second, *given);
  }
}

inline void Filling::take_back_siblings(const ConfigRow& row) {
  for (const auto& path : row.resets)
    for (std::size_t i = 0; i < table_.rows.size(); ++i) {
      const auto& sibling = table_.rows[i];
      if (sibling.chooses || !lies_in(sibling.path, path) || !table_.is_active(sibling, config_)) continue;
      table_.reset(sibling, config_);
      history_[i].clear();
      waiting_.erase(i);
    }
}

/// The row of that path in the alternatives that are chosen. What a source said for an alternative that a later one
/// replaced is told, and forgotten; what the chosen alternative has as well is kept.
inline const ConfigRow* Filling::active_row(const ConfigRow& row, const Given& given, std::size_t source) {
  const auto* active = table_.find_active(row.path, config_);
  if (row.place.variant == FieldPlace::kRoot) return active;
  auto at = row.place.variant;  // the innermost variant around it that the config has at present
  while (table_.field(table_.variants[at].place, config_) == nullptr) at = table_.variants[at].place.variant;
  const auto& variant = table_.variants[at];
  const auto* name = table_.find_active(path_in(variant.path, "name"), config_);
  const auto choice = variant.path + '=' + table_.print(*name, config_);
  const auto chosen_by = chosen_by_.find(index_of(*name));
  const bool was_replaced = chosen_by != chosen_by_.end() && source < chosen_by->second;
  if (was_replaced)
    notices_.push_back({given.keys.back(), given.path,
                        active != nullptr ? "is kept for " + choice + ", which was chosen later"
                                          : "is left out: " + choice + ", which was chosen later, has no such key"});
  if (active != nullptr || was_replaced) return active;
  std::vector<std::string> owners;
  for (const auto& other : table_.rows)
    if (other.path == row.path)
      if (const auto owner = table_.alternative_in(other.place, at)) owners.push_back(variant.names[*owner]);
  complain({given.keys.back(), given.path, "is no key of " + choice + "; it belongs to " + one_of(owners)}, row.path);
  return nullptr;
}

inline void Filling::set(const ConfigRow& row, const MapKey& entry, const Given& given) {
  const auto index = index_of(row);
  auto& waiting = waiting_[index];
  const auto forgotten =
      std::erase_if(waiting, [&](const Waiting& earlier) { return !entry || earlier.entry == entry; });
  if (given.removes) {
    const bool had = row.type->remove_entry(table_.field(row, config_), entry.value_or(""));
    if (!had && forgotten == 0) complain({given.keys.back(), given.path, "is no entry of the map"}, row.path);
  } else if (is_interpolated(given.value)) {
    waiting.push_back({&given, entry});
  } else {
    decode(row, entry, given, given.value);
  }
  if (waiting.empty()) waiting_.erase(index);
}

inline void Filling::decode(const ConfigRow& row, const MapKey& entry, const Given& given, const GivenValue& value) {
  void* field = table_.field(row, config_);
  const auto decoded =
      entry ? row.type->decode_entry(field, *entry, value, row.facts) : row.type->decode(field, value, row.facts);
  const auto path = given.path + decoded.item;
  const auto& place = given.value.place;
  if (!decoded.problem.empty()) {
    if (row.facts.is_secret) return complain({place, path, "the value of this secret is not taken"}, row.path);
    const bool is_sweep = place.source && place.source->is_command_line() && looks_like_sweep(value.text);
    return complain({decoded.place, path, decoded.problem + (is_sweep ? "; several values are a sweep: add -m" : "")},
                    row.path);
  }
  if (!decoded.notice.empty() && !row.facts.is_secret) notices_.push_back({decoded.place, path, decoded.notice});
  history_[index_of(row)].push_back({table_.print(row, config_), place});
}

/// Sets what waits for the row, and before it whatever that names.
inline void Filling::resolve(std::size_t index) {
  const auto& row = table_.rows[index];
  auto waiting = std::move(waiting_[index]);
  waiting_.erase(index);
  resolving_.push_back(index);
  for (const auto& [given, entry] : waiting) {
    const auto value = resolved(given->value, row, *given);
    if (!value) continue;
    if (!entry && given->value.kind == GivenValue::Kind::text && !row.facts.is_secret)
      written_[index] = given->value.text;
    decode(row, entry, *given, *value);
  }
  resolving_.pop_back();
}

/// The value with all that it names put in; none after a problem.
inline std::optional<GivenValue> Filling::resolved(GivenValue value, const ConfigRow& row, const Given& given) {
  if (!is_interpolated(value)) return value;
  for (auto& item : value.items) {
    auto inner = resolved(std::move(item), row, given);
    if (!inner) return std::nullopt;
    item = std::move(*inner);
  }
  if (value.kind != GivenValue::Kind::text) return value;
  const auto [pieces, problem] = split_interpolation(value.text, row.path);
  if (!problem.empty()) {
    complain({value.place, given.path, problem}, row.path);
    return std::nullopt;
  }
  std::string text;
  for (const auto& piece : pieces) {
    auto found = value_of(piece, row, given);
    if (!found) return std::nullopt;
    found->place = value.place;
    if (pieces.size() == 1) return found;  // a list stays a list
    if (found->kind != GivenValue::Kind::text) {
      complain({value.place, given.path, "`" + piece.text + "` is no text that could stand within another"}, row.path);
      return std::nullopt;
    }
    text += found->text;
  }
  value.text = text;
  return value;
}

inline std::optional<GivenValue> Filling::value_of(const TextPiece& piece, const ConfigRow& row, const Given& given) {
  const auto fail = [&](const std::string& why) {
    complain({given.value.place, given.path, why}, row.path);
    return std::nullopt;
  };
  GivenValue value{.kind = GivenValue::Kind::text, .text = piece.text};
  if (piece.kind == TextPiece::Kind::plain) return value;
  if (piece.kind == TextPiece::Kind::variable) {
    const auto set = environment(piece.text.c_str());
    if (!set && !piece.otherwise)
      return fail(chain_to("${oc.env:" + piece.text + "}") +
                  ": this variable is not set; set it, or write ${oc.env:" + piece.text + ",DEFAULT}");
    value.text = set ? *set : *piece.otherwise;
    return value;
  }
  const auto meaning = table_.meaning_of(piece.text);
  const auto* other = meaning.row == nullptr ? nullptr : table_.find_active(meaning.row->path, config_);
  if (other == nullptr || meaning.entry) {
    const bool known = meaning.kind == KeyMeaning::Kind::group || meaning.row != nullptr;
    const auto first = known ? 0 : first_unknown_segment(table_, meaning.path);
    return fail(chain_to("${" + piece.text + "}") + ": " +
                (known ? "this is no single value"
                       : explain_unknown_key(table_, meaning.path, first, path_segments(meaning.path).size())));
  }
  if (other->facts.is_secret) return fail(chain_to("${" + piece.text + "}") + ": a secret cannot be named");
  if (row.chooses) return fail("the choice of an alternative can name variables only, as ${oc.env:NAME}");
  const auto index = index_of(*other);
  if (std::ranges::find(resolving_, index) != resolving_.end())
    return fail(chain_to(other->path) + ": these name each other in a circle");
  if (waiting_.contains(index)) resolve(index);
  const auto said = read_yaml_text("value: " + table_.print(*other, config_), "", 0);
  if (said.given.size() != 1 || said.given.front().path != "value")
    return fail(chain_to("${" + piece.text + "}") + ": this is no single value");
  auto found = said.given.front().value;
  unescape_references(found);
  return found;
}

/// `a -> b -> end`, along what is being resolved.
inline std::string Filling::chain_to(std::string_view end) const {
  std::string chain;
  for (const auto index : resolving_) chain += table_.rows[index].path + " -> ";
  return chain + std::string{end};
}

inline void Filling::check_rules() {
  if (all_spoilt_) return;
  const auto known = spoilt_;
  for (const auto& group : table_.groups) {
    const auto is_spoilt = [&](const std::string& path) { return lies_in(path, group.path); };
    const void* address = table_.field(group.place, config_);
    if (group.check == nullptr || address == nullptr || std::ranges::any_of(known, is_spoilt)) continue;
    for (auto& error : group.check(address)) {
      const auto path = error.field.empty() ? group.path : path_in(group.path, error.field);
      const ConfigRow* row = table_.find_active(path, config_);
      const bool is_set = row != nullptr && !history(*row).empty();
      problems_.push_back({is_set ? history(*row).back().place : Position{}, path, std::move(error.text)});
    }
  }
}

}  // namespace ddpxx
