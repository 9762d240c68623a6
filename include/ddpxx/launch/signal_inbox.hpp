// ddpxx/launch/signal_inbox.hpp — reads signals one at a time, instead of handling them in interrupts.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/signalfd.h>
#include <unistd.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// From its construction to the end of the process the signals of a launcher are blocked and read from here, and a
/// write to a closed pipe is an error instead of SIGPIPE. A process has at most one, on its only thread.
class SignalInbox {
 public:
  SignalInbox() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaddset(&wanted, number);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::sigaddset(&wanted, SIGHUP);  // nohup ignores SIGHUP
    ::signal(SIGCHLD, SIG_DFL);                                      // if it were ignored, exit codes would be lost
    ::signal(SIGPIPE, SIG_IGN);
    // The signals stay blocked: one that comes while the launcher ends must not replace its exit code.
    ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
    inbox_ = Descriptor{::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC)};
    if (!inbox_) throw Error{Errc::peer, "cannot watch signals: " + std::string{std::strerror(errno)}};
  }
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// Descriptor that is readable if a signal is pending.
  int descriptor() const noexcept { return inbox_.get(); }

  /// The number of the next pending signal; none if no signal is pending.
  std::optional<int> next() const {
    signalfd_siginfo info{};
    ssize_t size = 0;
    do size = ::read(inbox_.get(), &info, sizeof info);
    while (size < 0 && errno == EINTR);
    if (size != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  Descriptor inbox_;
};

}  // namespace ddpxx
