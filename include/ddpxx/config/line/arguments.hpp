// ddpxx/config/line/arguments.hpp — the command line: `key=value`, `--key=value`, `--key value`, `--flag`, `--no-flag`,
// `+map.key=value`, `~map.key`, a config file `run.yaml`, and options that are not settings: where files
// are, and what to show instead of running.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/command.hpp>
#include <ddpxx/config/line/argument_cursor.hpp>
#include <ddpxx/config/line/ignored_key.hpp>
#include <ddpxx/config/line/spaced_settings.hpp>
#include <ddpxx/config/line/text_setting.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

/// An option's value and its position.
struct OptionValue {
  std::string text;
  Position place;
};

/// What a program does: run with its configuration, or show something about it and end.
enum class ConfigAction { run, help, print, print_json, blame, info, schema, init, completion };

enum class ErrorStyle { text, json };

struct ConfigArguments {
  SourceEntries entries;
  std::vector<OptionValue> config_names;  ///< Config files, from left to right.
  std::optional<OptionValue> config_path;
  std::vector<OptionValue> config_dirs;  ///< Folders to search after `config_path`.
  ConfigAction action = ConfigAction::run;
  OptionValue subject;   ///< The key or group for help, the file for init, the shell for completion.
  bool resolve = false;  ///< Print values in place of `${...}`.
  ErrorStyle errors = ErrorStyle::text;
};

/// Reads the arguments that follow the program's name. Switches and lists are recognised by the table. `commands` are
/// the program's commands, without `init`; `numbers` those of the arguments in messages, from 1 if it is empty.
inline ConfigArguments read_arguments(std::span<const char* const> arguments, const ConfigTable& table,
                                      std::span<const Command> commands = {}, std::vector<std::size_t> numbers = {});

class ArgumentsReader {
 public:
  ArgumentsReader(std::span<const char* const> arguments, const ConfigTable& table, std::span<const Command> commands,
                  std::vector<std::size_t> numbers)
      : table_{table}, commands_{"init"}, cursor_{arguments, std::move(numbers), line_.entries} {
    for (const auto& command : commands) commands_.push_back(command.name);
  }

  ConfigArguments read() && {
    for (; !cursor_.is_at_end(); cursor_.advance()) read_one(cursor_.argument());
    // The program must not run for a user who wants to see its configuration.
    if (resolve_at_ && line_.action == ConfigAction::run)
      cursor_.complain(*resolve_at_, "goes with --cfg job, and shows nothing by itself");
    return std::move(line_);
  }

 private:
  void read_one(const std::string& argument) {
    if (find_malformed_utf8(argument) != std::string::npos)
      return spaced_.follows_secret() ? spaced_.hide_with_secret() : cursor_.complain("is not UTF-8");
    if (argument == "--help" || argument == "-h") {
      show(ConfigAction::help);
    } else if (cursor_.index() == 0 && argument == "init") {
      show(ConfigAction::init);
    } else if (cursor_.index() == 0 && std::ranges::find(commands_, argument) != commands_.end()) {
      return;  // the program runs it
    } else if (argument == "--blame") {
      line_.action = ConfigAction::blame;
    } else if (argument == "--info" || argument == "-i") {
      line_.action = ConfigAction::info;
    } else if (argument == "--schema") {
      line_.action = ConfigAction::schema;
    } else if (argument == "--resolve") {
      line_.resolve = true;
      resolve_at_ = cursor_.index();
    } else if (const auto what = option(argument, "--cfg", "-c")) {
      read_choice(*what, {"job", "all", "yaml", "json"},
                  [&](std::size_t i) { line_.action = i < 3 ? ConfigAction::print : ConfigAction::print_json; });
    } else if (const auto style = option(argument, "--errors", "--errors")) {
      read_choice(*style, {"text", "json"}, [&](std::size_t i) { line_.errors = static_cast<ErrorStyle>(i); });
    } else if (const auto shell = option(argument, "--completion", "--completion")) {
      read_choice(*shell, {"bash", "zsh", "fish"}, [&](std::size_t) {
        line_.action = ConfigAction::completion;
        line_.subject = *shell;
      });
    } else if (auto folder = option(argument, "--config-dir", "-cd")) {
      line_.config_dirs.push_back(std::move(*folder));
    } else if (auto name = option(argument, "--config-name", "-cn")) {
      if (!name->text.empty()) line_.config_names.push_back(std::move(*name));
    } else if (auto path = option(argument, "--config-path", "-cp")) {
      line_.config_path = std::move(*path);
    } else if (argument.starts_with("--") && argument.size() > 2) {
      read_dashed(argument.substr(2));
    } else {
      read_plain(argument);
    }
  }

  /// Chooses what to show. The next argument is its subject, unless that is a setting or an option.
  void show(ConfigAction action) {
    line_.action = action;
    if (!cursor_.has_next() || cursor_.next().starts_with('-') || cursor_.next_has_equals()) return;
    line_.subject = {.text = cursor_.next(), .place = cursor_.place()};
    cursor_.take_next();
  }

  template <class Action>
  void read_choice(const OptionValue& option, const std::vector<std::string>& words, Action action) {
    const auto found = std::ranges::find(words, option.text);
    if (option.text.empty()) return;  // option() has reported it
    if (found == words.end())
      return cursor_.complain(option.place.line - 1, names_config_file(option.text)
                                                         ? "a config file is named alone, or by --config-name (-cn)"
                                                         : not_a_choice(option.text, words));
    action(static_cast<std::size_t>(found - words.begin()));
  }

  /// The value of an option `NAME VALUE` or `NAME=VALUE`; none for another argument.
  std::optional<OptionValue> option(const std::string& argument, std::string_view name, std::string_view short_name) {
    const auto here = cursor_.place();
    const auto equals = argument.find('=');
    const auto written = std::string_view{argument}.substr(0, equals);
    if (written != name && written != short_name) return std::nullopt;
    auto value = equals != std::string::npos ? argument.substr(equals + 1) : cursor_.take_next().value_or("");
    if (value.empty()) cursor_.complain(here.line - 1, "needs a value");
    return OptionValue{.text = std::move(value), .place = here};
  }

  /// Reads `--key=value`, `--key value`, `--switch` or `--no-switch`; dashes in a key become underscores.
  void read_dashed(const std::string& argument) {
    const auto start = cursor_.index();
    const auto equals = argument.find('=');
    auto key = argument.substr(0, equals);
    if (table_.meaning_of(key).kind == KeyMeaning::Kind::unknown) std::ranges::replace(key, '-', '_');
    if (spaced_.follows_secret() && table_.meaning_of(key).kind == KeyMeaning::Kind::unknown)
      return spaced_.hide_with_secret();
    if (equals != std::string::npos && !is_config(key)) return set(start, key, argument.substr(equals + 1));
    if (is_switch(table_, key)) return set(start, key, cursor_.next_is_bool() ? *cursor_.take_next() : "true");
    const auto meaning = table_.meaning_of(key);
    if (meaning.kind == KeyMeaning::Kind::unknown && key.starts_with("no_") && is_switch(table_, key.substr(3)))
      return set(start, key.substr(3), "false");
    if (meaning.kind == KeyMeaning::Kind::unknown && spaced_.next_begins_with_equals()) return spaced_.refuse_spaces();
    // The value of a key that is ignored may be left out: a setting or a config file that follows is not its value.
    const bool has_no_value =
        meaning.row == nullptr &&
        ((cursor_.next_has_equals() && !(may_be_secret(table_, key) && spaced_.next_is_unknown())) ||
         (meaning.kind == KeyMeaning::Kind::ignored && cursor_.next_is_config_file()));
    const auto value = has_no_value ? std::nullopt : cursor_.take_next();
    const bool is_secret = !value && may_be_secret(table_, key);
    if (is_secret) spaced_.expect_secret(start);
    if (meaning.row != nullptr && !value)
      return cursor_.complain(start, is_secret ? "needs a value: write " + harmless(key) + "=***" : "needs a value");
    if (is_config(key)) return cursor_.complain(start, "a config file is named alone, or by --config-name (-cn)");
    set(start, key, value.value_or(""));
  }

  /// True for `--config FILE`, an option of many other programs.
  bool is_config(const std::string& key) const {
    return key == "config" && table_.meaning_of(key).kind == KeyMeaning::Kind::unknown;
  }

  void read_plain(const std::string& argument) {
    const auto equals = argument.find('=');
    const auto bare = std::min(argument.find_first_not_of("+~"), argument.size());
    const bool is_entry = table_.meaning_of(argument.substr(bare, equals - bare)).entry.has_value();
    if (argument.starts_with('~')) {
      if (!is_entry) return cursor_.complain("settings cannot be removed; leave it out, or write key=null");
      if (equals != std::string::npos) return cursor_.complain("write ~key, without a value");
      return remove(argument.substr(bare, equals - bare));
    }
    if (argument.starts_with('+')) {
      if (!is_entry) return cursor_.complain("settings cannot be added; write key=value without the +");
      if (equals != std::string::npos)
        return set(cursor_.index(), argument.substr(bare, equals - bare), argument.substr(equals + 1));
    }
    if (argument == "-m" || argument == "--multirun")
      return cursor_.complain(
          "is for sweeps, which this program does not run by itself, or not without key=a,b: write "
          "ddpxx-run PROGRAM -m key=a,b");
    if (argument.starts_with('-')) {
      const auto meaning = table_.meaning_of(key_of_argument(argument, &table_));
      if (spaced_.follows_secret() && meaning.kind == KeyMeaning::Kind::unknown) return spaced_.hide_with_secret();
      return spaced_.next_is_value()
                 ? spaced_.refuse_missing_equals()
                 : cursor_.complain("is not an option; settings are written key=value, --help lists them");
    }
    if (equals == std::string::npos) return read_word(argument);
    if (equals == 0) return cursor_.complain("is not a setting; write key=value, without spaces around the =");
    if (argument[equals - 1] == ' ' && table_.meaning_of(argument.substr(0, argument.find(' '))).row != nullptr)
      return cursor_.complain("write key=value, without spaces around the =");
    set(cursor_.index(), argument.substr(0, equals), argument.substr(equals + 1));
  }

  /// Reads a word without `=`: a positional argument, a config file, or a mistake.
  void read_word(const std::string& word) {
    const auto* positional =
        positional_ < table_.positionals.size() ? table_.find(table_.positionals[positional_]) : nullptr;
    const bool takes_number = positional != nullptr && is_number(positional->type->shape(positional->facts));
    const auto meaning = table_.meaning_of(word);
    if (meaning.row == nullptr && names_config_file(word) && (positional == nullptr || takes_number))
      return line_.config_names.push_back({.text = word, .place = cursor_.place()});
    if (spaced_.next_begins_with_equals() && (meaning.kind != KeyMeaning::Kind::unknown || positional == nullptr))
      return spaced_.refuse_spaces();
    if ((meaning.row != nullptr || positional == nullptr || takes_number) && spaced_.next_is_value())
      return spaced_.refuse_missing_equals();
    if (meaning.kind != KeyMeaning::Kind::unknown)
      return cursor_.complain("is not a setting; settings are written key=value, --help lists them");
    const bool is_numeric = word.find_first_of("0123456789") < 2;  // behind a sign or a point
    if (positional != nullptr && (!takes_number || is_numeric)) {
      ++positional_;
      return set(cursor_.index(), positional->path, word);
    }
    std::string why = "is not a setting; settings are written key=value, --help lists them";
    if (std::ranges::find(commands_, word) != commands_.end())
      why = "is a command, which comes before all other arguments";
    else if (!is_numeric)
      why = "is neither a command (" + one_of(commands_) + ") nor a setting; " + hint_of_command(word);
    cursor_.complain(why);
  }

  std::string hint_of_command(const std::string& word) const {
    const auto meant = nearest(word, commands_);
    return meant ? "did you mean " + *meant + '?' : "settings are written key=value, --help lists them";
  }

  static bool is_number(const ValueShape& shape) {
    return shape.kind == ValueShape::Kind::whole || shape.kind == ValueShape::Kind::real;
  }

  void remove(const std::string& key) {
    line_.entries.list.push_back({.path = key,
                                  .keys = std::vector<Position>(path_segments(key).size(), cursor_.place()),
                                  .value = {.place = cursor_.place()},
                                  .removes = true});
  }

  void set(std::size_t index, const std::string& key, const std::string& text) {
    if (auto problem = add_setting(line_.entries, table_, key, text, cursor_.place(index)); !problem.empty())
      cursor_.complain(index, std::move(problem));
  }

  const ConfigTable& table_;
  std::vector<std::string> commands_;
  ConfigArguments line_;
  ArgumentCursor cursor_;
  SpacedSettings spaced_{table_, cursor_};
  std::size_t positional_ = 0;
  std::optional<std::size_t> resolve_at_;  // index of --resolve
};

inline ConfigArguments read_arguments(std::span<const char* const> arguments, const ConfigTable& table,
                                      std::span<const Command> commands, std::vector<std::size_t> numbers) {
  return ArgumentsReader{arguments, table, commands, std::move(numbers)}.read();
}

}  // namespace ddpxx::detail
