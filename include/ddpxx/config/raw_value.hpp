// ddpxx/config/raw_value.hpp — the value of a key as a source has it, with its position.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ddpxx {

/// A source of settings: a file, the environment or the command line. The lines of the last two are the variables
/// `NAME=VALUE` and the arguments, counted from 1.
struct ConfigSource {
  enum class Kind { file, environment, arguments };
  /// Sources of a higher order override others. The environment comes after all files, the command line after that.
  std::size_t order = 0;
  std::string name{};  ///< The file's path, as messages show it.
  std::vector<std::string> lines{};
  Kind kind = Kind::file;
  std::vector<std::size_t> numbers{};  ///< The numbers of the arguments in messages; empty if they count from 1.

  bool is_command_line() const noexcept { return kind == Kind::arguments; }
  bool is_file() const noexcept { return kind == Kind::file; }
};

/// A line and a column of a source, both from 1; columns count characters. Without a source it means a default.
struct Position {
  std::shared_ptr<const ConfigSource> source;
  std::size_t line = 0;
  std::size_t column = 0;

  bool operator==(const Position&) const = default;
};

/// The value of a key, as the source has it.
struct RawValue {
  enum class Kind { text, list, none, group };
  Kind kind = Kind::none;
  std::string text{};
  bool quoted = false;            ///< The value was in quotes; a quoted `null` is a text.
  std::vector<RawValue> items{};  ///< Items of a list.
  Position place{};
};

}  // namespace ddpxx
