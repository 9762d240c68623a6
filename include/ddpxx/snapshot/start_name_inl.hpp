// ddpxx/snapshot/start_name_inl.hpp — the definitions of start_name.hpp.
#pragma once

#include <random>
#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/start_name.hpp>

namespace ddpxx {

DDPXX_INLINE std::string draw_start_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 12; ++i) name += "0123456789abcdef"[random() & 0xFU];
  return name;
}

}  // namespace ddpxx
