// argument_numbers.hpp — the numbers of a command's arguments in messages.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

/// The numbers of the arguments behind argv[0] of a command, as parse_config takes them: those on the command line of
/// ddpxx, where the first of them has the number `first`.
inline std::vector<std::size_t> argument_numbers(std::size_t first, int argc) {
  std::vector<std::size_t> numbers(argc > 1 ? static_cast<std::size_t>(argc) - 1 : 0);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}
