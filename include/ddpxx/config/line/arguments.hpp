// ddpxx/config/line/arguments.hpp — the command line: `key=value`, `--key=value`, `--key value`, `--flag`, `--no-flag`,
// `+map.key=value`, `~map.key`, a config file `run.yaml`, and options that are not settings: where files
// are, and what to show instead of running.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/command.hpp>
#include <ddpxx/config/line/ignored_key.hpp>
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
      : table_{table}, commands_{"init"} {
    for (const auto& command : commands) commands_.push_back(command.name);
    source_->kind = ConfigSource::Kind::arguments;
    source_->numbers = std::move(numbers);
    for (const char* argument : arguments) source_->lines.emplace_back(argument);
    line_.entries.source = source_;
  }

  ConfigArguments read() && {
    for (at_ = 0; at_ < source_->lines.size(); ++at_) read_one(source_->lines[at_]);
    // The program must not run for a user who wants to see its configuration.
    if (resolve_at_ && line_.action == ConfigAction::run)
      complain(*resolve_at_, "goes with --cfg job, and shows nothing by itself");
    return std::move(line_);
  }

 private:
  Position place(std::size_t index) const { return {source_, index + 1, 1}; }
  void complain(std::size_t index, std::string why) {
    line_.entries.problems.push_back({place(index), "", std::move(why)});
  }

  void read_one(const std::string& argument) {
    if (find_malformed_utf8(argument) != std::string::npos)
      return follows_secret() ? hide_with_secret() : complain(at_, "is not UTF-8");
    if (argument == "--help" || argument == "-h") {
      show(ConfigAction::help);
    } else if (at_ == 0 && argument == "init") {
      show(ConfigAction::init);
    } else if (at_ == 0 && std::ranges::find(commands_, argument) != commands_.end()) {
      return;  // the program runs it
    } else if (argument == "--blame") {
      line_.action = ConfigAction::blame;
    } else if (argument == "--info" || argument == "-i") {
      line_.action = ConfigAction::info;
    } else if (argument == "--schema") {
      line_.action = ConfigAction::schema;
    } else if (argument == "--resolve") {
      line_.resolve = true;
      resolve_at_ = at_;
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
    const bool has_next = at_ + 1 < source_->lines.size();
    if (!has_next || source_->lines[at_ + 1].starts_with('-') || next_has_equals()) return;
    line_.subject = {.text = source_->lines[at_ + 1], .place = place(at_)};
    take_next();
  }

  template <class Action>
  void read_choice(const OptionValue& option, const std::vector<std::string>& words, Action action) {
    const auto found = std::ranges::find(words, option.text);
    if (option.text.empty()) return;  // option() has reported it
    if (found == words.end())
      return complain(option.place.line - 1, names_config_file(option.text)
                                                 ? "a config file is named alone, or by --config-name (-cn)"
                                                 : not_a_choice(option.text, words));
    action(static_cast<std::size_t>(found - words.begin()));
  }

  /// The value of an option `NAME VALUE` or `NAME=VALUE`; none for another argument.
  std::optional<OptionValue> option(const std::string& argument, std::string_view name, std::string_view short_name) {
    const auto here = place(at_);
    const auto equals = argument.find('=');
    const auto written = std::string_view{argument}.substr(0, equals);
    if (written != name && written != short_name) return std::nullopt;
    auto value = equals != std::string::npos ? argument.substr(equals + 1) : take_next().value_or("");
    if (value.empty()) complain(here.line - 1, "needs a value");
    return OptionValue{.text = std::move(value), .place = here};
  }

  /// Takes the next argument as the value of this one; none if there is no suitable argument.
  std::optional<std::string> take_next() {
    if (at_ + 1 == source_->lines.size()) return std::nullopt;
    const std::string next = source_->lines[at_ + 1];
    const bool negative_number = next.size() > 1 && (next[1] == '.' || (next[1] >= '0' && next[1] <= '9'));
    if (next.starts_with('-') && !negative_number) return std::nullopt;
    source_->lines[at_] += ' ' + next;  // messages show both arguments
    if (find_malformed_utf8(next) != std::string::npos) complain(at_, "is not UTF-8");
    ++at_;
    return next;
  }

  bool is_switch(const std::string& key) const {
    const auto meaning = table_.meaning_of(key);
    return meaning.row != nullptr ? meaning.row->type->is_switch : is_ignored_switch(table_, meaning);
  }

  /// Reads `--key=value`, `--key value`, `--switch` or `--no-switch`; dashes in a key become underscores.
  void read_dashed(const std::string& argument) {
    const auto start = at_;
    const auto equals = argument.find('=');
    auto key = argument.substr(0, equals);
    if (table_.meaning_of(key).kind == KeyMeaning::Kind::unknown) std::ranges::replace(key, '-', '_');
    if (follows_secret() && table_.meaning_of(key).kind == KeyMeaning::Kind::unknown) return hide_with_secret();
    if (equals != std::string::npos && !is_config(key)) return say(start, key, argument.substr(equals + 1));
    if (is_switch(key)) return say(start, key, next_is_bool() ? *take_next() : "true");
    const auto meaning = table_.meaning_of(key);
    if (meaning.kind == KeyMeaning::Kind::unknown && key.starts_with("no_") && is_switch(key.substr(3)))
      return say(start, key.substr(3), "false");
    if (meaning.kind == KeyMeaning::Kind::unknown && is_apart()) return refuse_spaces();
    // The value of a key that is ignored may be left out: a setting or a config file that follows is not its value.
    const bool has_no_value =
        meaning.row == nullptr && ((next_has_equals() && !(may_be_secret(table_, key) && next_is_unknown())) ||
                                   (meaning.kind == KeyMeaning::Kind::ignored && next_is_config_file()));
    const auto value = has_no_value ? std::nullopt : take_next();
    const bool is_secret = !value && may_be_secret(table_, key);
    if (is_secret) secret_at_ = start;
    if (meaning.row != nullptr && !value)
      return complain(start, is_secret ? "needs a value: write " + harmless(key) + "=***" : "needs a value");
    if (is_config(key)) return complain(start, "a config file is named alone, or by --config-name (-cn)");
    say(start, key, value.value_or(""));
  }

  /// True for `--config FILE`, an option of many other programs.
  bool is_config(const std::string& key) const {
    return key == "config" && table_.meaning_of(key).kind == KeyMeaning::Kind::unknown;
  }
  bool next_is_bool() const { return at_ + 1 < source_->lines.size() && read_bool(source_->lines[at_ + 1]); }
  bool next_has_equals() const {
    return at_ + 1 < source_->lines.size() && source_->lines[at_ + 1].find('=') != std::string::npos;
  }

  /// Whether the next argument sets no known key, so that an `=` in it may be a part of a secret.
  bool next_is_unknown() const {
    const auto& next = source_->lines[at_ + 1];
    return table_.meaning_of(next.substr(0, next.find('='))).kind == KeyMeaning::Kind::unknown;
  }
  bool next_is_config_file() const {
    return at_ + 1 < source_->lines.size() && names_config_file(source_->lines[at_ + 1]);
  }

  void read_plain(const std::string& argument) {
    const auto equals = argument.find('=');
    const auto bare = std::min(argument.find_first_not_of("+~"), argument.size());
    const bool is_entry = table_.meaning_of(argument.substr(bare, equals - bare)).entry.has_value();
    if (argument.starts_with('~')) {
      if (!is_entry) return complain(at_, "settings cannot be removed; leave it out, or write key=null");
      if (equals != std::string::npos) return complain(at_, "write ~key, without a value");
      return remove(argument.substr(bare, equals - bare));
    }
    if (argument.starts_with('+')) {
      if (!is_entry) return complain(at_, "settings cannot be added; write key=value without the +");
      if (equals != std::string::npos)
        return say(at_, argument.substr(bare, equals - bare), argument.substr(equals + 1));
    }
    if (argument == "-m" || argument == "--multirun")
      return complain(at_,
                      "is for sweeps, which this program does not run by itself, or not without key=a,b: write "
                      "ddpxx-run PROGRAM -m key=a,b");
    if (argument.starts_with('-')) {
      const auto meaning = table_.meaning_of(key_of_argument(argument, &table_));
      if (follows_secret() && meaning.kind == KeyMeaning::Kind::unknown) return hide_with_secret();
      return names_next_value(argument)
                 ? refuse_missing_equals(argument)
                 : complain(at_, "is not an option; settings are written key=value, --help lists them");
    }
    if (equals == std::string::npos) return read_word(argument);
    if (equals == 0) return complain(at_, "is not a setting; write key=value, without spaces around the =");
    if (argument[equals - 1] == ' ' && table_.meaning_of(argument.substr(0, argument.find(' '))).row != nullptr)
      return complain(at_, "write key=value, without spaces around the =");
    say(at_, argument.substr(0, equals), argument.substr(equals + 1));
  }

  /// Reads a word without `=`: a positional argument, a config file, or a mistake.
  void read_word(const std::string& word) {
    const auto* positional =
        positional_ < table_.positionals.size() ? table_.find(table_.positionals[positional_]) : nullptr;
    const bool takes_number = positional != nullptr && is_number(positional->type->shape(positional->facts));
    const auto meaning = table_.meaning_of(word);
    if (meaning.row == nullptr && names_config_file(word) && (positional == nullptr || takes_number))
      return line_.config_names.push_back({.text = word, .place = place(at_)});
    if (is_apart() && (meaning.kind != KeyMeaning::Kind::unknown || positional == nullptr)) return refuse_spaces();
    if ((meaning.row != nullptr || positional == nullptr || takes_number) && names_next_value(word))
      return refuse_missing_equals(word);
    if (meaning.kind != KeyMeaning::Kind::unknown)
      return complain(at_, "is not a setting; settings are written key=value, --help lists them");
    const bool is_numeric = word.find_first_of("0123456789") < 2;  // behind a sign or a point
    if (positional != nullptr && (!takes_number || is_numeric)) {
      ++positional_;
      return say(at_, positional->path, word);
    }
    std::string why = "is not a setting; settings are written key=value, --help lists them";
    if (std::ranges::find(commands_, word) != commands_.end())
      why = "is a command, which comes before all other arguments";
    else if (!is_numeric)
      why = "is neither a command (" + one_of(commands_) + ") nor a setting; " + hint_of_command(word);
    complain(at_, why);
  }

  std::string hint_of_command(const std::string& word) const {
    const auto meant = nearest(word, commands_);
    return meant ? "did you mean " + *meant + '?' : "settings are written key=value, --help lists them";
  }

  /// Whether the next argument begins with the `=` of this one.
  bool is_apart() const { return at_ + 1 < source_->lines.size() && source_->lines[at_ + 1].starts_with('='); }
  /// Refuses `key = value`, as one problem about all three arguments.
  void refuse_spaces() {
    const auto start = at_;
    const bool has_value = source_->lines[at_ + 1] == "=" && at_ + 2 < source_->lines.size();
    source_->lines[start] += ' ' + source_->lines[++at_];
    if (has_value) source_->lines[start] += ' ' + source_->lines[++at_];
    complain(start, "write key=value, without spaces around the =");
  }

  /// Whether an argument is the key of a setting, and the next one looks like its value, as in `batch_size 32` and
  /// `-batch_size 32`. What follows the key of a secret is its value, even with an `=` at its end.
  bool names_next_value(const std::string& argument) const {
    if (at_ + 1 == source_->lines.size() || argument.find(' ') != std::string::npos) return false;
    const auto& next = source_->lines[at_ + 1];
    const auto key = key_of_argument(argument, &table_);
    if (may_be_secret(table_, key)) return table_.meaning_of(next.substr(0, next.find('='))).row == nullptr;
    if (table_.meaning_of(key).row == nullptr || next.find('=') != std::string::npos) return false;
    return is_switch(key) ? next_is_bool() : !names_config_file(next);
  }
  /// Refuses `key value`, as one problem about both arguments.
  void refuse_missing_equals(const std::string& argument) {
    const auto start = at_;
    const auto key = key_of_argument(argument, &table_);
    const auto value = take_next();
    const bool is_secret = may_be_secret(table_, key);
    if (!value && is_secret) secret_at_ = start;
    if (value || is_secret)
      return complain(start, "write " + harmless(key) + '=' + (is_secret ? "***" : harmless(*value)));
    complain(start, std::string{"is not "} + (argument.starts_with('-') ? "an option" : "a setting") +
                        "; settings are written key=value, --help lists them");
  }

  /// Whether the argument before this one is the key of a secret without a value. An unknown argument that begins with
  /// a dash may be the value then, and messages must not show it.
  bool follows_secret() const { return secret_at_ && *secret_at_ + 1 == at_; }
  /// Joins this argument to the key of a secret before it, whose problem then shows `***` in its place.
  void hide_with_secret() {
    auto& secret = source_->lines[*secret_at_];
    const auto key = key_of_argument(secret, &table_);
    secret += ' ' + source_->lines[at_];
    if (table_.meaning_of(key).kind == KeyMeaning::Kind::ignored)
      complain(*secret_at_, "write " + harmless(key) + "=***");  // the key alone is no problem
  }

  static bool is_number(const ValueShape& shape) {
    return shape.kind == ValueShape::Kind::whole || shape.kind == ValueShape::Kind::real;
  }
  static bool names_config_file(std::string_view word) {
    return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json") || word.ends_with(".py");
  }

  void remove(const std::string& key) {
    line_.entries.list.push_back(
        {.path = key, .keys = places(key, at_), .value = {.place = place(at_)}, .removes = true});
  }

  std::vector<Position> places(const std::string& key, std::size_t index) const {
    return std::vector<Position>(path_segments(key).size(), place(index));
  }

  void say(std::size_t index, const std::string& key, const std::string& text) {
    if (auto problem = add_setting(line_.entries, table_, key, text, place(index)); !problem.empty())
      complain(index, std::move(problem));
  }

  const ConfigTable& table_;
  std::vector<std::string> commands_;
  std::shared_ptr<ConfigSource> source_ = std::make_shared<ConfigSource>();
  std::size_t at_ = 0;
  std::size_t positional_ = 0;
  std::optional<std::size_t> resolve_at_;  // index of --resolve
  std::optional<std::size_t> secret_at_;   // index of the last key of a secret without a value
  ConfigArguments line_;
};

inline ConfigArguments read_arguments(std::span<const char* const> arguments, const ConfigTable& table,
                                      std::span<const Command> commands, std::vector<std::size_t> numbers) {
  return ArgumentsReader{arguments, table, commands, std::move(numbers)}.read();
}

}  // namespace ddpxx::detail
