// ddpxx/config/text/source.hpp — the entries of a source of settings, which are paths with values and positions, and
// the problems that were found in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

/// `train.yaml:12:7`, `environment variable TRAIN_SEED: "x"`, `argument 3: "model.n_layer=x"` or `default`.
inline std::string to_text(const Position& place) {
  constexpr std::size_t kMaxLine = 300;
  if (!place.source) return "default";
  const auto& [order, name, lines, kind, numbers] = *place.source;
  if (place.source->is_file()) return name + ':' + std::to_string(place.line) + ':' + std::to_string(place.column);
  const std::string_view line{place.line >= 1 && place.line <= lines.size() ? std::string_view{lines[place.line - 1]}
                                                                            : ""};
  if (kind != ConfigSource::Kind::environment) {
    const auto number = place.line >= 1 && place.line <= numbers.size() ? numbers[place.line - 1] : place.line;
    return "argument " + std::to_string(number) + ": " + shown(line, kMaxLine);
  }
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

/// One entry of a source. An empty group is an entry with a value of kind `group`.
struct SourceEntry {
  std::string path;            ///< As written, such as `training.learning_rate`.
  std::vector<Position> keys;  ///< The position of each segment of the path.
  RawValue value;
  bool removes = false;  ///< Written as `~path`: removes an entry from a map.
  /// Converts the value of an alias, after its references are resolved; null if the value is taken as it is.
  Translation (*translate)(std::string_view value) = nullptr;
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
  std::string text = to_text(problem.place) + ": ";
  if (!problem.path.empty() && leaves_key_open(problem.place)) text += harmless(problem.path) + ": ";
  text += problem.text;
  if (in_file) text += excerpt(problem.place);
  return text;
}

/// Maximum number of problems, or of notices, in a report.
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
    text += (i == 0 ? "" : "\n") + to_text(problems[i]);
  if (problems.size() > kMaxProblems) text += "\nand " + std::to_string(problems.size() - kMaxProblems) + " more";
  return text;
}

}  // namespace ddpxx::detail
