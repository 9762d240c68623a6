// ddpxx/config/fill/config_builder.hpp — fills a config from its sources, and collects all problems.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/fill/diagnostics.hpp>
#include <ddpxx/config/fill/references.hpp>
#include <ddpxx/config/fill/source_overrides.hpp>
#include <ddpxx/config/fill/translations.hpp>
#include <ddpxx/config/fill/written_values.hpp>
#include <ddpxx/config/output_place.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/text/sweep_value.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx::detail {

/// A value that a source has set.
struct SetValue {
  std::string value;  ///< The value as YAML; `***` for a secret.
  Position place{};
};

/// Fills one config from sources, the later ones over the earlier: the alternatives of variants first, then values,
/// then values that refer to others, and at last the rules between fields are checked.
class ConfigBuilder {
 public:
  /// `config` has the type that `table` describes. In a job of a sweep, `job_folder` is the folder of the job. Rules
  /// about the settings and groups in `unused` are not checked.
  ConfigBuilder(const ConfigTable& table, void* config, const std::optional<std::filesystem::path>& job_folder = {},
                std::vector<std::string> unused = {})
      : table_{table},
        config_{config},
        job_folder_{job_folder},
        unused_{std::move(unused)},
        history_(table.rows.size()),
        references_{table, config, diagnostics_, job_folder, [this](std::size_t index) { resolve(index); }} {}
  ConfigBuilder(const ConfigBuilder&) = delete;  // `references_` points to this object
  ConfigBuilder& operator=(const ConfigBuilder&) = delete;

  /// Adds one source. Its entries override and reset those of earlier sources, but never each other.
  void apply(SourceEntries entries) { sources_.emplace_back(std::move(entries), table_, diagnostics_); }

  /// Fills the config, once.
  void finish();

  const std::vector<ConfigProblem>& problems() const noexcept { return diagnostics_.problems; }

  /// True if all problems are broken rules between fields: every value could be read, and may be shown.
  bool has_only_open_rules() const noexcept { return diagnostics_.problems.size() == open_rules_; }

  /// Paths of values and groups that could not be read.
  const std::vector<std::string>& unread() const noexcept { return diagnostics_.invalid; }

  /// Messages about accepted entries.
  const std::vector<ConfigProblem>& notices() const noexcept { return diagnostics_.notices; }

  /// The values that sources have set, the one in force at the end; empty for a default.
  const std::vector<SetValue>& history(const ConfigRow& row) const { return history_[table_.index_of(row)]; }

  /// The value as YAML with its references; none if it has no references.
  std::optional<std::string> as_written(const ConfigRow& row) const {
    return written_.print(table_.index_of(row), table_.print(row, config_));
  }

 private:
  using MapKey = SourceOverrides::MapKey;

  /// A value that waits until the values to which it refers are known.
  struct Waiting {
    const SourceEntry* source_entry;
    MapKey entry;
  };

  void choose_alternative(const ConfigRow& row);
  void set_values(std::size_t source);
  void take_back_siblings(const ConfigRow& row);
  const ConfigRow* active_row(const ConfigRow& row, const SourceEntry& source_entry, std::size_t source);
  bool keeps_earlier(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry);
  void set(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry);
  void decode(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry, RawValue value);
  void resolve(std::size_t index);
  void place_outputs();
  void check_rules();

  const ConfigTable& table_;
  void* config_;
  std::optional<std::filesystem::path> job_folder_;
  std::vector<std::string> unused_;
  std::deque<SourceOverrides> sources_;  // a deque, because they cannot be moved
  std::vector<std::vector<SetValue>> history_;
  std::map<std::size_t, std::size_t> chosen_by_;  // rows that choose an alternative, and the source of the choice
  std::map<std::size_t, std::vector<Waiting>> waiting_;
  Translations translations_;
  WrittenValues written_;
  Diagnostics diagnostics_;
  std::size_t open_rules_ = 0;
  References references_;
};

inline void ConfigBuilder::finish() {
  for (const auto& row : table_.rows)
    if (row.chooses) choose_alternative(row);
  for (std::size_t i = 0; i < sources_.size(); ++i) set_values(i);
  while (!waiting_.empty()) resolve(waiting_.begin()->first);
  translations_.report(table_, diagnostics_);  // a later source may override a translated value
  if (job_folder_) place_outputs();
  check_rules();
}

/// Gives a job of a sweep its own places of output.
inline void ConfigBuilder::place_outputs() {
  const auto source = std::make_shared<const ConfigSource>(
      ConfigSource{.lines = {std::string{kRunFolderVariable} + '=' + job_folder_->string()},
                   .kind = ConfigSource::Kind::environment});
  for (const auto& row : table_.rows) {
    if (!is_place_of_output(row) || !table_.is_active(row, config_)) continue;
    const auto written = row.type->text(table_.field(row, std::as_const(config_)));
    if (written.empty()) continue;
    auto& history = history_[table_.index_of(row)];
    auto [place, problem] = output_place_of_job(written, row.facts.output, *job_folder_);
    if (!problem.empty())
      diagnostics_.complain({history.empty() ? Position{} : history.back().place, row.path, std::move(problem)},
                            row.path);
    if (place.empty() || place == written) continue;
    row.type->decode(table_.field(row, config_),
                     {.kind = RawValue::Kind::text, .text = std::move(place), .quoted = true}, row.facts);
    history.push_back({table_.print(row, config_), {source, 1, 1}});
  }
}

/// Chooses the alternative that the last source names. Choices of earlier sources are checked but not made, so that an
/// alternative which the last source chooses again keeps its values in the config. An earlier choice with references is
/// not even read: they may name variables that are not set.
inline void ConfigBuilder::choose_alternative(const ConfigRow& row) {
  if (!table_.is_active(row, config_)) return;
  const auto index = table_.index_of(row);
  const auto key = std::pair{table_.index_of(*table_.find(row.path)), MapKey{}};
  std::vector<std::size_t> sources;
  for (std::size_t i = 0; i < sources_.size(); ++i)
    if (sources_[i].chosen().contains(key)) sources.push_back(i);
  if (sources.empty()) return;
  auto alternative = row.type->index(table_.field(row, std::as_const(config_)));
  bool is_known = true;  // false if a choice that was not read may be another alternative
  for (std::size_t i = 0; i + 1 < sources.size(); ++i) {
    const auto& source_entry = *sources_[sources[i]].chosen().at(key);
    if (is_interpolated(source_entry.value)) {
      is_known = false;
      continue;
    }
    auto value = source_entry.value;
    if (source_entry.translate != nullptr) value.text = source_entry.translate(value.text).value;
    const auto before = alternative;
    const auto decoded = decode_choice(alternative, value, row.facts);
    if (!decoded.problem.empty()) {
      decode(row, std::nullopt, source_entry, source_entry.value);
      continue;
    }
    if (alternative != before || !is_known) chosen_by_[index] = sources[i];
    is_known = true;
    history_[index].push_back({yaml_quoted(row.facts.choices.names[alternative]), source_entry.value.place});
  }
  const auto& last = *sources_[sources.back()].chosen().at(key);
  written_.note(index, std::nullopt, last.value);
  const auto problems = diagnostics_.problems.size();
  if (auto value = references_.resolved(last.value, row, row.path, last))
    decode(row, std::nullopt, last, std::move(*value));
  if (diagnostics_.problems.size() > problems && is_known)  // refused: the keys belong to the choice before it
    row.type->decode(table_.field(row, config_),
                     {.kind = RawValue::Kind::text, .text = std::string{row.facts.choices.names[alternative]}},
                     row.facts);
  if (row.type->index(table_.field(row, std::as_const(config_))) != alternative || !is_known)
    chosen_by_[index] = sources.back();
}

inline void ConfigBuilder::set_values(std::size_t source) {
  const auto& chosen = sources_[source].chosen();
  const bool is_file = sources_[source].are_of_a_file();
  for (const auto& [key, source_entry] : chosen)  // before the source sets anything
    if (const auto* row = table_.find_active(table_.rows[key.first].path, config_)) take_back_siblings(*row);
  const ConfigRow* map = nullptr;
  for (const auto& [key, source_entry] : chosen) {
    const auto& named = table_.rows[key.first];
    const ConfigRow* row = active_row(named, *source_entry, source);
    if (row == nullptr || row->chooses) continue;        // alternatives are chosen already
    if (row->type->is_map() && is_file && row != map) {  // a file replaces the whole map
      map = row;
      row->type->decode(table_.field(*row, config_), {.kind = RawValue::Kind::group}, row->facts);
      waiting_.erase(table_.index_of(*row));
    }
    set(*row, key.second, *source_entry);
  }
}

inline void ConfigBuilder::take_back_siblings(const ConfigRow& row) {
  for (const auto& path : row.resets)
    for (std::size_t i = 0; i < table_.rows.size(); ++i) {
      const auto& sibling = table_.rows[i];
      if (sibling.chooses || !lies_in(sibling.path, path) || !table_.is_active(sibling, config_)) continue;
      table_.reset(sibling, config_);
      history_[i].clear();
      waiting_.erase(i);
      translations_.forget(i);
    }
}

/// The row with that path in the chosen alternatives. An entry for an alternative that a later source has replaced is
/// kept if the chosen alternative has such a row; otherwise it is dropped with a notice.
inline const ConfigRow* ConfigBuilder::active_row(const ConfigRow& row, const SourceEntry& source_entry,
                                                  std::size_t source) {
  const auto* active = table_.find_active(row.path, config_);
  if (row.place.variant == FieldPlace::kRoot) return active;
  auto at = row.place.variant;  // the innermost variant around it that is active
  while (table_.field(table_.variants[at].place, config_) == nullptr) at = table_.variants[at].place.variant;
  const auto& variant = table_.variants[at];
  const auto* name = table_.find_active(path_in(variant.path, "name"), config_);
  const auto choice = variant.path + '=' + table_.print(*name, config_);
  const auto chosen_by = chosen_by_.find(table_.index_of(*name));
  const bool was_replaced = chosen_by != chosen_by_.end() && source < chosen_by->second;
  if (was_replaced)
    diagnostics_.notices.push_back({source_entry.keys.back(), source_entry.path,
                                    active != nullptr
                                        ? "is kept for " + choice + ", which was chosen later"
                                        : "is left out: " + choice + ", which was chosen later, has no such key"});
  if (active != nullptr || was_replaced) return active;
  std::vector<std::string> owners;
  for (const auto& other : table_.rows)
    if (other.path == row.path)
      if (const auto owner = table_.alternative_in(other.place, at)) owners.push_back(variant.names[*owner]);
  diagnostics_.complain(
      {source_entry.keys.back(), source_entry.path, "is not a key of " + choice + "; it belongs to " + one_of(owners)},
      row.path);
  return nullptr;
}

/// Whether an alias leaves the setting as an earlier source has set it, which a notice says then.
inline bool ConfigBuilder::keeps_earlier(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry) {
  const auto& value = source_entry.value;
  const auto index = table_.index_of(row);
  if (source_entry.translate == nullptr || value.kind != RawValue::Kind::text || is_interpolated(value)) return false;
  auto translation = source_entry.translate(value.text);
  if (!translation.keeps_earlier || (history_[index].empty() && !waiting_.contains(index))) return false;
  translation.notice = "is left out: " + row.path + " was given before";
  translations_.keep(index, entry, source_entry, std::move(translation));
  return true;
}

inline void ConfigBuilder::set(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry) {
  if (keeps_earlier(row, entry, source_entry)) return;
  const auto index = table_.index_of(row);
  auto& waiting = waiting_[index];
  const auto forgotten =
      std::erase_if(waiting, [&](const Waiting& earlier) { return !entry || earlier.entry == entry; });
  if (source_entry.removes) {
    const bool had = row.type->remove_entry(table_.field(row, config_), entry.value_or(""));
    if (!had && forgotten == 0)
      diagnostics_.complain({source_entry.keys.back(), source_entry.path, "is not an entry of the map"}, row.path);
  } else if (is_interpolated(source_entry.value)) {
    waiting.push_back({&source_entry, entry});
  } else {
    decode(row, entry, source_entry, source_entry.value);
  }
  if (waiting.empty()) waiting_.erase(index);
}

inline void ConfigBuilder::decode(const ConfigRow& row, const MapKey& entry, const SourceEntry& source_entry,
                                  RawValue value) {
  translations_.forget(table_.index_of(row), entry);
  if (source_entry.translate != nullptr && value.kind == RawValue::Kind::text) {
    auto translation = source_entry.translate(value.text);
    value.text = translation.value;
    const bool is_refused = !translation.problem.empty();
    if (is_refused || !translation.notice.empty())
      translations_.keep(table_.index_of(row), entry, source_entry, std::move(translation));
    if (is_refused) return;
  }
  void* field = table_.field(row, config_);
  const auto decoded =
      entry ? row.type->decode_entry(field, *entry, value, row.facts) : row.type->decode(field, value, row.facts);
  const auto path = source_entry.path + decoded.item;
  const auto& place = source_entry.value.place;
  if (!decoded.problem.empty()) {
    if (row.facts.is_secret)
      return diagnostics_.complain({place, path, "the value of this secret is not taken"}, row.path);
    const bool is_sweep = place.source && place.source->is_command_line() && looks_like_sweep(value.text);
    return diagnostics_.complain(
        {decoded.place, path, decoded.problem + (is_sweep ? "; several values are a sweep: add -m" : "")}, row.path);
  }
  if (!decoded.notice.empty() && !row.facts.is_secret)
    diagnostics_.notices.push_back({decoded.place, path, decoded.notice});
  history_[table_.index_of(row)].push_back({table_.print(row, config_), place});
}

/// Sets the waiting values of the row, after the values to which they refer.
inline void ConfigBuilder::resolve(std::size_t index) {
  if (!waiting_.contains(index)) return;
  const auto& row = table_.rows[index];
  auto waiting = std::move(waiting_[index]);
  waiting_.erase(index);
  references_.begin(index);
  for (const auto& [source_entry, entry] : waiting) {
    // A map is the group that holds its entries. The entry's own key may have dots, and does not matter.
    const auto path = entry ? path_in(row.path, "entry") : row.path;
    auto value = references_.resolved(source_entry->value, row, path, *source_entry);
    if (!value) continue;
    // The setting itself would not translate the value that was written for its alias.
    written_.note(index, entry, source_entry->translate == nullptr ? source_entry->value : *value);
    decode(row, entry, *source_entry, std::move(*value));
  }
  references_.end();
}

inline void ConfigBuilder::check_rules() {
  if (diagnostics_.is_all_invalid) return;
  for (auto& [path, text, severity] : table_.broken_rules(config_, diagnostics_.invalid)) {
    if (std::ranges::any_of(unused_, [&](const auto& unused) { return lies_in(path, unused); })) continue;
    const ConfigRow* row = table_.find_active(path, config_);
    const bool is_set = row != nullptr && !history(*row).empty();
    const bool is_error = severity == Severity::error;
    auto& found = is_error ? diagnostics_.problems : diagnostics_.notices;
    found.push_back(
        {is_set ? history(*row).back().place : Position{}, path, (is_error ? "" : "warning: ") + std::move(text)});
    open_rules_ += is_error ? 1 : 0;
  }
}

}  // namespace ddpxx::detail
