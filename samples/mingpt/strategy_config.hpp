// strategy_config.hpp — the strategies that mingpt is compiled with, chosen by name.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <variant>

#include <ddpxx/parallel/data_parallel_config.hpp>
#include <ddpxx/parallel/ddp_config.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/recompute_config.hpp>
#include <ddpxx/parallel/single_device_config.hpp>
#include <ddpxx/parallel/zero_config.hpp>

/// The settings of the chosen strategy; only its keys are accepted below `strategy`.
using StrategyConfig = std::variant<ddpxx::SingleDeviceConfig, ddpxx::DataParallelConfig, ddpxx::DDPConfig,
                                    ddpxx::ZeROConfig, ddpxx::ZeROConfig, ddpxx::FSDPConfig, ddpxx::HSDPConfig>;
/// The alternatives of StrategyConfig.
enum StrategyIndex : std::size_t { kSingle, kDP, kDDP, kZeRO1, kZeRO2, kFSDP, kHSDP };
inline constexpr std::array kStrategyNames{"single", "dp", "ddp", "zero1", "zero2", "fsdp", "hsdp"};
static_assert(kStrategyNames.size() == std::variant_size_v<StrategyConfig>);

inline const char* name_of(const StrategyConfig& strategy) { return kStrategyNames[strategy.index()]; }

/// Reads none, all, every:K, segments:K or selective; for any other text it returns no config.
inline std::optional<ddpxx::RecomputeConfig> read_recompute(std::string_view text) {
  using Policy = ddpxx::RecomputeConfig::Policy;
  const auto colon = text.find(':');
  const auto word = text.substr(0, colon);
  std::int64_t count = 1;
  if (colon != std::string_view::npos) {
    const auto* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, count);
    if (error != std::errc{} || stop != end || count < 1) return std::nullopt;
    if (word == "every") return ddpxx::RecomputeConfig{.policy = Policy::every, .count = count};
    if (word == "segments") return ddpxx::RecomputeConfig{.policy = Policy::segments, .count = count};
    return std::nullopt;
  }
  if (word == "none") return ddpxx::RecomputeConfig{.policy = Policy::none};
  if (word == "all") return ddpxx::RecomputeConfig{.policy = Policy::all};
  if (word == "selective") return ddpxx::RecomputeConfig{.policy = Policy::selective};
  return std::nullopt;
}
