// tests/count_of.hpp — counts how often one text occurs in another.
#pragma once

#include <cstddef>
#include <string>

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
