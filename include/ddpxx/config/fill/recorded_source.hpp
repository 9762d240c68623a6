// ddpxx/config/fill/recorded_source.hpp — the settings that an earlier run has recorded, as a source of this one.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx::detail {

/// Whether the settings choose another alternative of a variant than the one that has this row.
inline bool is_of_another_alternative(const ConfigRow& row, const Settings& settings, const ConfigTable& table) {
  if (row.place.variant == FieldPlace::kRoot) return false;
  const auto& variant = table.variants[row.place.variant];
  const auto chosen = std::ranges::find(settings, variant.path + ".name", &Setting::path);
  const auto& name = variant.names[row.place.alternative];
  return chosen != settings.end() && chosen->value != name && chosen->value != '"' + name + '"';
}

/// Whether the settings give a row of an alternative its default. A run records every setting, also those that its user
/// has not set, and these must not follow a user who chooses another alternative.
inline bool is_default_of_alternative(const ConfigRow& row, const std::string& value, const ConfigTable& table) {
  return row.place.variant != FieldPlace::kRoot && value == table.print_default(row);
}

/// The entries of the settings, as of a file with lines `path: value`. Secrets are left out, because their values are
/// not recorded, and so are paths that the table does not have, or that belong to an alternative that was not chosen,
/// which another version or the program itself has recorded, and defaults of the chosen alternative.
inline SourceEntries read_recorded(const Settings& settings, std::string name, const ConfigTable& table) {
  std::string text;
  for (const auto& setting : settings) {
    const auto is_setting = [&](const ConfigRow& row) {
      return row.path == setting.path && !row.facts.is_secret && !is_of_another_alternative(row, settings, table) &&
             !is_default_of_alternative(row, setting.value, table);
    };
    if (std::ranges::any_of(table.rows, is_setting)) text += setting.path + ": " + setting.value + '\n';
  }
  return read_yaml_text(text, std::move(name), 0);
}

}  // namespace ddpxx::detail
