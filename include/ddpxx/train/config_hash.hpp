// ddpxx/train/config_hash.hpp — a short name for a configuration, by which runs of equal settings are found.
#pragma once

#include <string>

#include <c10/util/hash.h>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// A name for the settings: equal for equal values, whoever set them. No secret is part of it, since settings only say
/// that there is one.
/// Source  SHA-1, in 40 hexadecimal digits, of the lines `path=value`, each with a line end, in the order of settings.
inline std::string config_hash(const Settings& settings) {
  std::string lines;
  for (const auto& setting : settings) lines += setting.path + '=' + setting.value + '\n';
  return c10::sha1(lines).str();
}

}  // namespace ddpxx
