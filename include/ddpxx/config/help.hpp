// ddpxx/config/help.hpp — the text of --help: every key with its default, its meaning and what it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>

namespace ddpxx {

namespace detail {

inline std::string_view unit_text(Unit unit) {
  switch (unit) {
    case Unit::steps:
      return "in steps";
    case Unit::epochs:
      return "in epochs";
    case Unit::samples:
      return "in samples";
    case Unit::tokens:
      return "in tokens";
    case Unit::characters:
      return "in characters";
    case Unit::ranks:
      return "in ranks";
    case Unit::threads:
      return "in threads";
    case Unit::none:
    case Unit::bytes:    // these two are read in several spellings, which
    case Unit::seconds:  // `allowed_text` lists
      return "";
  }
  return "";
}

/// `Peak step size (a number, above 0)`
inline std::string explanation(const ConfigRow& row) {
  std::string takes = row.type->words(row.facts);
  if (const auto allowed = allowed_text(row.facts); !allowed.empty()) takes += ", " + allowed;
  if (const auto unit = unit_text(row.facts.unit); !unit.empty()) takes += ", " + std::string{unit};
  return std::string{row.facts.help} + (row.facts.help.empty() ? "(" : " (") + takes + ')';
}

}  // namespace detail

inline std::string help_text(const ConfigTable& table, std::string_view program, std::string_view config_path) {
  std::string text = "usage: " + std::string{program} + " [--config-name FILE] [KEY=VALUE]...\n\n";
  text += "  --config-name FILE  YAML file with settings (also -cn); FILE.yaml is found by FILE too\n";
  text += "  --config-path DIR   where FILE lies (also -cp); default: " + std::string{config_path} + '\n';
  text += "  --help              this text (also -h)\n\n";
  text += "What is set on the command line wins over the file, the file over the defaults.\n";
  text += "--KEY=VALUE and --KEY VALUE work too, and --KEY and --no-KEY where true or false is meant.\n";
  constexpr std::size_t kColumn = 44;
  std::string_view group;
  for (const auto& row : table.rows) {
    if (&row == &table.rows.front() || group_of(row.path) != group) {
      group = group_of(row.path);
      const auto* group_row = table.find_group(group);
      text += '\n';
      if (group_row != nullptr && !group_row->help.empty())
        text += std::string{group} + ": " + std::string{group_row->help} + '\n';
    }
    auto line = "  " + row.path + '=' + table.print(row, table.defaults);
    line.resize(std::max(kColumn, line.size() + 2), ' ');
    text += line + detail::explanation(row) + '\n';
  }
  return text;
}

}  // namespace ddpxx
