// ddpxx/config/text/source.hpp — the sources of settings, and the entries that each has: paths with values and
// positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/utf8.hpp>

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

/// A text for a message: in quotes, on one line, cut to `most_characters`.
inline std::string shown(std::string_view text, std::size_t most_characters = 60) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < most_characters; ++count)
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  return '"' + harmless(text.substr(0, end)) + (end < text.size() ? "..." : "") + '"';
}

/// `train.yaml:12:7`, `environment variable TRAIN_SEED: "x"`, `argument 3: "model.n_layer=x"` or `default`.
inline std::string to_text(const Position& place) {
  constexpr std::size_t kMaxLine = 300;
  if (!place.source) return "default";
  const auto& [order, name, lines, kind] = *place.source;
  const auto number = std::to_string(place.line);
  if (place.source->is_file()) return name + ':' + number + ':' + std::to_string(place.column);
  const std::string_view line{place.line >= 1 && place.line <= lines.size() ? std::string_view{lines[place.line - 1]}
                                                                            : ""};
  if (kind != ConfigSource::Kind::environment) return "argument " + number + ": " + shown(line, kMaxLine);
  const auto equals = std::min(line.find('='), line.size());
  return "environment variable " + harmless(line.substr(0, equals)) + ": " +
         shown(line.substr(std::min(equals + 1, line.size())), kMaxLine);
}

/// True if the text of the position does not show the key: it names a position in a file, a default, or an argument
/// that is only a value. Other arguments and variables are quoted whole, with their keys.
inline bool leaves_key_open(const Position& place) {
  if (!place.source || place.source->is_file()) return true;
  if (!place.source->is_command_line() || place.line == 0 || place.line > place.source->lines.size()) return false;
  const auto& argument = place.source->lines[place.line - 1];
  return argument.find('=') == std::string::npos && argument.find_first_of("-+~") != 0;
}

/// The value of a key, as the source has it.
struct RawValue {
  enum class Kind { text, list, none, group };
  Kind kind = Kind::none;
  std::string text{};
  bool quoted = false;            ///< The value was in quotes; a quoted `null` is a text.
  std::vector<RawValue> items{};  ///< Items of a list.
  Position place{};
};

/// One entry of a source. An empty group is an entry with a value of kind `group`.
struct SourceEntry {
  std::string path;            ///< As written, such as `training.learning_rate`.
  std::vector<Position> keys;  ///< The position of each segment of the path.
  RawValue value;
  bool removes = false;       ///< Written as `~path`: removes an entry from a map.
  Translation translation{};  ///< How an alias has changed the value; reported unless a later source overrides it.
};

/// A problem that the user must fix, and its position.
struct ConfigProblem {
  Position place{};
  std::string path{};
  std::string text{};
};

/// The entries of one source, and the problems found while it was read.
struct SourceEntries {
  std::shared_ptr<const ConfigSource> source;
  std::vector<SourceEntry> list{};
  std::vector<ConfigProblem> problems{};
  std::vector<ConfigProblem> notices{};  ///< Messages about accepted entries.
};

namespace detail {

/// The line of the position with a caret under its column; a long line is cut around the column.
inline std::string excerpt(const Position& place) {
  constexpr std::size_t kBefore = 80, kAfter = 40;
  if (place.line == 0 || place.line > place.source->lines.size()) return {};
  const std::string& line = place.source->lines[place.line - 1];
  std::string shown_line, caret;
  std::size_t column = 1;
  for (std::string_view rest = line; !rest.empty(); ++column) {
    const auto character = rest.substr(0, std::max<std::size_t>(1, utf8_length(rest)));
    rest.remove_prefix(character.size());
    if (column > place.column + kAfter) break;
    if (column + kBefore < place.column) continue;
    const auto visible = character == "\t" ? " " : harmless(character);
    shown_line += visible;
    if (column < place.column) caret.append(count_characters(visible), ' ');
  }
  return "\n    " + shown_line + "\n    " + caret + '^';
}

inline std::string to_text(const ConfigProblem& problem) {
  const bool in_file = problem.place.source && problem.place.source->is_file();
  std::string text = ddpxx::to_text(problem.place) + ": ";
  if (!problem.path.empty() && leaves_key_open(problem.place)) text += harmless(problem.path) + ": ";
  text += problem.text;
  if (in_file) text += excerpt(problem.place);
  return text;
}

}  // namespace detail

/// Maximum number of problems in a report.
inline constexpr std::size_t kMaxProblems = 100;

/// The problems ordered by source and position; problems about defaults come last.
inline std::vector<ConfigProblem> sorted(std::vector<ConfigProblem> problems) {
  const auto rank = [](const ConfigProblem& problem) {
    const auto& [source, line, column] = problem.place;
    const int kind = !source ? 3 : source->is_command_line() ? 2 : source->is_file() ? 0 : 1;
    return std::make_tuple(kind, source ? source->order : 0, line, column);
  };
  std::ranges::stable_sort(problems, {}, rank);
  return problems;
}

/// The text of all problems in the order of their positions; those of a file show the line with a caret.
inline std::string problem_report(std::vector<ConfigProblem> problems) {
  problems = sorted(std::move(problems));
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i)
    text += (i == 0 ? "" : "\n") + detail::to_text(problems[i]);
  if (problems.size() > kMaxProblems) text += "\nand " + std::to_string(problems.size() - kMaxProblems) + " more";
  return text;
}

}  // namespace ddpxx
