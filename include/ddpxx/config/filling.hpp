// ddpxx/config/filling.hpp — what sources say, into a config; and all that is wrong with it, in one go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/interpolation.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/statements.hpp>
#include <ddpxx/config/sweep_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/unknown_key.hpp>
#include <ddpxx/config/yaml.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

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
  void apply(Said said) { sources_.emplace_back(std::move(said), table_, findings_); }

  /// Fills the config, once.
  void finish();

  const std::vector<ConfigProblem>& problems() const noexcept { return findings_.problems; }

  /// What was accepted, and should be known all the same.
  const std::vector<ConfigProblem>& notices() const noexcept { return findings_.notices; }

  /// Who set the value, the last one at the end; empty for a default.
  const std::vector<SetValue>& history(const ConfigRow& row) const { return history_[table_.index_of(row)]; }

  /// The value's text before other settings and variables were put into it; none for others.
  std::optional<std::string> as_written(const ConfigRow& row) const {
    const auto found = written_.find(table_.index_of(row));
    return found == written_.end() ? std::nullopt : std::optional{found->second};
  }

 private:
  using MapKey = Statements::MapKey;

  /// What has to wait until the values that it names are known.
  struct Waiting {
    const Given* given;
    MapKey entry;
  };

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
  std::deque<Statements> sources_;  // a deque, for they cannot move
  std::vector<std::vector<SetValue>> history_;
  std::map<std::size_t, std::size_t> chosen_by_;  // rows that choose an alternative, and the source that did
  std::map<std::size_t, std::vector<Waiting>> waiting_;
  std::vector<std::size_t> resolving_;  // from the first asked for to the one at work
  std::map<std::size_t, std::string> written_;
  Findings findings_;
};

inline void Filling::finish() {
  for (const auto& row : table_.rows)
    if (row.chooses) choose_alternative(row);
  for (std::size_t i = 0; i < sources_.size(); ++i) set_values(i);
  while (!waiting_.empty()) resolve(waiting_.begin()->first);
  check_rules();
}

/// Of all that sources say about an alternative, the last one holds; it may be overridden as any value.
inline void Filling::choose_alternative(const ConfigRow& row) {
  if (!table_.is_active(row, config_)) return;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const auto& chosen = sources_[i].chosen();
    const auto found = chosen.find({table_.index_of(*table_.find(row.path)), std::nullopt});
    if (found == chosen.end()) continue;
    const auto before = row.type->index(table_.field(row, std::as_const(config_)));
    const auto value = resolved(found->second->value, row, *found->second);
    if (value) decode(row, std::nullopt, *found->second, *value);
    if (row.type->index(table_.field(row, std::as_const(config_))) != before) chosen_by_[table_.index_of(row)] = i;
  }
}

inline void Filling::set_values(std::size_t source) {
  const auto& chosen = sources_[source].chosen();
  const bool is_file = sources_[source].are_of_a_file();
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
      waiting_.erase(table_.index_of(*row));
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
  const auto chosen_by = chosen_by_.find(table_.index_of(*name));
  const bool was_replaced = chosen_by != chosen_by_.end() && source < chosen_by->second;
  if (was_replaced)
    findings_.notices.push_back({given.keys.back(), given.path,
                                 active != nullptr
                                     ? "is kept for " + choice + ", which was chosen later"
                                     : "is left out: " + choice + ", which was chosen later, has no such key"});
  if (active != nullptr || was_replaced) return active;
  std::vector<std::string> owners;
  for (const auto& other : table_.rows)
    if (other.path == row.path)
      if (const auto owner = table_.alternative_in(other.place, at)) owners.push_back(variant.names[*owner]);
  findings_.complain({given.keys.back(), given.path, "is no key of " + choice + "; it belongs to " + one_of(owners)},
                     row.path);
  return nullptr;
}

inline void Filling::set(const ConfigRow& row, const MapKey& entry, const Given& given) {
  const auto index = table_.index_of(row);
  auto& waiting = waiting_[index];
  const auto forgotten =
      std::erase_if(waiting, [&](const Waiting& earlier) { return !entry || earlier.entry == entry; });
  if (given.removes) {
    const bool had = row.type->remove_entry(table_.field(row, config_), entry.value_or(""));
    if (!had && forgotten == 0) findings_.complain({given.keys.back(), given.path, "is no entry of the map"}, row.path);
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
    if (row.facts.is_secret)
      return findings_.complain({place, path, "the value of this secret is not taken"}, row.path);
    const bool is_sweep = place.source && place.source->is_command_line() && looks_like_sweep(value.text);
    return findings_.complain(
        {decoded.place, path, decoded.problem + (is_sweep ? "; several values are a sweep: add -m" : "")}, row.path);
  }
  if (!decoded.notice.empty() && !row.facts.is_secret)
    findings_.notices.push_back({decoded.place, path, decoded.notice});
  history_[table_.index_of(row)].push_back({table_.print(row, config_), place});
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
    findings_.complain({value.place, given.path, problem}, row.path);
    return std::nullopt;
  }
  std::string text;
  for (const auto& piece : pieces) {
    auto found = value_of(piece, row, given);
    if (!found) return std::nullopt;
    found->place = value.place;
    if (pieces.size() == 1) return found;  // a list stays a list
    if (found->kind != GivenValue::Kind::text) {
      findings_.complain({value.place, given.path, "`" + piece.text + "` is no text that could stand within another"},
                         row.path);
      return std::nullopt;
    }
    text += found->text;
  }
  value.text = text;
  return value;
}

inline std::optional<GivenValue> Filling::value_of(const TextPiece& piece, const ConfigRow& row, const Given& given) {
  const auto fail = [&](const std::string& why) {
    findings_.complain({given.value.place, given.path, why}, row.path);
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
  const auto index = table_.index_of(*other);
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
  if (findings_.is_all_spoilt) return;
  const auto known = findings_.spoilt;
  for (const auto& group : table_.groups) {
    const auto is_spoilt = [&](const std::string& path) { return lies_in(path, group.path); };
    const void* address = table_.field(group.place, config_);
    if (group.check == nullptr || address == nullptr || std::ranges::any_of(known, is_spoilt)) continue;
    for (auto& error : group.check(address)) {
      const auto path = error.field.empty() ? group.path : path_in(group.path, error.field);
      const ConfigRow* row = table_.find_active(path, config_);
      const bool is_set = row != nullptr && !history(*row).empty();
      findings_.problems.push_back({is_set ? history(*row).back().place : Position{}, path, std::move(error.text)});
    }
  }
}

}  // namespace ddpxx
