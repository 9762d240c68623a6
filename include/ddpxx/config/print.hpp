// ddpxx/config/print.hpp — a config as YAML that reads back equal, and as settings for a snapshot.
#pragma once

#include <functional>
#include <string>

#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// The active values as YAML, each written by `value_of(row)`, which may end in a comment. Secrets are left out:
/// a program that reads the text has to get them elsewhere.
std::string print_yaml(const ConfigTable& table, const void* config,
                       const std::function<std::string(const ConfigRow&)>& value_of);
std::string print_yaml(const ConfigTable& table, const void* config);

Settings settings_of(const ConfigTable& table, const void* config);

/// The whole config as YAML; every text is in quotes, so that every reader takes it for a text.
template <ConfigStruct Config>
std::string print_yaml(const Config& config) {
  return print_yaml(table_of<Config>(), &config);
}

/// Every value with its path, as a snapshot records it and a resumed run compares it.
template <ConfigStruct Config>
Settings settings_of(const Config& config) {
  return settings_of(table_of<Config>(), &config);
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/print_inl.hpp>
#endif
