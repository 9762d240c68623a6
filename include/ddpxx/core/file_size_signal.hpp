// ddpxx/core/file_size_signal.hpp — lets a write fail that would make a file larger than the process may write.
#pragma once

#include <csignal>

namespace ddpxx {

/// Ignores SIGXFSZ in the whole process, unless the program has set an action for it: a write beyond the limit on the
/// size of files (`ulimit -f`) then fails with EFBIG, as a write to a full disk fails, and does not end the process.
/// Python does this, too.
inline void ignore_file_size_signal() {
  struct ::sigaction chosen {};
  if (::sigaction(SIGXFSZ, nullptr, &chosen) == 0 && chosen.sa_handler == SIG_DFL) ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace ddpxx
