// ddpxx/config/show/completion.hpp — scripts by which bash, zsh and fish complete a program's keys, values and options.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/command.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/show/completion_text.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// The script for `shell`, one of bash, zsh and fish. `program` is the name by which users call it, `commands` are its
/// commands, without `init`.
/// Errors  `config` for another shell.
inline std::string completion_script(const ConfigTable& table, std::string_view shell, std::string_view program,
                                     std::span<const Command> commands = {});

/// A word `key=` with its possible values, or `key.` for a map.
struct CompletedKey {
  std::string key;
  std::string help;
  std::vector<std::string> values{};
  char end = '=';
};

inline std::vector<std::string> values_of(const ValueShape& shape) {
  auto values = shape.names;
  if (shape.kind == ValueShape::Kind::truth) values = {"true", "false"};
  if (!values.empty() && shape.may_be_null) values.emplace_back("null");
  return values;
}

/// The keys to complete, each once, also if several alternatives have it. The key of a group stands for its field
/// `name`.
inline std::vector<CompletedKey> completed_keys(const ConfigTable& table) {
  std::vector<CompletedKey> keys;
  const auto add = [&](CompletedKey added) {
    const auto known = std::ranges::find(keys, added.key, &CompletedKey::key);
    if (known == keys.end()) return keys.push_back(std::move(added));
    for (auto& value : added.values)
      if (std::ranges::find(known->values, value) == known->values.end()) known->values.push_back(std::move(value));
  };
  for (const auto& row : table.rows) {
    const auto values = values_of(row.type->shape(row.facts));
    const auto group = group_of(row.path);
    if (name_of(row.path) == "name" && !group.empty()) add({std::string{group}, std::string{row.facts.help}, values});
    add({row.path, std::string{row.facts.help}, values, row.type->is_map() ? '.' : '='});
  }
  return keys;
}

inline const std::vector<std::string>& completed_options() {
  static const std::vector<std::string> options{"--help",   "--config-name", "--config-path", "--config-dir",
                                                "--cfg",    "--resolve",     "--blame",       "--info",
                                                "--schema", "--completion",  "--errors="};
  return options;
}

/// The text in single quotes, by the rules of bash and zsh, or of fish.
inline std::string shell_quoted(std::string_view text, bool is_fish) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += is_fish ? "\\'" : "'\\''";
    else if (c == '\\' && is_fish)
      result += "\\\\";
    else
      result += c;
  }
  return result + '\'';
}

inline std::string shell_words(const std::vector<std::string>& words, std::string_view shell) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_quoted(word, shell == "fish");
  return text;
}

/// The branches of the scripts' inner `case`, with the values of keys.
inline std::string value_branches(const std::vector<CompletedKey>& keys, std::string_view shell) {
  std::string text;
  for (const auto& [key, help, values, end] : keys) {
    if (values.empty()) continue;
    const bool is_bash = shell == "bash";
    if (shell == "fish")
      text += "                case " + shell_quoted(key, true) + "\n                    printf \"$stem%s\\n\" " +
              shell_words(values, shell) + '\n';
    else
      text += "        " + shell_quoted(key, false) + (is_bash ? ") candidates=(" : ") compadd -- ") +
              shell_words(values, shell) + (is_bash ? ")" : "") + " ;;\n";
  }
  return text.substr(0, text.size() - (text.empty() ? 0 : 1));
}

/// The program's name as the name of a shell function.
inline std::string function_name(std::string_view program) {
  std::string name = "_complete_";
  for (const char c : program) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += is_letter ? c : '_';
  }
  return name;
}

inline std::string filled_in(std::string_view text,
                             const std::vector<std::pair<std::string_view, std::string>>& words) {
  std::string result;
  while (!text.empty()) {
    const auto word = std::ranges::find_if(words, [&](const auto& each) { return text.starts_with(each.first); });
    const bool is_word = word != words.end();
    result += is_word ? std::string_view{word->second} : text.substr(0, 1);
    text.remove_prefix(is_word ? word->first.size() : 1);
  }
  return result;
}

inline std::string completion_script(const ConfigTable& table, std::string_view shell, std::string_view program,
                                     std::span<const Command> commands) {
  const bool is_fish = shell == "fish";
  if (!is_fish && shell != "bash" && shell != "zsh")
    throw Error{Errc::config, "--completion: " + shown(shell) + " is not known (allowed: bash, zsh or fish)"};
  const auto keys = completed_keys(table);
  std::vector<std::string> words, paths, first_words;
  const auto add_command = [&](const Command& command) {
    first_words.push_back(command.name);
    if (is_fish) first_words.push_back(command.help);
  };
  std::ranges::for_each(commands, add_command);
  add_command({"init", "writes a commented configuration to begin with"});
  for (const auto& [key, help, values, end] : keys) {
    words.push_back(key + end);
    if (is_fish) words.push_back(help);  // fish shows the help beside the word
    paths.push_back(key);
  }
  for (const auto& group : table.groups)
    if (!group.path.empty() && std::ranges::find(paths, group.path) == paths.end()) paths.push_back(group.path);
  return filled_in(is_fish          ? kFishCompletion
                   : shell == "zsh" ? kZshCompletion
                                    : kBashCompletion,
                   {{"@PROGRAM@", std::string{program}},
                    {"@NAME@", function_name(program)},
                    {"@KEYS@", shell_words(words, shell)},
                    {"@PATHS@", shell_words(paths, shell)},
                    {"@COMMANDS@", shell_words(first_words, shell)},
                    {"@OPTIONS@", shell_words(completed_options(), shell)},
                    {"@VALUES@", value_branches(keys, shell)}});
}

}  // namespace ddpxx::detail
