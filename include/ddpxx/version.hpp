// ddpxx/version.hpp — which ddpxx this is. The build checks the numbers against the project's version.
#pragma once

#include <string>

namespace ddpxx {

struct Version {
  int major;
  int minor;
  int patch;
};

inline constexpr Version kVersion{.major = 0, .minor = 1, .patch = 0};

/// `ddpxx 0.1.0`: what a program prints for `--version`, without the end of the line.
inline std::string version_line() {
  return "ddpxx " + std::to_string(kVersion.major) + '.' + std::to_string(kVersion.minor) + '.' +
         std::to_string(kVersion.patch);
}

}  // namespace ddpxx
