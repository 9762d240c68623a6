// ddpxx/config/arguments.hpp — the command line: `key=value`, `--key=value`, `--key value`, `--flag`, `--no-flag`,
// and the options that are no settings: --config-name (-cn), --config-path (-cp), --help (-h).
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

#include <ddpxx/config/argument_value.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// An option's value and where it stands.
struct OptionValue {
  std::string text;
  Position place;
};

struct ConfigArguments {
  Said said;
  std::vector<OptionValue> config_names;  ///< From left to right.
  std::optional<OptionValue> config_path;
  bool help = false;
};

/// Reads the arguments that follow the program's name. The table tells which keys are switches and which are lists.
inline ConfigArguments read_arguments(std::span<const char* const> arguments, const ConfigTable& table);

namespace detail {

class ArgumentsReader {
 public:
  ArgumentsReader(std::span<const char* const> arguments, const ConfigTable& table) : table_{table} {
    source_->order = ConfigSource::kCommandLine;
    for (const char* argument : arguments) source_->lines.emplace_back(argument);
    line_.said.source = source_;
  }

  ConfigArguments read() && {
    for (at_ = 0; at_ < source_->lines.size(); ++at_) read_one(source_->lines[at_]);
    return std::move(line_);
  }

 private:
  Position place(std::size_t index) const { return {source_, index + 1, 1}; }
  void complain(std::size_t index, std::string why) {
    line_.said.problems.push_back({place(index), "", std::move(why)});
  }

  void read_one(const std::string& argument) {
    if (find_malformed_utf8(argument) != std::string::npos) return complain(at_, "is not UTF-8");
    if (argument == "--help" || argument == "-h") {
      line_.help = true;
    } else if (auto name = option(argument, "--config-name", "-cn")) {
      line_.config_names.push_back(std::move(*name));
    } else if (auto path = option(argument, "--config-path", "-cp")) {
      line_.config_path = std::move(*path);
    } else if (argument.starts_with("--") && argument.size() > 2) {
      read_dashed(argument.substr(2));
    } else {
      read_plain(argument);
    }
  }

  /// `NAME VALUE` or `NAME=VALUE`; none when the argument is another one.
  std::optional<OptionValue> option(const std::string& argument, std::string_view name, std::string_view short_name) {
    const auto here = place(at_);
    const auto equals = argument.find('=');
    const auto written = std::string_view{argument}.substr(0, equals);
    if (written != name && written != short_name) return std::nullopt;
    if (equals != std::string::npos) return OptionValue{argument.substr(equals + 1), here};
    auto value = take_next();
    if (!value) complain(at_, "needs a value");
    return OptionValue{value.value_or(""), here};
  }

  /// The next argument, which belongs to this one; none when there is none that could.
  std::optional<std::string> take_next() {
    if (at_ + 1 == source_->lines.size()) return std::nullopt;
    const std::string next = source_->lines[at_ + 1];
    const bool negative_number = next.size() > 1 && (next[1] == '.' || (next[1] >= '0' && next[1] <= '9'));
    if (next.starts_with('-') && !negative_number) return std::nullopt;
    source_->lines[at_] += ' ' + next;  // messages show the two together
    ++at_;
    return next;
  }

  bool is_switch(const std::string& key) const {
    const auto meaning = table_.meaning_of(key);
    return meaning.row != nullptr && meaning.row->type->is_switch;
  }

  /// `--key=value`, `--key value`, `--switch`, `--no-switch`; dashes in a key are underscores.
  void read_dashed(const std::string& argument) {
    const auto start = at_;
    const auto equals = argument.find('=');
    auto key = argument.substr(0, equals);
    std::ranges::replace(key, '-', '_');
    if (equals != std::string::npos) return say(start, key, argument.substr(equals + 1));
    if (is_switch(key)) return say(start, key, next_is_bool() ? *take_next() : "true");
    const auto meaning = table_.meaning_of(key);
    if (meaning.kind == KeyMeaning::Kind::unknown && key.starts_with("no_") && is_switch(key.substr(3)))
      return say(start, key.substr(3), "false");
    const auto value = meaning.row != nullptr || !next_has_equals() ? take_next() : std::nullopt;
    if (meaning.row != nullptr && !value) return complain(start, "needs a value");
    say(start, key, value.value_or(""));
  }

  bool next_is_bool() const { return at_ + 1 < source_->lines.size() && read_bool(source_->lines[at_ + 1]); }
  bool next_has_equals() const {
    return at_ + 1 < source_->lines.size() && source_->lines[at_ + 1].find('=') != std::string::npos;
  }

  void read_plain(const std::string& argument) {
    const auto equals = argument.find('=');
    if (argument.starts_with('~')) return complain(at_, "settings cannot be removed; leave it out, or write key=null");
    if (argument.starts_with('+')) return complain(at_, "settings cannot be added; write key=value without the +");
    if (argument.starts_with('-'))
      return complain(at_, "is no option; settings are written key=value, --help lists them");
    if (equals == std::string::npos || equals == 0)
      return complain(at_, "is no setting; settings are written key=value, --help lists them");
    say(at_, argument.substr(0, equals), argument.substr(equals + 1));
  }

  void say(std::size_t index, const std::string& key, const std::string& text) {
    const ConfigRow* row = table_.meaning_of(key).row;
    const auto brackets = row != nullptr && row->type->takes_list ? Brackets::are_list : Brackets::are_text;
    auto read = read_argument_value(text, brackets, place(index));
    if (!read.problem.empty()) return complain(index, read.problem);
    line_.said.given.push_back(
        {key, std::vector<Position>(path_segments(key).size(), place(index)), std::move(read.value)});
  }

  const ConfigTable& table_;
  std::shared_ptr<ConfigSource> source_ = std::make_shared<ConfigSource>();
  std::size_t at_ = 0;
  ConfigArguments line_;
};

}  // namespace detail

inline ConfigArguments read_arguments(std::span<const char* const> arguments, const ConfigTable& table) {
  return detail::ArgumentsReader{arguments, table}.read();
}

}  // namespace ddpxx
