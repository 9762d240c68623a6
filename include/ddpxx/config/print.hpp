// ddpxx/config/print.hpp — a config as YAML that reads back equal, and as settings for a snapshot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// The active values as YAML, each written by `value_of(row)`, which may end in a comment. Secrets are left out:
/// a program that reads the text has to get them elsewhere.
template <class ValueOf>
std::string print_yaml(const ConfigTable& table, const void* config, ValueOf value_of) {
  std::string text;
  std::vector<std::string> open;  // the groups of the last line
  for (const auto& row : table.rows) {
    if (!table.is_active(row, config) || row.facts.is_secret) continue;
    const std::string value = value_of(row);
    auto groups = path_segments(row.path);
    const auto name = groups.back();
    groups.pop_back();
    const auto shared = static_cast<std::size_t>(std::ranges::mismatch(groups, open).in1 - groups.begin());
    for (std::size_t i = shared; i < groups.size(); ++i) text += std::string(2 * i, ' ') + groups[i] + ":\n";
    text += std::string(2 * groups.size(), ' ') + name + ": " + value + '\n';
    open = std::move(groups);
  }
  return text;
}

inline std::string print_yaml(const ConfigTable& table, const void* config) {
  return print_yaml(table, config, [&](const ConfigRow& row) { return table.print(row, config); });
}

inline Settings settings_of(const ConfigTable& table, const void* config) {
  Settings settings;
  for (const auto& row : table.rows)
    if (table.is_active(row, config)) settings.push_back({row.path, table.print(row, config), row.resume});
  return settings;
}

/// The whole config as YAML; every text is in quotes, so that every reader takes it for a text.
template <ConfigStruct Config>
std::string print_yaml(const Config& config) {
  return print_yaml(table_of<Config>(), &config);
}

/// Every value with its path, as a snapshot records it and a resumed run compares it.
template <ConfigStruct Config>
Settings settings_of(const Config& config) {
  return settings_of(table_of<Config>(), &config);
}

}  // namespace ddpxx
