// ddpxx/core/number_list.hpp — numbers of ranks or nodes as a short text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddpxx {

/// The ascending numbers as text, such as "1, 2, 5-9". A long list is shortened.
inline std::string number_list(const std::vector<int>& numbers) {
  constexpr int kMaxParts = 20;
  std::string text;
  int parts = 0;
  for (std::size_t first = 0; first < numbers.size();) {
    if (parts++ == kMaxParts) return text + " and " + std::to_string(numbers.size() - first) + " more";
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last == first + 1) last = first;  // writes "1, 2" instead of "1-2"
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[first]);
    if (last > first) text += '-' + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace ddpxx
