// ddpxx/launch/reap_strangers.hpp — collects ended processes whose parents have died, as process 1 has to.
#pragma once

#include <algorithm>
#include <span>
#include <sys/types.h>
#include <sys/wait.h>

namespace ddpxx {

/// Collects ended children that are none of `own`. In a container process 1 becomes the parent of processes whose
/// parents have died, and they stay zombies until it collects them. Stops at an ended one of `own`, which its owner
/// collects: call it again after that.
inline void reap_strangers(std::span<const pid_t> own) {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
         std::find(own.begin(), own.end(), info.si_pid) == own.end()) {
    ::waitpid(info.si_pid, nullptr, 0);
    info.si_pid = 0;
  }
}

}  // namespace ddpxx
