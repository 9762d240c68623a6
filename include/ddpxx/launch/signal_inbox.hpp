// ddpxx/launch/signal_inbox.hpp — signals that are read like input, one at a time, instead of interrupting.
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

/// While it lives, the signals of a launcher wait here, and a closed pipe is an error code instead of a death.
/// One per process, on its only thread.
class SignalInbox {
 public:
  SignalInbox() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaddset(&wanted, number);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::sigaddset(&wanted, SIGHUP);  // under nohup it stays ignored
    ::signal(SIGCHLD, SIG_DFL);                                      // ignored, it would take the exit codes away
    former_pipe_ = ::signal(SIGPIPE, SIG_IGN);
    ::sigprocmask(SIG_BLOCK, &wanted, &former_);
    inbox_ = Descriptor{::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC)};
    if (!inbox_) throw Error{Errc::peer, "cannot watch signals: " + std::string{std::strerror(errno)}};
  }
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  ~SignalInbox() {
    ::signal(SIGPIPE, former_pipe_);
    ::sigprocmask(SIG_SETMASK, &former_, nullptr);
  }

  /// Readable when a signal waits.
  int descriptor() const noexcept { return inbox_.get(); }

  /// The next waiting signal's number; none when none waits.
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
  sigset_t former_{};
  void (*former_pipe_)(int) = nullptr;
};

}  // namespace ddpxx
