// SIGPIPE inside and outside of a scope; each case runs in a process of its own.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/pipe_signal_scope.hpp>

namespace ddpxx::pipe_signal_scope_test {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

/// Writes to a socket whose other end is closed; returns errno.
int write_to_nobody() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return -1;
  ::close(ends[1]);
  const auto size = ::write(ends[0], "x", 1);
  const int error = size < 0 ? errno : 0;
  ::close(ends[0]);
  return error;
}

TEST(PipeSignalScope, TurnsABrokenPipeIntoAnErrorOfTheWrite) {
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        int error = 0;
        {
          const PipeSignalScope scope;
          const PipeSignalScope inner;
          error = write_to_nobody();
        }
        std::_Exit(error);  // the signal was discarded, and is not delivered after the scope
      },
      ExitedWithCode(EPIPE), "");
}

TEST(PipeSignalScope, IsForItsOwnThreadAndThoseThatItStarts) {
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        std::thread later;
        {
          const PipeSignalScope scope;
          later = std::thread{[] {
            ::usleep(50'000);  // the scope has ended
            write_to_nobody();
          }};
        }
        later.join();
        std::_Exit(3);
      },
      ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        { const PipeSignalScope scope; }
        write_to_nobody();
        std::_Exit(3);
      },
      KilledBySignal(SIGPIPE), "");
}

TEST(PipeSignalScope, LeavesASignalThatWaitedBefore) {
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        ::sigset_t pipe;
        ::sigset_t pending;
        ::sigemptyset(&pipe);
        ::sigaddset(&pipe, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        ::raise(SIGPIPE);
        { const PipeSignalScope scope; }
        ::sigpending(&pending);
        std::_Exit(::sigismember(&pending, SIGPIPE));
      },
      ExitedWithCode(1), "");
}

}  // namespace
}  // namespace ddpxx::pipe_signal_scope_test
