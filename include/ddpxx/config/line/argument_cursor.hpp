// ddpxx/config/line/argument_cursor.hpp — walks over the arguments of a command line, joins an argument to a value that
// follows it, and records the problems of arguments.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

inline bool names_config_file(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json") || word.ends_with(".py");
}

/// A position among the arguments of a command line. Indices count them from 0.
class ArgumentCursor {
 public:
  /// `entries` gets the arguments as its source, and their problems; it must outlive the cursor. `numbers` are those of
  /// the arguments in messages, from 1 if it is empty.
  ArgumentCursor(std::span<const char* const> arguments, std::vector<std::size_t> numbers, SourceEntries& entries)
      : entries_{entries} {
    source_->kind = ConfigSource::Kind::arguments;
    source_->numbers = std::move(numbers);
    for (const char* argument : arguments) source_->lines.emplace_back(argument);
    entries_.source = source_;
  }

  bool is_at_end() const { return at_ == source_->lines.size(); }
  void advance() { ++at_; }
  std::size_t index() const { return at_; }
  /// The argument at an index, with the arguments that were joined to it.
  const std::string& argument(std::size_t index) const { return source_->lines[index]; }
  const std::string& argument() const { return argument(at_); }
  Position place(std::size_t index) const { return {source_, index + 1, 1}; }
  Position place() const { return place(at_); }

  bool has_next() const { return at_ + 1 < source_->lines.size(); }
  /// The argument that follows; there must be one.
  const std::string& next() const { return source_->lines[at_ + 1]; }
  bool next_has_equals() const { return has_next() && next().find('=') != std::string::npos; }
  bool next_is_bool() const { return has_next() && read_bool(next()); }
  bool next_is_config_file() const { return has_next() && names_config_file(next()); }

  /// Adds this argument to the text of an earlier one, so that messages show both.
  void join_to(std::size_t index) { source_->lines[index] += ' ' + source_->lines[at_]; }

  /// Takes the next argument as the value of this one; none if there is no suitable argument.
  std::optional<std::string> take_next() {
    if (!has_next()) return std::nullopt;
    const std::string value = next();
    const bool negative_number = value.size() > 1 && (value[1] == '.' || (value[1] >= '0' && value[1] <= '9'));
    if (value.starts_with('-') && !negative_number) return std::nullopt;
    const auto start = at_;
    advance();
    join_to(start);
    if (find_malformed_utf8(value) != std::string::npos) complain(start, "is not UTF-8");
    return value;
  }

  /// Records a problem of the argument at an index.
  void complain(std::size_t index, std::string why) { entries_.problems.push_back({place(index), "", std::move(why)}); }
  void complain(std::string why) { complain(at_, std::move(why)); }

 private:
  SourceEntries& entries_;
  std::shared_ptr<ConfigSource> source_ = std::make_shared<ConfigSource>();
  std::size_t at_ = 0;
};

}  // namespace ddpxx::detail
