// ddpxx/version.hpp — which ddpxx this is. The build checks the numbers against the project's version.
#pragma once

namespace ddpxx {

struct Version {
  int major;
  int minor;
  int patch;
};

inline constexpr Version kVersion{.major = 0, .minor = 1, .patch = 0};

}  // namespace ddpxx
