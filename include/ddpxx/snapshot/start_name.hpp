// ddpxx/snapshot/start_name.hpp — the name of one start of a program, by which its files are told from all others.
#pragma once

#include <random>
#include <string>

namespace ddpxx {

/// Twelve hexadecimal digits, drawn anew at each call.
inline std::string draw_start_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 12; ++i) name += "0123456789abcdef"[random() & 0xFU];
  return name;
}

}  // namespace ddpxx
