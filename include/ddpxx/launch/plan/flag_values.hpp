// ddpxx/launch/plan/flag_values.hpp — reads the values of flags about machines, ranks, signals and cores.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/launch_flag.hpp>
#include <ddpxx/launch/plan/output_flags.hpp>
#include <ddpxx/launch/plan/processors.hpp>

namespace ddpxx::detail {

constexpr int kMaxRanksPerNode = 4096;  // more than any machine runs; larger numbers are typing errors
constexpr int kMaxNodes = kMaxRanks;

/// The values of `--rdzv-endpoint HOST[:PORT]`; an IPv6 address with a port stands in brackets.
inline void read_endpoint(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  constexpr const char* kForm = "HOST or HOST:PORT, where an IPv6 address stands in brackets";
  const auto bracket = text.rfind(']');
  const auto colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  values.endpoint_host = text.substr(0, colon);
  const bool has_brackets = text.starts_with('[') && bracket > 1 && values.endpoint_host.ends_with(']');
  if (values.endpoint_host.empty() || (bracket != std::string::npos && !has_brackets)) refuse(flag, text, kForm);
  values.endpoint_port.reset();
  if (colon == std::string::npos) return;
  const auto port = text.substr(colon + 1);
  if (port.find(':') != std::string::npos) refuse(flag, text, kForm);
  values.endpoint_port = static_cast<std::uint16_t>(whole_number(flag, port, 0, 65'535));
}

inline std::string_view without_spaces_around(std::string_view text) {
  constexpr const char* kSpaces = " \t\n\r\f\v";
  const auto first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

/// True or false for the words that mean these for torchrun, in any letter case; none for others.
/// Source  torch/distributed/elastic/rendezvous/api.py, get_as_bool.
inline std::optional<bool> truth_of(std::string_view text) {
  const auto word = lower(text);
  for (const char* yes : {"1", "true", "t", "yes", "y"})
    if (word == yes) return true;
  for (const char* no : {"0", "false", "f", "no", "n"})
    if (word == no) return false;
  return std::nullopt;
}

/// The values of `--rdzv-conf KEY=VALUE,...`; spaces around keys and values do not count. Settings of an earlier
/// `--rdzv-conf` or PET_RDZV_CONF are replaced.
inline void read_rendezvous_settings(LaunchValues& values, const LaunchFlag& flag, std::string_view text) {
  // These keys set times of torchrun's rendezvous, which the agents' store does not need.
  constexpr std::array<std::string_view, 5> kWithoutMeaning = {"timeout", "close_timeout", "heartbeat_timeout",
                                                               "read_timeout", "store_type"};
  constexpr std::chrono::milliseconds kMinTime{100};
  const auto time = [&](std::string_view key, const std::string& value) {
    const auto result = seconds(flag, value);
    if (result < kMinTime) refuse(flag, value, "a " + std::string{key} + " of at least 0.1 s");
    return result;
  };
  const LaunchPlan defaults;
  values.plan.join_timeout = defaults.join_timeout;
  values.plan.last_call = defaults.last_call;
  values.plan.keep_alive = defaults.keep_alive;
  values.plan.serves_meeting = defaults.serves_meeting;
  text = without_spaces_around(text);
  while (!text.empty()) {
    const auto entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto equals = entry.find('=');
    const auto key = without_spaces_around(entry.substr(0, equals));
    const std::string value{without_spaces_around(equals == std::string_view::npos ? "" : entry.substr(equals + 1))};
    if (key == "join_timeout") {
      values.plan.join_timeout = time(key, value);
    } else if (key == "last_call_timeout") {
      values.plan.last_call = seconds(flag, value);
    } else if (key == "keep_alive_interval") {
      values.plan.keep_alive.interval = time(key, value);
    } else if (key == "keep_alive_max_attempt") {
      values.plan.keep_alive.attempts = whole_number(flag, value, 1, 127);
    } else if (key == "is_host") {
      values.plan.serves_meeting = truth_of(value);
      if (!values.plan.serves_meeting) refuse(flag, value, "an is_host of true or false");
    } else if (equals == std::string_view::npos || std::ranges::find(kWithoutMeaning, key) == kWithoutMeaning.end()) {
      refuse(flag, std::string{entry}, "join_timeout=SECONDS, is_host=true|false or another setting of torchrun");
    }
  }
}

/// The number of `--nproc-per-node N|auto|cpu|gpu`.
inline int read_ranks_per_node(const LaunchFlag& flag, const std::string& text) {
  const int gpus = count_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (text == "cpu" || (text == "auto" && gpus == 0)) return count_processors();
  if (text == "gpu" && gpus == 0)
    throw Error{Errc::config, std::string{flag.source.empty() ? flag.name : flag.source} +
                                  ": \"gpu\" asks for a rank for each GPU, but this machine shows none"};
  return text == "gpu" || text == "auto" ? gpus : whole_number(flag, text, 1, kMaxRanksPerNode);
}

/// The numbers of `--nnodes N` or `--nnodes MIN:MAX`.
inline void read_num_nodes(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  const auto colon = text.find(':');
  const int least = whole_number(flag, text.substr(0, colon), 1, kMaxNodes);
  const int most = colon == std::string::npos ? least : whole_number(flag, text.substr(colon + 1), 1, kMaxNodes);
  if (most < least) refuse(flag, text, "N or MIN:MAX, where MIN is at most MAX");
  values.plan.min_nodes = least;
  values.plan.num_nodes = most;
}

/// The names of `--signals-to-handle`.
inline void read_signals(LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
  constexpr const char* kForm =
      "a list of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, with commas between them";
  values.plan.signals = text;
  values.plan.ending_signals.clear();
  for (const auto& name : items_of(text)) {
    const auto bare = without_spaces_around(name);
    if (bare == "SIGUSR1" || bare == "SIGUSR2")
      values.plan.ending_signals.push_back(bare == "SIGUSR1" ? SIGUSR1 : SIGUSR2);
    else if (bare != "SIGTERM" && bare != "SIGINT" && bare != "SIGHUP" && bare != "SIGQUIT")
      refuse(flag, text, kForm);
  }
}

inline std::string binding_name(CpuBinding binding) {
  constexpr std::array kNames = {"node", "socket", "exclusive", "core-complex"};
  return kNames[static_cast<std::size_t>(binding)];
}

/// The mode of `--numa-binding`.
inline CpuBinding read_binding(const LaunchFlag& flag, const std::string& text) {
  for (const auto binding : {CpuBinding::node, CpuBinding::socket, CpuBinding::exclusive, CpuBinding::core_complex})
    if (text == binding_name(binding)) return binding;
  refuse(flag, text, "node, socket, exclusive or core-complex");
}

}  // namespace ddpxx::detail
