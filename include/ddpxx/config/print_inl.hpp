// ddpxx/config/print_inl.hpp — the functions of print.hpp that are not templates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

DDPXX_INLINE std::string print_yaml(const ConfigTable& table, const void* config,
                                    const std::function<std::string(const ConfigRow&)>& value_of) {
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

DDPXX_INLINE std::string print_yaml(const ConfigTable& table, const void* config) {
  return print_yaml(table, config, [&](const ConfigRow& row) { return table.print(row, config); });
}

DDPXX_INLINE Settings settings_of(const ConfigTable& table, const void* config) {
  Settings settings;
  for (const auto& row : table.rows)
    if (table.is_active(row, config)) settings.push_back({row.path, table.print(row, config), row.resume});
  return settings;
}

}  // namespace ddpxx
