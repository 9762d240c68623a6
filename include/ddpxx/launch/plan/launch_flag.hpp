// ddpxx/launch/plan/launch_flag.hpp — one flag of ddpxx-run, and how its value is read.
#pragma once

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// The values of flags while they are read. Some are only complete when all are known.
struct LaunchValues {
  LaunchPlan plan = {};
  bool is_standalone = false;
  bool is_c10d = false;
  bool has_master_address = false;
  std::string endpoint_host = {};  // the host of --rdzv-endpoint; empty for none
  std::optional<std::uint16_t> endpoint_port = {};
  bool is_module = false;
  bool no_python = false;
  bool is_run_path = false;
};

/// A flag of ddpxx-run.
struct LaunchFlag {
  std::string_view name;             // with dashes; underscores are accepted too
  std::string_view short_name = {};  // such as -m; empty for none
  std::string_view value = {};       // the value's name in the help; empty if the flag has no value
  std::string_view help = {};
  void (*apply)(LaunchValues&, const LaunchFlag&, const std::string& text) = nullptr;
  std::string_view source = {};  // the variable that gave the value; empty for the command line
};

[[noreturn]] inline void refuse(const LaunchFlag& flag, const std::string& text, const std::string& expected) {
  throw Error{Errc::config, std::string{flag.source.empty() ? flag.name : flag.source} + ": \"" + harmless(text) +
                                "\" is not " + expected};
}

inline int whole_number(const LaunchFlag& flag, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    refuse(flag, text, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

inline std::chrono::milliseconds seconds(const LaunchFlag& flag, const std::string& text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || !(value >= 0) || value > 1e6)
    refuse(flag, text, "a number of seconds from 0 to 1000000");
  return std::chrono::milliseconds{std::llround(value * 1000)};
}

}  // namespace ddpxx::detail
