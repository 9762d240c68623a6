// How a process handles stop signals while a StopSignals object keeps them; each case runs in a process of its own.
#include <csignal>
#include <functional>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/core/stop_signals.hpp>

namespace ddpxx::stop_signals_test {
namespace {

/// Runs `body` in a process of its own, with a frame or without; returns the number that `body` returns, or minus the
/// signal that ended it.
int in_a_process(const std::function<int()>& body, bool has_frame = true) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::optional<ProgramFrame> frame;
    if (has_frame) frame.emplace();
    for (const int number : kStopSignals) ::signal(number, SIG_DFL);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(StopSignals, AreKeptAndTheFirstOneIsRemembered) {
  for (const int number : kStopSignals)
    EXPECT_EQ(in_a_process([&] {
                const StopSignals signals;
                if (signals.heard()) return 99;
                ::raise(number);
                ::raise(number == SIGTERM ? SIGUSR1 : SIGTERM);
                return signals.heard().value_or(98);
              }),
              number);
}

TEST(StopSignals, EndTheProcessAgainAfterwards) {
  EXPECT_EQ(in_a_process([] {
              { const StopSignals signals; }
              ::raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

TEST(StopSignals, EndTheProcessAtTheSecondInterrupt) {
  EXPECT_EQ(in_a_process([] {
              const StopSignals signals;
              ::raise(SIGTERM);
              ::raise(SIGINT);
              ::raise(SIGTERM);
              if (signals.heard() != SIGTERM) return 99;
              std::this_thread::sleep_for(kSameRequest);
              ::raise(SIGINT);
              return 0;
            }),
            -SIGINT);
}

// A scheduler and the launcher each send an interrupt for one request to stop.
TEST(StopSignals, TakeInterruptsOfOneRequestForOne) {
  EXPECT_EQ(in_a_process([] {
              const StopSignals signals;
              ::raise(SIGINT);
              ::raise(SIGINT);
              return signals.heard().value_or(0);
            }),
            SIGINT);
}

TEST(StopSignals, IgnoreAPipeWithoutReaderMeanwhile) {
  EXPECT_EQ(in_a_process([] {
              ::signal(SIGPIPE, SIG_DFL);
              {
                const StopSignals signals;
                ::raise(SIGPIPE);
              }
              ::raise(SIGPIPE);
              return 0;
            }),
            -SIGPIPE);
  EXPECT_EQ(in_a_process([] {
              ::signal(SIGPIPE, SIG_IGN);
              { const StopSignals signals; }
              ::raise(SIGPIPE);
              return 7;
            }),
            7)
      << "the SIGPIPE setting of the program must stay";
}

TEST(StopSignals, EndTheProcessAtOnceWhereTheSenderSaysSo) {
  EXPECT_EQ(in_a_process([] {
              const StopSignals signals;
              ::sigqueue(::getpid(), SIGTERM, sigval{.sival_int = 0});
              if (signals.heard() != SIGTERM) return 99;
              ::sigqueue(::getpid(), SIGTERM, sigval{.sival_int = kEndAtOnce});
              return 0;
            }),
            -SIGTERM);
}

TEST(StopSignals, EndTheProcessWhenTheyAreRaisedAgain) {
  EXPECT_EQ(in_a_process([] {
              StopSignals signals;
              signals.raise_again();
              ::raise(SIGUSR1);
              return 0;
            }),
            -SIGUSR1)
      << "no signal was kept, and SIGUSR1 must end the process again";
  EXPECT_EQ(in_a_process([] {
              StopSignals signals;
              ::raise(SIGHUP);
              signals.raise_again();
              return 0;
            }),
            -SIGHUP);
}

TEST(StopSignals, LeaveTheProgramsOwnHandlersAndIgnoredSignalsAlone) {
  static volatile std::sig_atomic_t times = 0;
  EXPECT_EQ(in_a_process([] {
              ::signal(SIGUSR1, [](int) { times = times + 1; });
              ::signal(SIGHUP, SIG_IGN);
              {
                StopSignals signals;
                ::raise(SIGUSR1);
                ::raise(SIGHUP);
                if (signals.heard()) return 99;
                ::signal(SIGUSR2, SIG_IGN);  // while StopSignals keeps the signals
                signals.raise_again();
              }
              ::raise(SIGUSR1);
              ::raise(SIGHUP);
              ::raise(SIGUSR2);
              return static_cast<int>(times);
            }),
            2);
}

TEST(StopSignals, AreNotTakenInAProcessWithoutAProgramFrame) {
  EXPECT_EQ(in_a_process(
                [] {
                  ::signal(SIGPIPE, SIG_DFL);  // programs of Python ignore it, and what they start inherits that
                  StopSignals signals;
                  for (const int number : {SIGTERM, SIGINT, SIGPIPE}) {
                    struct sigaction present {};
                    ::sigaction(number, nullptr, &present);
                    if (present.sa_handler != SIG_DFL) return 99;
                  }
                  if (signals.heard()) return 98;
                  ::raise(SIGTERM);
                  return 97;
                },
                /*has_frame=*/false),
            -SIGTERM);
}

TEST(StopSignals, AreSharedByAllObjectsThatKeepThem) {
  EXPECT_EQ(in_a_process([] {
              std::optional<StopSignals> first{std::in_place}, second{std::in_place};
              first.reset();
              ::raise(SIGTERM);
              first.emplace();
              if (first->heard() != SIGTERM || second->heard() != SIGTERM) return 99;
              second->raise_again();  // the first object still keeps the signal
              first.reset();
              const StopSignals later;
              return later.heard().value_or(0);
            }),
            0);
}

}  // namespace
}  // namespace ddpxx::stop_signals_test
