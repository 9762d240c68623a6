// ddpxx/config/environment_source.hpp — environment variables as settings: with the prefix `TRAIN_`, the variable
// `TRAIN_OPTIMIZER__LEARNING_RATE=1e-3` says `optimizer.learning_rate`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/config/argument_value.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// The variables of this process, as `NAME=VALUE`.
inline std::span<const char* const> environment_variables() {
  std::size_t count = 0;
  while (::environ != nullptr && ::environ[count] != nullptr) ++count;
  return {::environ, count};
}

/// What the variables say whose names start with the prefix. The rest of a name is a path: in any case, with `__` for
/// the dot. Values are written as on the command line; the table tells which keys take lists.
inline Said read_environment(std::string_view prefix, std::span<const char* const> variables, const ConfigTable& table);

namespace detail {

/// `OPTIMIZER__LEARNING_RATE` as `optimizer.learning_rate`.
inline std::string path_of_variable(std::string_view name) {
  std::string path;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_dot = name.substr(i).starts_with("__");
    path += is_dot ? '.' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (is_dot) ++i;
  }
  return path;
}

inline std::shared_ptr<const ConfigSource> environment_source(std::string_view prefix,
                                                              std::span<const char* const> variables) {
  auto source = std::make_shared<ConfigSource>();
  source->kind = ConfigSource::Kind::environment;
  for (const std::string_view variable : variables)
    if (variable.starts_with(prefix) && variable.find('=', prefix.size()) != std::string_view::npos)
      source->lines.emplace_back(variable);
  std::ranges::sort(source->lines);  // a process has them in no order
  return source;
}

/// What one variable says.
class VariableReader {
 public:
  VariableReader(Said& said, const ConfigTable& table, std::size_t index)
      : said_{said}, table_{table}, place_{said.source, index + 1, 1} {}

  void complain(std::string why) { said_.problems.push_back({place_, "", std::move(why)}); }

  void say(const std::string& path, std::string_view text) {
    const auto meaning = table_.meaning_of(path);
    const bool is_whole_map = meaning.row != nullptr && meaning.row->type->is_map() && !meaning.entry;
    if (is_whole_map && text.starts_with('{')) return say_map(path, text);
    const bool takes_list = meaning.row != nullptr && meaning.row->type->takes_list;
    auto read = read_argument_value(text, takes_list ? Brackets::are_list : Brackets::are_text, place_);
    if (!read.problem.empty()) return complain(read.problem);
    give(path, std::move(read.value));
  }

 private:
  /// The map as it is given, and nothing else in it.
  void say_map(const std::string& path, std::string_view text) {
    auto map = read_argument_map(text, place_);
    if (!map.problem.empty()) return complain(map.problem);
    give(path, {.kind = GivenValue::Kind::group, .place = place_});
    for (auto& [key, value] : map.entries) give(path_in(path, key), std::move(value));
  }

  void give(const std::string& path, GivenValue value) {
    said_.given.push_back(
        {.path = path, .keys = std::vector<Position>(path_segments(path).size(), place_), .value = std::move(value)});
  }

  Said& said_;
  const ConfigTable& table_;
  Position place_;
};

}  // namespace detail

inline Said read_environment(std::string_view prefix, std::span<const char* const> variables,
                             const ConfigTable& table) {
  Said said{.source = detail::environment_source(prefix, variables)};
  std::map<std::string, std::string> names;
  for (std::size_t i = 0; i < said.source->lines.size(); ++i) {
    const std::string_view line = said.source->lines[i];
    detail::VariableReader reader{said, table, i};
    const auto equals = line.find('=');
    const auto name = line.substr(0, equals);
    const auto path = detail::path_of_variable(name.substr(prefix.size()));
    const auto [first, is_new] = names.try_emplace(path, name);
    if (find_malformed_utf8(line) != std::string::npos)
      reader.complain("is not UTF-8");
    else if (!is_new)
      reader.complain("sets " + path + ", as " + first->second + " does; keep one of the two");
    else
      reader.say(path, line.substr(equals + 1));
  }
  return said;
}

}  // namespace ddpxx
