// ddpxx/config/line/ignored_key.hpp — keys of other programs that are accepted and ignored, if their value is what this
// program does anyway.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

/// The values that an ignored key may have; empty if it may have any value.
inline std::vector<std::string> values_of_ignored(const ConfigTable& table, const KeyMeaning& meaning) {
  const auto* ignored = ConfigTable::most_specific(table.ignored, meaning.path);
  if (meaning.kind != KeyMeaning::Kind::ignored || ignored == nullptr) return {};
  return {ignored->only.names.begin(), ignored->only.names.begin() + ignored->only.count};
}

/// True for an ignored key whose value is a boolean, so that `--flag` sets it.
inline bool is_ignored_switch(const ConfigTable& table, const KeyMeaning& meaning) {
  const auto values = values_of_ignored(table, meaning);
  return !values.empty() && std::ranges::all_of(values, [](const auto& value) { return read_bool(value).has_value(); });
}

/// True for a key, of the config or ignored, whose value is a boolean, so that `--key` sets it.
inline bool is_switch(const ConfigTable& table, const std::string& key) {
  const auto meaning = table.meaning_of(key);
  return meaning.row != nullptr ? meaning.row->type->is_switch : is_ignored_switch(table, meaning);
}

/// Why the value of an ignored key cannot be ignored; empty if it can.
inline std::string problem_of_ignored(const ConfigTable& table, const KeyMeaning& meaning, const RawValue& value) {
  const auto values = values_of_ignored(table, meaning);
  const bool is_truth = is_ignored_switch(table, meaning);
  const auto is_same = [&](const std::string& one) {
    return value.text == one || (is_truth && read_bool(value.text) == read_bool(one));
  };
  const bool is_text = value.kind == RawValue::Kind::text && !meaning.lies_below;
  if (values.empty() || (is_text && std::ranges::any_of(values, is_same))) return {};
  return (is_text              ? shown(value.text)
          : meaning.lies_below ? "a group"
                               : "this") +
         " is not supported (allowed: " + one_of(values) + "): " + std::string{meaning.reason};
}

}  // namespace ddpxx::detail
