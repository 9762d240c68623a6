// ddpxx/train/config_hash_inl.hpp — definitions of config_hash.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <string>

#include <c10/util/hash.h>

#include <ddpxx/core/setting.hpp>
#include <ddpxx/train/config_hash.hpp>

namespace ddpxx {

DDPXX_INLINE std::string config_hash(const Settings& settings) {
  std::string lines;
  for (const auto& setting : settings) lines += setting.path + '=' + setting.value + '\n';
  return c10::sha1(lines).str();
}

}  // namespace ddpxx
