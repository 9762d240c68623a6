// ddpxx/config/fill/blame.hpp — prints a config as YAML, with the source of every value as a comment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx::detail {

/// The position without the text at it: `argument 2`, `train.yaml:12:7`, `environment variable TRAIN_SEED`.
inline std::string short_text(const Position& place) {
  const auto text = to_text(place);
  return harmless(place.source && !place.source->is_file() ? text.substr(0, text.find(": ")) : text);
}

/// The sources of a value, such as `argument 2; overrides train.yaml:12:7 (0.001); default 0.0003`.
inline std::string origins_text(const std::vector<SetValue>& history, const std::string& default_value) {
  if (history.empty()) return "default";
  std::string text = short_text(history.back().place);
  for (auto i = history.size() - 1; i-- > 0;)
    text += "; overrides " + short_text(history[i].place) + " (" + history[i].value + ')';
  return text + "; default " + default_value;
}

/// Every value with its path and its sources.
inline Settings settings_with_origins(const ConfigTable& table, const void* config, const ConfigBuilder& builder) {
  auto settings = settings_of(table, config);
  auto setting = settings.begin();
  for (const auto& row : table.rows)
    if (table.is_active(row, config))
      (setting++)->origin = origins_text(builder.history(row), table.print_default(row));
  return settings;
}

/// The config as YAML with the sources as comments, in one column unless a value is too long.
inline std::string blame_yaml(const ConfigTable& table, const void* config, const ConfigBuilder& builder) {
  constexpr std::size_t kColumn = 48;
  return print_yaml(table, config, [&](const ConfigRow& row) {
    const auto indent = 2 * static_cast<std::size_t>(std::ranges::count(row.path, '.'));
    auto value = table.print(row, config);
    const auto used = indent + name_of(row.path).size() + 2 + value.size();
    value.append(used + 2 < kColumn ? kColumn - used : 2, ' ');
    return value + "# " + origins_text(builder.history(row), table.print_default(row));
  });
}

}  // namespace ddpxx::detail
