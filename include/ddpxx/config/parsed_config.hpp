// ddpxx/config/parsed_config.hpp — a config, and how it came about.
#pragma once

#include <ddpxx/core/config_record.hpp>

namespace ddpxx {

template <class Config>
struct ParsedConfig {
  Config config{};
  ConfigRecord record{};  ///< For a run folder and for snapshots.
};

}  // namespace ddpxx
