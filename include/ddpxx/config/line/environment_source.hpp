// ddpxx/config/line/environment_source.hpp — reads settings from environment variables: with the prefix `TRAIN_`, the
// variable `TRAIN_OPTIMIZER__LEARNING_RATE=1e-3` sets `optimizer.learning_rate`.
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

#include <ddpxx/config/line/text_setting.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

/// The variables of this process, as `NAME=VALUE`.
inline std::span<const char* const> environment_variables() {
  std::size_t count = 0;
  while (::environ != nullptr && ::environ[count] != nullptr) ++count;
  return {::environ, count};
}

/// The entries of variables whose names start with the prefix. The rest of a name is a path, in upper or lower case,
/// with `__` for a dot. Values are written as on the command line, including maps in braces. Keys that take lists are
/// recognised by the table.
inline SourceEntries read_environment(std::string_view prefix, std::span<const char* const> variables,
                                      const ConfigTable& table);

/// The path of a variable: `optimizer.learning_rate` for `OPTIMIZER__LEARNING_RATE`.
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
  std::ranges::sort(source->lines);  // the environment has no order
  return source;
}

inline SourceEntries read_environment(std::string_view prefix, std::span<const char* const> variables,
                                      const ConfigTable& table) {
  SourceEntries entries{.source = environment_source(prefix, variables)};
  std::map<std::string, std::string> names;
  for (std::size_t i = 0; i < entries.source->lines.size(); ++i) {
    const std::string_view line = entries.source->lines[i];
    const Position place{entries.source, i + 1, 1};
    const auto equals = line.find('=');
    const auto name = line.substr(0, equals);
    const auto path = path_of_variable(name.substr(prefix.size()));
    const auto complain = [&](std::string why) { entries.problems.push_back({place, path, std::move(why)}); };
    const auto [first, is_new] = names.try_emplace(path, name);
    if (find_malformed_utf8(line) != std::string::npos)
      complain("is not UTF-8");
    else if (!is_new)
      complain("sets " + path + ", as " + first->second + " does; keep one of the two");
    else if (auto problem = add_setting(entries, table, path, line.substr(equals + 1), place); !problem.empty())
      complain(std::move(problem));
  }
  return entries;
}

}  // namespace ddpxx::detail
