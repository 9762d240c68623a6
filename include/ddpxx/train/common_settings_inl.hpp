// ddpxx/train/common_settings_inl.hpp — definitions of common_settings.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <ddpxx/core/setting.hpp>
#include <ddpxx/train/common_settings.hpp>

namespace ddpxx {

DDPXX_INLINE Settings detail::common_of_all(Settings common, const Settings& of_data, const Settings& recorded) {
  constexpr std::array<std::string_view, 6> kOwn{"training.metrics", "training.csv",      "training.tensorboard",
                                                 "training.device",  "training.max_time", "training.save_every_time"};
  std::erase_if(common, [&](const Setting& setting) { return std::ranges::find(kOwn, setting.path) != kOwn.end(); });
  Settings others = of_data;
  for (const auto& setting : recorded)
    if (setting.resume != Resume::free && std::ranges::find(common, setting.path, &Setting::path) == common.end())
      others.push_back(setting);
  for (const auto& setting : others) common.push_back({setting.path, shortened(setting.value)});
  return common;
}

}  // namespace ddpxx
