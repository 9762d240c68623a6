// ddpxx/config/parsed_config.hpp — a config, and the record of its sources.
#pragma once

#include <ddpxx/core/config_record.hpp>

namespace ddpxx {

template <class Config>
struct ParsedConfig {
  Config config{};
  ConfigRecord record{};  ///< Values with their sources, for a run folder and snapshots.
};

}  // namespace ddpxx
