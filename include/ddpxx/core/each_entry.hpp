// ddpxx/core/each_entry.hpp — visits the entries of a folder without exceptions for what the system refuses.
#pragma once

#include <filesystem>
#include <system_error>

namespace ddpxx::detail {

/// Calls `visit_entry` for each entry of the folder. Returns the error that ended this early, if any. A range-based
/// loop over a std::filesystem::directory_iterator throws where the system fails to read the next entry.
template <class Visit>
std::error_code each_entry(const std::filesystem::path& folder, Visit&& visit_entry) {
  std::error_code error;
  std::filesystem::directory_iterator entries{folder, error};
  for (; !error && entries != std::filesystem::directory_iterator{}; entries.increment(error)) visit_entry(*entries);
  return error;
}

}  // namespace ddpxx::detail
