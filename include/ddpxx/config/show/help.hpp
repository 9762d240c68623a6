// ddpxx/config/show/help.hpp — the text of --help: every key with its default, its meaning and its allowed values.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/config/command.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

/// The help and the allowed values of a row: `Peak learning rate (a number, above 0)`.
inline std::string explanation(const ConfigRow& row) {
  return std::string{row.facts.help} + (row.facts.help.empty() ? "(" : " (") + accepted_values(row) + ')';
}

/// The heading of a row's group, or of its alternative of a variant.
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

/// A line `NAME   HELP` in the two columns of the options.
inline std::string in_columns(std::string name, std::string_view help) {
  constexpr std::size_t kColumn = 22;
  name.resize(std::max(kColumn, name.size() + 2), ' ');
  return name + std::string{help} + '\n';
}

/// Wraps a line between words. In a line of two columns the second column continues below its start, or below the first
/// column if that takes more than half of the width.
inline std::string wrapped_line(std::string_view line, std::size_t columns) {
  constexpr std::size_t kNarrowest = 20, kIndent = 6;
  if (columns < kNarrowest || count_characters(line) <= columns) return std::string{line};
  const auto start = std::min(line.find_first_not_of(' '), line.size());
  const auto gap = line.find("  ", start);
  const auto second = std::min(gap == line.npos ? line.npos : line.find_first_not_of(' ', gap), line.size());
  const bool has_columns = second < line.size();
  const bool is_beside = has_columns && second <= columns / 2;
  const std::string indent(is_beside ? second : has_columns ? kIndent : start + 2, ' ');
  std::string result, now;
  if (has_columns && is_beside)
    now = line.substr(0, second);
  else if (has_columns)
    result = std::string{line.substr(0, gap)} + '\n';
  if (now.empty()) now = has_columns ? indent : std::string{line.substr(0, start)};
  bool is_new = true;
  std::istringstream words{std::string{line.substr(has_columns ? second : start)}};
  for (std::string word; words >> word; is_new = false) {
    if (!is_new && count_characters(now) + 1 + count_characters(word) > columns) {
      result += now + '\n';
      now = indent;
      is_new = true;
    }
    now += (is_new ? "" : " ") + word;
  }
  return result + now;
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

/// The width of the terminal of standard output, or COLUMNS; 0, which means no wrapping, if there is neither.
inline std::size_t terminal_columns() {
  std::size_t columns = 0;
  const auto told = environment("COLUMNS").value_or("");
  if (std::from_chars(told.data(), told.data() + told.size(), columns).ec == std::errc{} && columns > 0) return columns;
  winsize size{};
  return ::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// The text with lines of at most `columns` columns; 0 means no limit.
inline std::string wrapped_help(std::string_view text, std::size_t columns) {
  std::string result;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    result += wrapped_line(line, columns) + '\n';
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return result;
}

/// The keys at and below a path, as `--help PATH` shows them; empty for an unknown path.
inline std::string help_text(const ConfigTable& table, std::string_view path) {
  const auto rows = help_rows(table, table.meaning_of(path).path);
  return rows.substr(rows.empty() ? 0 : 1);
}

/// The whole text of --help. `commands` are the commands of the program, `more_usage` is what follows the settings in
/// its command line.
inline std::string help_text(const ConfigTable& table, std::string_view program, std::string_view config_path,
                             std::span<const Command> commands = {}, const std::string& more_usage = {}) {
  std::string text = "usage: " + std::string{program} + " [COMMAND] [FILE] [KEY=VALUE]...";
  for (const auto path : table.positionals) text += " [" + std::string{name_of(path)} + ']';
  if (!more_usage.empty()) text += ' ' + more_usage;
  text += "\n\ncommands:\n";
  for (const auto& [name, help] : commands) text += in_columns("  " + name, help);
  text += in_columns("  init [FILE]", "writes a commented configuration to begin with");
  text += "\noptions:\n";
  const auto option = [&](std::string_view name, const std::string& help) {
    text += in_columns("  " + std::string{name}, help);
  };
  option("FILE", "a YAML, JSON or Python file with settings, by its ending; several are read from left to right");
  option("--config-name FILE", "the same (also -cn); FILE.yaml is found by FILE too");
  option("--config-path DIR",
         "where FILE is looked for after the current folder (also -cp); default: " + std::string{config_path});
  option("--config-dir DIR", "a further folder in which FILE is looked for");
  option("--help [KEY]", "this text (also -h), or the part of it on a key or a group");
  option("--cfg job",
         "prints the configuration, and ends (json: as JSON); with --resolve, ${...} is printed as its value");
  option("--blame", "prints every value, who set it, and what it overrode");
  option("--info", "prints which files and arguments were read");
  option("--schema", "prints a JSON Schema for editors");
  option("--completion SHELL", "prints a completion script for bash, zsh or fish");
  option("--errors=json", "writes errors for programs to read");
  text +=
      "\nA file may name others that it builds on: `include: base.yaml`.\n"
      "`ddpxx-run PROGRAM -m` makes a sweep of KEY=1,2 or KEY=range(3).\n"
      "A Python file is one of nanoGPT's, as config/train_gpt2.py: its lines NAME = VALUE are read, and not run.\n"
      "What is set on the command line wins over the file, the file over the defaults.\n"
      "--KEY=VALUE and --KEY VALUE work too, and --KEY and --no-KEY where true or false is meant.\n";
  if (!table.positionals.empty()) {
    text += "Arguments without a key set, in this order: ";
    for (const auto path : table.positionals)
      text += (path == table.positionals.front() ? "" : ", ") + std::string{path};
    text += ".\n";
  }
  text += help_rows(table, "");
  if (!table.aliases.empty()) text += "\nother names:\n";
  for (const auto& alias : table.aliases)
    text += "  " + std::string{alias.key} + " is " + table.meaning_of(alias.key).path + '\n';
  return text;
}

}  // namespace ddpxx::detail
