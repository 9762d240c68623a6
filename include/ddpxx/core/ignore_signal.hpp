// ddpxx/core/ignore_signal.hpp — lets a system call fail with an error instead of ending the process by a signal.
#pragma once

#include <csignal>

namespace ddpxx {

/// Ignores the signal in the whole process, unless the program has set an action for it. With SIGPIPE ignored, a write
/// to a closed connection fails with EPIPE; with SIGXFSZ ignored, a write beyond the limit on the size of files
/// (`ulimit -f`) fails with EFBIG. Python ignores both, too.
inline void ignore_signal(int number) {
  struct ::sigaction chosen {};
  if (::sigaction(number, nullptr, &chosen) == 0 && chosen.sa_handler == SIG_DFL) ::signal(number, SIG_IGN);
}

}  // namespace ddpxx
