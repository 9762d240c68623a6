// ddpxx/core/config_record.hpp — a configuration for the record: what a run folder and a snapshot keep of it.
#pragma once

#include <string>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

struct ConfigRecord {
  Settings settings{};      ///< Every value.
  std::string yaml{};       ///< The same as a file that reads back equal, with who set what as comments.
  std::string overrides{};  ///< The arguments that set something, as given but for secrets: a YAML list.
};

}  // namespace ddpxx
