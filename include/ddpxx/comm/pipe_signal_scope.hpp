// ddpxx/comm/pipe_signal_scope.hpp — lets a write to a socket whose peer is gone fail without a signal to the process.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>
#include <signal.h>

namespace ddpxx {

/// Blocks SIGPIPE in this thread while the object lives: a write to a socket whose peer is gone fails with EPIPE and
/// does not end the process. Threads that this thread starts meanwhile have SIGPIPE blocked until they end. The
/// process's action for SIGPIPE and its other threads do not change.
class PipeSignalScope {
 public:
  PipeSignalScope() noexcept {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::sigset_t pending, former;
    ::sigpending(&pending);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &former);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    was_blocked_ = ::sigismember(&former, SIGPIPE) == 1;
  }
  PipeSignalScope(const PipeSignalScope&) = delete;
  PipeSignalScope& operator=(const PipeSignalScope&) = delete;
  ~PipeSignalScope() {
    if (was_blocked_) return;
    // A write in this scope may have left a pending SIGPIPE: consume it before the signal is unblocked.
    const ::timespec no_time{};
    while (!was_pending_ && ::sigtimedwait(&pipe_, nullptr, &no_time) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_UNBLOCK, &pipe_, nullptr);
  }

 private:
  ::sigset_t pipe_;
  bool was_pending_ = false;
  bool was_blocked_ = false;
};

}  // namespace ddpxx
