// ddpxx/observe/short_text.hpp — counts and durations as a line on a terminal shows them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace ddpxx {

/// What printf makes of a few numbers; at most 63 characters.
inline std::string formatted(const char* format, auto... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

/// Three digits and a letter: 87, 412k, 1.25M.
inline std::string short_count(double value, double unit, std::string_view letters) {
  std::size_t letter = 0;
  for (; value >= unit * 0.9995 && letter + 1 < letters.size(); ++letter) value /= unit;
  const char* format = letter == 0 || value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f";
  return formatted(format, value) + (letter == 0 ? "" : std::string{letters[letter]});
}

/// 45s, 12m05s, 3h12m, 2d03h.
inline std::string short_duration(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const long long whole = std::llround(seconds);
  if (whole < 60) return formatted("%llds", whole);
  if (whole < 3'600) return formatted("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86'400) return formatted("%lldh%02lldm", whole / 3'600, whole % 3'600 / 60);
  return formatted("%lldd%02lldh", whole / 86'400, whole % 86'400 / 3'600);
}

/// `1 rank`, `2 ranks`.
inline std::string counted(long long count, std::string_view thing) {
  return std::to_string(count) + ' ' + std::string{thing} + (count == 1 ? "" : "s");
}

}  // namespace ddpxx
