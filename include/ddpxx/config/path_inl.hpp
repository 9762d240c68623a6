// ddpxx/config/path_inl.hpp — the functions of path.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE std::vector<std::string> path_segments(std::string_view path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

DDPXX_INLINE std::string path_of(const std::vector<std::string>& parts, std::size_t count) {
  std::string path;
  for (std::size_t i = 0; i < count; ++i) path += (i == 0 ? "" : ".") + parts[i];
  return path;
}

DDPXX_INLINE std::string path_in(std::string_view group, std::string_view name) {
  return group.empty() ? std::string{name} : std::string{group} + '.' + std::string{name};
}

DDPXX_INLINE std::string_view group_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return path.substr(0, dot == std::string_view::npos ? 0 : dot);
}

DDPXX_INLINE std::string_view name_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

DDPXX_INLINE bool lies_in(std::string_view path, std::string_view group) {
  return group.empty() || (path.starts_with(group) && (path.size() == group.size() || path[group.size()] == '.'));
}

}  // namespace ddpxx
