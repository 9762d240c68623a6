// ddpxx/launch/torchrun_environment_inl.hpp — the definitions of torchrun_environment.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/bare_host.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx {

namespace detail {

inline int launch_number(const char* name, int otherwise) {
  const auto value = environment_integer(name);
  if (!value) return otherwise;
  if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max())
    throw Error{Errc::peer,
                "environment variable " + std::string{name} + "=" + std::to_string(*value) + " is too large"};
  return static_cast<int>(*value);
}

/// Errors  `peer` if both variables are set and `number`, the value of the first, is not below `size`, that of the second.
inline void check_inside(const char* name, int number, const char* size_name, int size) {
  if (size < 1 || (number >= 0 && number < size) || !environment(name) || !environment(size_name)) return;
  throw Error{Errc::peer, "the environment variables " + std::string{name} + '=' + std::to_string(number) + " and " +
                              size_name + '=' + std::to_string(size) + " contradict each other: " + name +
                              " must be 0 to " + std::to_string(size - 1)};
}

/// True if `text` is a host, a colon and a port.
inline bool is_host_and_port(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const auto port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos &&
         std::stoi(port) >= 1 && std::stoi(port) <= std::numeric_limits<std::uint16_t>::max();
}

}  // namespace detail

DDPXX_INLINE std::optional<Launch> torchrun_environment() {
  static constexpr std::array kNeeded = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  std::string missing, present;
  const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  for (const char* name : kNeeded) {
    if (const auto value = environment(name))
      add(present, std::string{name} + '=' + harmless(*value));
    else
      add(missing, name);
  }
  if (const auto local = environment("LOCAL_RANK")) add(present, "LOCAL_RANK=" + harmless(*local));
  if (present.empty()) return std::nullopt;
  if (!missing.empty())
    throw Error{Errc::peer, "the launch environment is incomplete: " + missing + " not set, but " + present +
                                "; start with ddpxx-run or torchrun, or unset RANK, WORLD_SIZE, LOCAL_RANK, "
                                "MASTER_ADDR and MASTER_PORT to run alone"};

  Launch launch;
  const int rank = detail::launch_number("RANK", 0), world_size = detail::launch_number("WORLD_SIZE", 1);
  launch.rank_info = {.rank = Rank{rank},
                      .world_size = WorldSize{world_size},
                      .local_rank = LocalRank{detail::launch_number("LOCAL_RANK", rank)},
                      .local_world_size = LocalWorldSize{detail::launch_number("LOCAL_WORLD_SIZE", world_size)},
                      .restart = detail::launch_number("TORCHELASTIC_RESTART_COUNT", 0)};
  detail::check_inside("RANK", rank, "WORLD_SIZE", world_size);
  detail::check_inside("LOCAL_RANK", launch.rank_info.local_rank.value, "LOCAL_WORLD_SIZE",
                       launch.rank_info.local_world_size.value);
  check(launch.rank_info);
  launch.local_world_known = environment("LOCAL_WORLD_SIZE").has_value();
  launch.address = detail::without_brackets(*environment("MASTER_ADDR"));
  const int port = detail::launch_number("MASTER_PORT", 0);
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max())
    throw Error{Errc::peer, "environment variable MASTER_PORT=" + std::to_string(port) + " is not in 1 to 65535"};
  launch.port = static_cast<std::uint16_t>(port);
  launch.store = environment("DDPXX_STORE").value_or("");
  if (!launch.store.empty() && !detail::is_host_and_port(launch.store))
    throw Error{Errc::peer, "environment variable DDPXX_STORE=" + harmless(launch.store) +
                                " is not HOST:PORT; only ddpxx-run should set it"};
  launch.token = environment("DDPXX_TOKEN").value_or("");
  // If both are set, ddpxx-run has started torchrun, and torchrun has started this rank.
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launch.store_host = StoreHost::torchrun;
  else if (!launch.store.empty())
    launch.store_host = StoreHost::ddpxx_run;
  launch.run_id = environment("TORCHELASTIC_RUN_ID").value_or(environment("SLURM_JOB_ID").value_or(""));
  return launch;
}

}  // namespace ddpxx
