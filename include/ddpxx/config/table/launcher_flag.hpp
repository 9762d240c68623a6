// ddpxx/config/table/launcher_flag.hpp — recognises flags of ddpxx-run and torchrun that stand among the arguments of
// the program that they start.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <ddpxx/core/suggest.hpp>

namespace ddpxx::detail {

/// Flags that say which ranks are started and where they meet. Others, such as --log-dir, may be meant for the program.
inline constexpr std::array<std::string_view, 11> kLauncherFlags{
    "standalone", "nproc_per_node", "nnodes",      "node_rank",   "rdzv_backend", "rdzv_endpoint",
    "rdzv_id",    "rdzv_conf",      "master_addr", "master_port", "max_restarts"};

inline bool is_launcher_flag(std::string_view key) {
  return std::ranges::find(kLauncherFlags, folded(key)) != kLauncherFlags.end();
}

}  // namespace ddpxx::detail
