// ddpxx/config/text/path.hpp — paths of settings: `optimizer.learning_rate`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddpxx {

/// Splits `a.b.c`.
inline std::vector<std::string> path_segments(std::string_view path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// Joins the first `count` segments into a path.
inline std::string path_of(const std::vector<std::string>& parts, std::size_t count) {
  std::string path;
  for (std::size_t i = 0; i < count; ++i) path += (i == 0 ? "" : ".") + parts[i];
  return path;
}

/// `group.name`; the name alone at the top level.
inline std::string path_in(std::string_view group, std::string_view name) {
  return group.empty() ? std::string{name} : std::string{group} + '.' + std::string{name};
}

/// The group that holds `path`; empty at the top level.
inline std::string_view group_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return path.substr(0, dot == std::string_view::npos ? 0 : dot);
}

/// The last segment.
inline std::string_view name_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

/// True for `path` itself and for everything in it.
inline bool lies_in(std::string_view path, std::string_view group) {
  return group.empty() || (path.starts_with(group) && (path.size() == group.size() || path[group.size()] == '.'));
}

}  // namespace ddpxx
