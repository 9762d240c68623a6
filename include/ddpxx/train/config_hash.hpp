// ddpxx/train/config_hash.hpp — a hash of a configuration, by which runs with equal settings are found.
#pragma once

#include <string>

#include <c10/util/hash.h>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Returns a hash of the settings. It depends on their values, not on the source that set them. Secrets do not change
/// it: a setting only says that there is one.
/// Source  SHA-1, in 40 hexadecimal digits, of the lines `path=value`, each with a line end, in the order of settings.
inline std::string config_hash(const Settings& settings) {
  std::string lines;
  for (const auto& setting : settings) lines += setting.path + '=' + setting.value + '\n';
  return c10::sha1(lines).str();
}

}  // namespace ddpxx
