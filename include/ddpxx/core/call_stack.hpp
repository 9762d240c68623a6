// ddpxx/core/call_stack.hpp — writes the call stack of the main thread when the launcher asks.
#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <execinfo.h>
#include <string_view>
#include <unistd.h>

namespace ddpxx {

/// The signal by which a launcher asks a rank for its call stack.
inline int call_stack_signal() { return SIGRTMIN; }

namespace detail {

/// The kernel lets the main thread handle a signal of the process, unless that thread blocks it.
inline void write_call_stack(int) {
  const int before = errno;
  constexpr std::string_view kTitle = "call stack of the main thread, the innermost call first:\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kTitle.data(), kTitle.size());
  std::array<void*, 64> calls{};
  ::backtrace_symbols_fd(calls.data(), ::backtrace(calls.data(), static_cast<int>(calls.size())), STDERR_FILENO);
  errno = before;
}

}  // namespace detail

/// From now on this process writes the call stack of its main thread to standard error when it gets the signal, unless
/// the program handles the signal itself.
inline void write_call_stack_on_signal() {
  struct ::sigaction current {
  }, action{};
  if (::sigaction(call_stack_signal(), nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  std::array<void*, 1> call{};
  ::backtrace(call.data(), 1);  // the first call loads a library, which a signal handler must not do
  action.sa_handler = detail::write_call_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(call_stack_signal(), &action, nullptr);
}

}  // namespace ddpxx
