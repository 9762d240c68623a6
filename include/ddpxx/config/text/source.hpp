// ddpxx/config/text/source.hpp — where settings come from, and what a source says: paths with texts, each with its
// place.
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

/// A file; or the environment, or the command line, each as a whole: their lines are the variables `NAME=VALUE` and
/// the arguments, counted from 1.
struct ConfigSource {
  enum class Kind { file, environment, arguments };
  /// Later sources have the last word. The environment comes after all files, the command line after that.
  std::size_t order = 0;
  std::string name{};  ///< The file's path as it is shown.
  std::vector<std::string> lines{};
  Kind kind = Kind::file;

  bool is_command_line() const noexcept { return kind == Kind::arguments; }
  bool is_file() const noexcept { return kind == Kind::file; }
};

/// A line and a column of a source, both from 1; columns count characters. Without a source: a default.
struct Position {
  std::shared_ptr<const ConfigSource> source;
  std::size_t line = 0;
  std::size_t column = 0;

  bool operator==(const Position&) const = default;
};

/// A text as a message shows it: in quotes, on one line, not too long.
inline std::string shown(std::string_view text, std::size_t most_characters = 60) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < most_characters; ++count)
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  return '"' + harmless(text.substr(0, end)) + (end < text.size() ? "..." : "") + '"';
}

/// `train.yaml:12:7`, `environment variable TRAIN_SEED: "x"`, `argument 3: "model.n_layer=x"` or `default`.
inline std::string to_text(const Position& place) {
  constexpr std::size_t kLongestLine = 300;
  if (!place.source) return "default";
  const auto& [order, name, lines, kind] = *place.source;
  const auto number = std::to_string(place.line);
  if (place.source->is_file()) return name + ':' + number + ':' + std::to_string(place.column);
  const std::string_view line{place.line >= 1 && place.line <= lines.size() ? std::string_view{lines[place.line - 1]}
                                                                            : ""};
  if (kind != ConfigSource::Kind::environment) return "argument " + number + ": " + shown(line, kLongestLine);
  const auto equals = std::min(line.find('='), line.size());
  return "environment variable " + harmless(line.substr(0, equals)) + ": " +
         shown(line.substr(std::min(equals + 1, line.size())), kLongestLine);
}

/// True where the text of the place does not say which key it is about: it names a place in a file, or none, or an
/// argument that is a value alone. Arguments and variables are quoted whole, and with that their keys.
inline bool leaves_key_open(const Position& place) {
  if (!place.source || place.source->is_file()) return true;
  if (!place.source->is_command_line() || place.line == 0 || place.line > place.source->lines.size()) return false;
  const auto& argument = place.source->lines[place.line - 1];
  return argument.find('=') == std::string::npos && argument.find_first_of("-+~") != 0;
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
  bool removes = false;       ///< Said as `~path`: takes an entry out of a map.
  Translation translation{};  ///< What the alias made of the value: told if no later source says something else.
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
  std::vector<ConfigProblem> notices{};  ///< What is accepted, and should be known all the same.
};

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

/// More problems than a person wants to read.
inline constexpr std::size_t kMostProblems = 100;

/// The problems in the order in which a person wants to read them: by source and place, rules over defaults last.
inline std::vector<ConfigProblem> sorted(std::vector<ConfigProblem> problems) {
  const auto rank = [](const ConfigProblem& problem) {
    const auto& [source, line, column] = problem.place;
    const int kind = !source ? 3 : source->is_command_line() ? 2 : source->is_file() ? 0 : 1;
    return std::make_tuple(kind, source ? source->order : 0, line, column);
  };
  std::ranges::stable_sort(problems, {}, rank);
  return problems;
}

/// All problems, one after the other in the order of their places; those of a file with the line and a caret.
inline std::string problem_report(std::vector<ConfigProblem> problems) {
  problems = sorted(std::move(problems));
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i)
    text += (i == 0 ? "" : "\n") + detail::to_text(problems[i]);
  if (problems.size() > kMostProblems) text += "\nand " + std::to_string(problems.size() - kMostProblems) + " more";
  return text;
}

}  // namespace ddpxx
