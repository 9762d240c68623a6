// ddpxx/comm/part_ranks.hpp — the ranks of a part of a group learn each other's numbers in the run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddpxx::detail {

/// Returns the numbers, among all ranks of the run, of the `size` ranks that share `store`, in the order of the part.
/// `number` is this rank's number in the run, and `rank` its number in the part.
/// Ranks   Collective.
/// Errors  those of the store, if a rank does not come within its timeout.
inline std::vector<int> part_ranks(c10d::Store& store, int number, int rank, int size) {
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other) keys.push_back("number" + std::to_string(other));
  store.set(keys.at(static_cast<std::size_t>(rank)), std::to_string(number));
  store.wait(keys);
  std::vector<int> numbers;
  for (const auto& value : store.multiGet(keys)) numbers.push_back(std::stoi(std::string{value.begin(), value.end()}));
  return numbers;
}

}  // namespace ddpxx::detail
