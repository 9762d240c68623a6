// ddpxx/snapshot/start_name.hpp — the name of one start of a program, which tells its files from those of other starts.
#pragma once

#include <random>
#include <string>

namespace ddpxx {

/// Returns twelve random hexadecimal digits.
inline std::string draw_start_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 12; ++i) name += "0123456789abcdef"[random() & 0xFU];
  return name;
}

}  // namespace ddpxx
