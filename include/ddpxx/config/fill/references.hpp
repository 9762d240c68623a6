// ddpxx/config/fill/references.hpp — replaces `${...}` in values by other settings and environment variables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/diagnostics.hpp>
#include <ddpxx/config/output_place.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

/// Looks up the settings and variables to which values refer. The owner calls `begin` and `end` around each setting, so
/// that circles are found and a problem names the chain of references.
class References {
 public:
  /// Called with the index of a setting before its value is used: resolves the references in that value.
  using Resolve = std::function<void(std::size_t index)>;

  /// In a job of a sweep, `job_folder` is the run folder.
  References(const ConfigTable& table, const void* config, Diagnostics& diagnostics,
             std::optional<std::filesystem::path> job_folder, Resolve resolve)
      : table_{table},
        config_{config},
        diagnostics_{diagnostics},
        job_folder_{std::move(job_folder)},
        resolve_{std::move(resolve)} {}

  void begin(std::size_t index) { resolving_.push_back(index); }
  void end() { resolving_.pop_back(); }

  /// The value with its references replaced; none after a problem. Relative references begin at the group that holds
  /// `path`, the path of the value.
  std::optional<RawValue> resolved(RawValue value, const ConfigRow& row, std::string_view path,
                                   const SourceEntry& entry);

 private:
  using Problem = std::string;

  /// Reports a problem, and hides its text if that quotes a secret.
  std::nullopt_t complain(const ConfigRow& row, const SourceEntry& entry, const Position& place, const Problem& why) {
    const Problem of_secret =
        "a reference in this secret cannot be replaced; write \\${ where ${ is a part of the text";
    diagnostics_.complain({place, entry.path, row.facts.is_secret ? of_secret : why}, row.path);
    return std::nullopt;
  }
  std::optional<RawValue> value_of(const TextPiece& piece, const ConfigRow& row, const SourceEntry& entry);
  std::optional<RawValue> variable(const TextPiece& piece, const ConfigRow& row, const SourceEntry& entry);
  std::optional<RawValue> setting(const TextPiece& piece, const ConfigRow& row, const SourceEntry& entry);
  std::optional<RawValue> run_folder(const ConfigRow& folder, const ConfigRow& row, const SourceEntry& entry);
  std::nullopt_t refuse_run_folder(const std::string& reference, const ConfigRow& row, const SourceEntry& entry);

  /// The chain of settings that are being resolved: `a -> b -> end`.
  std::string chain_to(std::string_view end) const {
    std::string chain;
    for (const auto index : resolving_) chain += table_.rows[index].path + " -> ";
    return chain + std::string{end};
  }

  const ConfigTable& table_;
  const void* config_;
  Diagnostics& diagnostics_;
  std::optional<std::filesystem::path> job_folder_;
  Resolve resolve_;
  std::vector<std::size_t> resolving_;  // from the first setting to the current one
};

inline std::optional<RawValue> References::resolved(RawValue value, const ConfigRow& row, std::string_view path,
                                                    const SourceEntry& entry) {
  if (!is_interpolated(value)) return value;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    auto& item = value.items[i];
    if (!is_interpolated(item)) continue;
    // With this entry, a problem names the item instead of its list.
    const SourceEntry of_item{
        .path = entry.path + '[' + std::to_string(i) + ']', .keys = entry.keys, .value = {.place = item.place}};
    auto inner = resolved(std::move(item), row, path, of_item);
    if (!inner) return std::nullopt;
    item = std::move(*inner);
  }
  if (value.kind != RawValue::Kind::text) return value;
  const auto [pieces, problem] = split_interpolation(value.text, path);
  if (!problem.empty()) return complain(row, entry, value.place, problem);
  std::string text;
  for (const auto& piece : pieces) {
    auto found = value_of(piece, row, entry);
    if (!found) return std::nullopt;
    found->place = value.place;
    if (pieces.size() == 1) return found;  // a reference alone may be a list
    if (found->kind != RawValue::Kind::text)
      return complain(row, entry, value.place, "`" + piece.text + "` is not a text that can stand within another");
    text += found->text;
  }
  value.text = text;
  return value;
}

inline std::optional<RawValue> References::value_of(const TextPiece& piece, const ConfigRow& row,
                                                    const SourceEntry& entry) {
  if (piece.kind == TextPiece::Kind::plain) return RawValue{.kind = RawValue::Kind::text, .text = piece.text};
  return piece.kind == TextPiece::Kind::variable ? variable(piece, row, entry) : setting(piece, row, entry);
}

inline std::optional<RawValue> References::variable(const TextPiece& piece, const ConfigRow& row,
                                                    const SourceEntry& entry) {
  const char* const set = std::getenv(piece.text.c_str());  // an empty text is a value here
  if (set == nullptr && !piece.otherwise) {
    auto why = chain_to("${oc.env:" + piece.text + "}") +
               ": this variable is not set; set it, or write ${oc.env:" + piece.text + ",DEFAULT}";
    // Not by complain(): the name of the variable is not secret, and the user needs it.
    diagnostics_.complain({entry.value.place, entry.path, std::move(why)}, row.path);
    return std::nullopt;
  }
  if (set != nullptr) return RawValue{.kind = RawValue::Kind::text, .text = set};
  return RawValue{.kind = RawValue::Kind::text, .text = *piece.otherwise, .quoted = piece.is_quoted};
}

inline std::optional<RawValue> References::setting(const TextPiece& piece, const ConfigRow& row,
                                                   const SourceEntry& entry) {
  const auto fail = [&](const Problem& why) { return complain(row, entry, entry.value.place, why); };
  const auto named = chain_to("${" + piece.text + "}") + ": ";
  const auto meaning = table_.meaning_of(piece.text);
  const auto* other = meaning.row == nullptr ? nullptr : table_.find_active(meaning.row->path, config_);
  if (other == nullptr || meaning.entry) {
    const bool known = meaning.kind == KeyMeaning::Kind::group || meaning.row != nullptr;
    const auto first = known ? 0 : first_unknown_segment(table_, meaning.path);
    return fail(named + (meaning.entry ? "an entry of a map cannot be named"
                         : known
                             ? "this is not a single value"
                             : explain_unknown_key(table_, meaning.path, first, path_segments(meaning.path).size())));
  }
  if (other->facts.is_secret) return fail(named + "a secret cannot be named");
  if (row.chooses) return fail("the choice of an alternative can name variables only, as ${oc.env:NAME}");
  const auto index = table_.index_of(*other);
  if (std::ranges::find(resolving_, index) != resolving_.end())
    return fail(chain_to(other->path) + ": these name each other in a circle");
  resolve_(index);
  if (other->facts.output == Output::run_folder) return run_folder(*other, row, entry);
  const auto entries = read_yaml_text("value: " + table_.print(*other, config_), "", 0);
  if (entries.list.size() != 1 || entries.list.front().path != "value")
    return fail(named + "this is not a single value");
  auto found = entries.list.front().value;
  unescape_references(found);
  // The other setting may be a place of output whose value still names the run folder.
  if (const auto* folder = is_place_of_output(*other) && !is_place_of_output(row) ? table_.run_folder() : nullptr)
    if (const auto reference = run_folder_reference(*folder); found.text.find(reference) != std::string::npos)
      return refuse_run_folder(chain_to(other->path) + " -> " + reference, row, entry);
  return found;
}

/// The value of `${run_folder}`. In a job of a sweep it is the job's folder. In another run the folder gets its name
/// when the run makes it, after the configuration was read: a place of output keeps the reference, which
/// name_run_folder replaces later, and any other setting that refers to the folder is an error.
inline std::optional<RawValue> References::run_folder(const ConfigRow& folder, const ConfigRow& row,
                                                      const SourceEntry& entry) {
  const auto fail = [&](const Problem& why) { return complain(row, entry, entry.value.place, why); };
  const auto reference = run_folder_reference(folder);
  const auto pattern = std::filesystem::path{folder.type->text(table_.field(folder, config_))}.lexically_normal();
  const auto text = [](const std::string& value) { return RawValue{.kind = RawValue::Kind::text, .text = value}; };
  if (job_folder_) return text(job_folder_->string());
  if (pattern.empty() || pattern == "." || pattern == "./")
    return fail(reference + ": this run has no folder: set " + folder.path + "=outputs/%Y-%m-%d/%H-%M-%S, or leave " +
                reference + " out");
  if (is_place_of_output(row)) return text(reference);
  return refuse_run_folder(reference, row, entry);
}

/// Refuses the run folder in the value of a setting that is not a place of output.
inline std::nullopt_t References::refuse_run_folder(const std::string& reference, const ConfigRow& row,
                                                    const SourceEntry& entry) {
  std::vector<std::string> places;
  for (const auto& other : table_.rows)
    if (is_place_of_output(other)) places.push_back(other.path);
  return complain(
      row, entry, entry.value.place,
      reference + ": the folder gets its name when the run starts; settings that can name it: " + one_of(places));
}

}  // namespace ddpxx::detail
