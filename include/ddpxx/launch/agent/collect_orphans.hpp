// ddpxx/launch/agent/collect_orphans.hpp — collects orphaned processes when the launcher is PID 1.
#pragma once

#include <algorithm>
#include <span>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ddpxx/launch/process_table.hpp>

namespace ddpxx::detail {

/// Collects ended child processes other than `own`. In a container, PID 1 becomes the parent of processes whose parents
/// have ended, and they stay zombies until PID 1 collects them.
inline void collect_orphans(std::span<const pid_t> own) {
  for (const auto& entry : process_table())
    if (entry.state == 'Z' && entry.parent == ::getpid() && std::find(own.begin(), own.end(), entry.pid) == own.end())
      ::waitpid(entry.pid, nullptr, WNOHANG);
}

}  // namespace ddpxx::detail
