// ddpxx/core/setting.hpp — one configuration value as text: what a snapshot records and a resumed run compares.
#pragma once

#include <string>
#include <vector>

namespace ddpxx {

/// What a resumed run does when a setting differs from the one in the snapshot.
enum class Resume { must_match, warn, free };

struct Setting {
  std::string path;   ///< As on the command line: `optimizer.learning_rate`.
  std::string value;  ///< As the configuration prints it.
  Resume resume = Resume::warn;
  std::string origin{};  ///< Who set it and what that overrode: `argument 2; overrides train.yaml:12:7 (0.001); ...`.
};

using Settings = std::vector<Setting>;

}  // namespace ddpxx
