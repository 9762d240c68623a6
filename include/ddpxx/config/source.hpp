// ddpxx/config/source.hpp — where settings come from, and what a source says: paths with texts, each with its place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// A file, or the command line as a whole: its lines are the arguments, counted from 1.
struct ConfigSource {
  static constexpr std::size_t kCommandLine = std::numeric_limits<std::size_t>::max();

  std::size_t order = 0;  ///< Later sources have the last word; the command line comes after all files.
  std::string name;       ///< The file's path as it is shown.
  std::vector<std::string> lines;

  bool is_command_line() const noexcept { return order == kCommandLine; }
};

/// A line and a column of a source, both from 1; columns count characters. Without a source: a default.
struct Position {
  std::shared_ptr<const ConfigSource> source;
  std::size_t line = 0;
  std::size_t column = 0;

  bool operator==(const Position&) const = default;
};

/// `train.yaml:12:7` or `argument 3: "model.n_layer=x"` or `default`.
inline std::string to_text(const Position& place) {
  if (!place.source) return "default";
  const auto line = std::to_string(place.line);
  if (!place.source->is_command_line()) return place.source->name + ':' + line + ':' + std::to_string(place.column);
  const bool known = place.line >= 1 && place.line <= place.source->lines.size();
  return "argument " + line + ": \"" + (known ? harmless(place.source->lines[place.line - 1]) : "") + '"';
}

/// What stands behind a key.
struct GivenValue {
  enum class Kind { text, list, none, group };
  Kind kind = Kind::none;
  std::string text{};
  bool quoted = false;              ///< A quoted `null` is a text.
  std::vector<GivenValue> items{};  ///< Of a list.
  Position place{};
};

/// One thing that a source says. An empty group is said as a value of kind `group`.
struct Given {
  std::string path;            ///< As written: `training.learning_rate`.
  std::vector<Position> keys;  ///< The place of each segment of the path.
  GivenValue value;
};

/// Something that a person has to put right, and where.
struct ConfigProblem {
  Position place{};
  std::string path{};
  std::string text{};
};

/// What one source says, and what is wrong with it as it stands.
struct Said {
  std::shared_ptr<const ConfigSource> source;
  std::vector<Given> given{};
  std::vector<ConfigProblem> problems{};
};

/// A text as a message shows it: in quotes, on one line, not too long.
inline std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < kMost; ++count)
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  return '"' + harmless(text.substr(0, end)) + (end < text.size() ? "..." : "") + '"';
}

namespace detail {

/// The line of the place with a caret under its column; a long line is cut around it.
inline std::string excerpt(const Position& place) {
  constexpr std::size_t kBefore = 80, kAfter = 40;
  if (place.line == 0 || place.line > place.source->lines.size()) return {};
  const std::string& line = place.source->lines[place.line - 1];
  std::string shown_line, caret;
  std::size_t column = 1;
  for (std::string_view rest = line; !rest.empty(); ++column) {
    const auto character = rest.substr(0, std::max<std::size_t>(1, utf8_length(rest)));
    rest.remove_prefix(character.size());
    if (column + kBefore < place.column || column > place.column + kAfter) continue;
    const auto visible = character == "\t" ? " " : harmless(character);
    shown_line += visible;
    if (column < place.column) caret.append(count_characters(visible), ' ');
  }
  return "\n    " + shown_line + "\n    " + caret + '^';
}

inline std::string to_text(const ConfigProblem& problem) {
  const bool in_file = problem.place.source && !problem.place.source->is_command_line();
  std::string text = ddpxx::to_text(problem.place) + ": ";
  // An argument is quoted whole, which names the key.
  if (!problem.path.empty() && (!problem.place.source || in_file)) text += harmless(problem.path) + ": ";
  text += problem.text;
  if (in_file) text += excerpt(problem.place);
  return text;
}

}  // namespace detail

/// More problems than a person wants to read.
inline constexpr std::size_t kMostProblems = 100;

/// All problems, one after the other in the order of their places; those of a file with the line and a caret.
inline std::string problem_report(std::vector<ConfigProblem> problems) {
  const auto rank = [](const ConfigProblem& problem) {
    const auto& place = problem.place;
    return std::make_tuple(!place.source, place.source ? place.source->order : 0, place.line, place.column);
  };
  std::ranges::stable_sort(problems, {}, rank);
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i)
    text += (i == 0 ? "" : "\n") + detail::to_text(problems[i]);
  if (problems.size() > kMostProblems) text += "\nand " + std::to_string(problems.size() - kMostProblems) + " more";
  return text;
}

}  // namespace ddpxx
