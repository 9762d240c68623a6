// ddpxx/train/config_hash.hpp — a hash of a configuration, by which runs with equal settings are found.
#pragma once

#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Returns a hash of the settings. It depends on their values, not on the source that set them. Secrets do not change
/// it: a setting only says that there is one.
/// Source  SHA-1, in 40 hexadecimal digits, of the lines `path=value`, each with a line end, in the order of settings.
std::string config_hash(const Settings& settings);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/config_hash_inl.hpp>
#endif
