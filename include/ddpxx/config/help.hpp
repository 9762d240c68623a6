// ddpxx/config/help.hpp — the text of --help: every key with its default, its meaning and what it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/shape.hpp>
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
  std::string takes = words_of(row.type->shape(row.facts));
  if (const auto allowed = allowed_text(row.facts); !allowed.empty()) takes += ", " + allowed;
  if (const auto unit = unit_text(row.facts.unit); !unit.empty()) takes += ", " + std::string{unit};
  return std::string{row.facts.help} + (row.facts.help.empty() ? "(" : " (") + takes + ')';
}

/// Rows of one group, or of one alternative of a variant, stand under one heading.
inline std::string help_heading(const ConfigTable& table, const ConfigRow& row) {
  const std::string group{group_of(row.path)};
  std::string heading = group;
  if (row.place.variant != FieldPlace::kRoot) {
    const auto& variant = table.variants[row.place.variant];
    if (variant.path == group) return group + '=' + variant.names[row.place.alternative];
  }
  const auto* found = table.find_group(group);
  if (found != nullptr && !found->help.empty()) heading += ": " + std::string{found->help};
  return heading;
}

inline std::string help_rows(const ConfigTable& table, std::string_view below) {
  constexpr std::size_t kColumn = 44;
  std::string text, heading = "none";
  for (const auto& row : table.rows) {
    if (!lies_in(row.path, below)) continue;
    if (auto now = help_heading(table, row); now != heading) {
      heading = std::move(now);
      text += '\n' + (heading.find_first_of(":=") == std::string::npos ? "" : heading + '\n');
    }
    auto line = "  " + row.path + '=' + table.print_default(row);
    line.resize(std::max(kColumn, line.size() + 2), ' ');
    text += line + explanation(row) + '\n';
  }
  return text;
}

}  // namespace detail

/// The keys at and below a path, as `--help PATH` shows them; empty for a path that is not there.
inline std::string help_text(const ConfigTable& table, std::string_view path) {
  const auto rows = detail::help_rows(table, table.meaning_of(path).path);
  return rows.substr(rows.empty() ? 0 : 1);
}

inline std::string help_text(const ConfigTable& table, std::string_view program, std::string_view config_path) {
  std::string text = "usage: " + std::string{program} + " [--config-name FILE] [KEY=VALUE]...\n\n";
  text += "  --config-name FILE  YAML or JSON file with settings (also -cn); FILE.yaml is found by FILE too\n";
  text += "  --config-path DIR   where FILE lies (also -cp); default: " + std::string{config_path} + '\n';
  text += "  --config-dir DIR    a further folder in which FILE is looked for\n";
  text += "  --help [KEY]        this text (also -h), or the part of it on a key or a group\n";
  text +=
      "  --cfg job           prints the configuration, and ends (json: as JSON); --resolve puts the values of ${...} "
      "in\n";
  text += "  --blame             prints every value, who set it, and what it overrode\n";
  text += "  --info              prints which files and arguments were read\n";
  text += "  --schema            prints a JSON Schema for editors\n";
  text += "  --completion SHELL  prints a completion script for bash, zsh or fish\n";
  text += "  --errors=json       writes errors for programs to read\n";
  text += "  init [FILE]         writes a commented configuration to begin with\n\n";
  text +=
      "A file may name others that it builds on: `include: base.yaml`. -m makes a sweep of lr=1,2 and seed=range(3).\n"
      "A file of nanoGPT's, as in `config/train_gpt2.py batch_size=8`, is read for its lines NAME = VALUE, not run.\n";
  text += "What is set on the command line wins over the file, the file over the defaults.\n";
  text += "--KEY=VALUE and --KEY VALUE work too, and --KEY and --no-KEY where true or false is meant.\n";
  return text + detail::help_rows(table, "");
}

}  // namespace ddpxx
