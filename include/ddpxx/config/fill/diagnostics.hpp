// ddpxx/config/fill/diagnostics.hpp — the problems of a configuration, and the notices about it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// The problems of a configuration, and the notices about it.
struct Diagnostics {
  std::vector<ConfigProblem> problems{};
  std::vector<ConfigProblem> notices{};
  std::vector<std::string> invalid{};  ///< Paths of values and groups that cannot be checked any further.
  bool is_all_invalid = false;

  /// Adds a problem, after which the value or the group at `canonical` is not checked any further.
  void complain(ConfigProblem problem, std::string canonical) {
    invalid.push_back(std::move(canonical));
    problems.push_back(std::move(problem));
  }
};

}  // namespace ddpxx::detail
