// ddpxx/core/setting.hpp — one configuration value as text: what a snapshot records and a resumed run compares.
#pragma once

#include <string>
#include <vector>

#include <ddpxx/core/inline.hpp>

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

/// A value as messages show it: a long one by its beginning, its length and a checksum, so that two that differ are
/// told apart.
std::string shortened(const std::string& value);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/core/setting_inl.hpp>
#endif
