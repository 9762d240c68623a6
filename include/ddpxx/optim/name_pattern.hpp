// ddpxx/optim/name_pattern.hpp — patterns that choose parameters by their names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fnmatch.h>
#include <string>
#include <string_view>
#include <vector>

namespace ddpxx {

/// Whether a name matches a pattern of fnmatch(3), in which `*` and `?` also stand for dots.
inline bool matches_pattern(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

/// Letters to insert, delete or replace in a pattern until it matches `name`, where `*` and `?` match as they do in
/// matches_pattern().
inline std::size_t pattern_distance(std::string_view pattern, std::string_view name) {
  std::vector<std::size_t> last(name.size() + 1), row(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) last[j] = j;
  for (const char letter : pattern) {
    const bool is_star = letter == '*';
    row[0] = last[0] + (is_star ? 0 : 1);
    for (std::size_t j = 1; j <= name.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (letter == name[j - 1] || letter == '?' ? 0 : 1);
      row[j] = is_star ? std::min(last[j], row[j - 1]) : std::min({last[j] + 1, row[j - 1] + 1, replaced});
    }
    last.swap(row);
  }
  return last[name.size()];
}

/// Up to `count` of the names, those first that the pattern is nearest to matching.
inline std::vector<std::string> nearest_names(std::string_view pattern, std::vector<std::string> names,
                                              std::size_t count) {
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return pattern_distance(pattern, name); });
  if (names.size() > count) names.resize(count);
  return names;
}

}  // namespace ddpxx
