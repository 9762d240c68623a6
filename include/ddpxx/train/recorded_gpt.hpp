// ddpxx/train/recorded_gpt.hpp — reads the network of a run from the settings that its snapshots record.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/nn/gpt_config.hpp>

namespace ddpxx {

namespace detail {

/// The part of a run's config that describes the network.
struct RecordedNetwork {
  GPTConfig model;

  static constexpr auto describe() { return fields(field<&RecordedNetwork::model>("The network")); }
};

}  // namespace detail

/// The GPT of a run whose config has a GPTConfig under `model`, as that of mingpt. None if the settings do not have its
/// number of heads: then the run was not one of a GPT.
/// Errors  `config` for values that a GPTConfig cannot have.
inline std::optional<GPTConfig> recorded_gpt(Settings settings) {
  std::erase_if(settings, [](const auto& setting) { return !setting.path.starts_with("model."); });
  if (std::ranges::find(settings, "model.n_head", &Setting::path) == settings.end()) return std::nullopt;
  constexpr std::array kNoArguments{"program"};
  return parse_config<detail::RecordedNetwork>(1, kNoArguments.data(), {},
                                               [&](const auto&) {
                                                 return RecordedSettings{settings, "the snapshot"};
                                               })
      .model;
}

}  // namespace ddpxx
