// ddpxx/train/recorded_settings_inl.hpp — definitions of recorded_settings.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <vector>

#include <ddpxx/config/part_settings.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/train/recorded_settings.hpp>

namespace ddpxx {

DDPXX_INLINE Settings unrecorded_groups(const ParameterGroupsConfig& groups, const Settings& recorded) {
  if (groups == ParameterGroupsConfig{}) return {};
  auto settings = part_settings(groups, "parameter_groups");
  std::erase_if(settings, [&](const Setting& setting) {
    return std::ranges::find(recorded, setting.path, &Setting::path) != recorded.end();
  });
  return settings;
}

}  // namespace ddpxx
