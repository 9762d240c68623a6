// ddpxx/core/stop_signals.hpp — signals that ask a process to end, kept for a loop that ends by itself.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <signal.h>
#include <time.h>
#include <utility>

#include <ddpxx/core/program_frame.hpp>

namespace ddpxx {

/// The signals by which people and schedulers ask a program to end.
inline constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};

/// A launcher sends this value with a signal (`sigqueue`) when the run has failed and the process is to end at once.
inline constexpr int kEndAtOnce = 0x64647078;

/// A SIGINT that comes again within this time belongs to the same request: schedulers send one to all processes of a
/// job, and a launcher passes its own on.
inline constexpr std::chrono::seconds kSameRequest{1};

namespace detail {

/// Signal dispositions belong to the process, and so does what its handler has received.
struct StopSignalState {
  std::atomic<int> first = 0;               // the number of the first signal; 0 is none
  std::atomic<std::int64_t> interrupt = 0;  // when the first SIGINT came, in nanoseconds; 0 is never
  std::mutex mutex;                         // guards what follows
  int users = 0;
  std::array<bool, kStopSignals.size()> is_taken = {};
  bool ignores_pipe = false;
};
inline StopSignalState stop_signal_state;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler needs it");

/// True for a SIGINT that follows an earlier one and does not belong to the same request. Safe in a signal handler.
inline bool is_second_interrupt(int number) {
  if (number != SIGINT) return false;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t time = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  std::int64_t first = 0;
  if (stop_signal_state.interrupt.compare_exchange_strong(first, time)) return false;
  return time - first >= std::chrono::nanoseconds{kSameRequest}.count();
}

inline void hear_stop_signal(int number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  int none = 0;
  stop_signal_state.first.compare_exchange_strong(none, number);
  const bool at_once = info->si_code == SI_QUEUE && info->si_value.sival_int == kEndAtOnce;
  if (is_second_interrupt(number) || at_once) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // takes effect when this handler returns
  }
  errno = saved_errno;
}

}  // namespace detail

/// While one lives, `kStopSignals` no longer end the process; the first one is remembered. Only signals with their
/// default meaning are taken: a handler that the program has installed, and a signal that is ignored, stay as they are.
/// A second SIGINT, at least kSameRequest after the first, ends the process. SIGPIPE is ignored meanwhile: the reader
/// of our output may have got the same Ctrl-C. There may be several of these at a time, in one thread or in many: they
/// share what is received, and the last one that ends restores the default actions.
/// Without a `ProgramFrame` no signal is taken, and none is received: the signals of a host are its own affair.
class StopSignals {
 public:
  StopSignals() {
    auto& state = detail::stop_signal_state;
    const std::lock_guard lock{state.mutex};
    if (state.users++ > 0) return;
    state.first = 0;
    state.interrupt = 0;
    state.is_taken = {};
    state.ignores_pipe = false;
    if (!ProgramFrame::exists()) return;
    struct sigaction ours {};
    ours.sa_sigaction = detail::hear_stop_signal;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
      struct sigaction present {};
      ::sigaction(kStopSignals[i], nullptr, &present);
      state.is_taken[i] = present.sa_handler == SIG_DFL && ::sigaction(kStopSignals[i], &ours, nullptr) == 0;
    }
    struct sigaction pipe {};
    ::sigaction(SIGPIPE, nullptr, &pipe);
    state.ignores_pipe = pipe.sa_handler == SIG_DFL;
    if (state.ignores_pipe) ::signal(SIGPIPE, SIG_IGN);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() { release(); }

  /// The first signal that came; none when none came.
  std::optional<int> heard() const noexcept {
    const int number = detail::stop_signal_state.first;
    return number == 0 ? std::nullopt : std::optional{number};
  }

  /// Restores the default actions. A signal that came takes effect now, unless another of these still lives.
  void raise_again() {
    if (const int number = release()) ::raise(number);
  }

 private:
  /// The signal that came, if this is the last one.
  int release() {
    if (!std::exchange(holds_, false)) return 0;
    auto& state = detail::stop_signal_state;
    const std::lock_guard lock{state.mutex};
    if (--state.users > 0) return 0;
    for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
      struct sigaction present {};
      ::sigaction(kStopSignals[i], nullptr, &present);
      const bool is_ours = (present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == detail::hear_stop_signal;
      if (state.is_taken[i] && is_ours) ::signal(kStopSignals[i], SIG_DFL);
    }
    struct sigaction pipe {};
    ::sigaction(SIGPIPE, nullptr, &pipe);
    if (state.ignores_pipe && pipe.sa_handler == SIG_IGN) ::signal(SIGPIPE, SIG_DFL);
    return state.first;
  }

  bool holds_ = true;
};

}  // namespace ddpxx
