// ddpxx/launch/agent/console.hpp — the signals to an agent, and its output.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <poll.h>
#include <set>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/poll_timeout.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>
#include <ddpxx/launch/interrupts.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/signal_inbox.hpp>

namespace ddpxx::detail {

/// True if a program may redraw a line on this output: it is a terminal that can move the cursor.
inline bool draws_on(int descriptor) {
  const auto kind = environment("TERM");
  return ::isatty(descriptor) == 1 && kind && *kind != "dumb";
}

/// Receives the signals to the agent and writes its lines. If the agent's standard output is a terminal, rank 0 writes
/// to it directly, so that it can redraw its line of progress; the other lines are written between.
class Console {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Console(const LaunchPlan& plan) : plan_{plan}, has_terminal_{draws_on(STDOUT_FILENO)} {
    if (!has_terminal_) return;
    output_.clear_drawn_line_on(STDOUT_FILENO);
    if (draws_on(STDERR_FILENO)) output_.clear_drawn_line_on(STDERR_FILENO);
  }

  bool has_terminal() const noexcept { return has_terminal_; }
  const SignalInbox& inbox() const noexcept { return inbox_; }
  OutputQueue& output() noexcept { return output_; }
  void say(std::string_view text) { output_.push(STDERR_FILENO, "ddpxx-run: ", text); }

  /// Writes some output only if its reader is ready, since a write would block otherwise.
  void write_if_ready() {
    pollfd reader{output_.waiting_for(), POLLOUT, 0};
    if (::poll(&reader, 1, 0) > 0) output_.write_some();
  }

  /// The last signal that asked the run to end. A SIGINT that comes after another such signal does not replace it.
  std::optional<int> request() const noexcept { return request_; }
  /// True after a second SIGINT to this agent, which ends the run at once.
  bool is_urgent() const noexcept { return is_urgent_; }
  /// Notes a signal to this agent that asks the run to end. Returns true if the signal has not come before; a SIGINT
  /// must also be the first request.
  bool hear(int signal) {
    if (signal == SIGINT && interrupts_.note()) is_urgent_ = true;
    return note_request(signal);
  }
  /// Notes a signal that another agent has passed on; returns what `hear` returns. After such a SIGINT, one to this
  /// agent is the second. It is never the second itself: the signals to this agent come back from the store, too,
  /// perhaps late.
  bool hear_from_others(int signal) {
    if (signal == SIGINT) interrupts_.note();
    return note_request(signal);
  }

  /// Waits, while no rank runs, until one of `descriptors` is readable (-1: none), a signal asks the run to end, or
  /// `until`. Writes output meanwhile. A signal that only warns of an end is for ranks, and has no effect here.
  void wait(std::initializer_list<int> descriptors, Clock::time_point until);

  /// Writes the remaining output. Waits for its reader, but at most 2 s after a request to end, and not after a new
  /// signal.
  void deliver_output();

 private:
  bool note_request(int signal) {
    if (request_ && signal == SIGINT) return false;
    request_ = signal;
    return requests_.insert(signal).second;
  }

  const LaunchPlan& plan_;
  bool has_terminal_;
  SignalInbox inbox_;
  OutputQueue output_;
  std::optional<int> request_;
  std::set<int> requests_;
  Interrupts interrupts_;
  bool is_urgent_ = false;
};

inline void Console::wait(std::initializer_list<int> descriptors, Clock::time_point until) {
  while (true) {
    std::vector<pollfd> waits = {{inbox_.descriptor(), POLLIN, 0}, {output_.waiting_for(), POLLOUT, 0}};
    for (const int descriptor : descriptors) waits.push_back({descriptor, POLLIN, 0});
    ::poll(waits.data(), waits.size(), poll_timeout(until));
    if (waits[1].revents != 0) output_.write_some();
    bool has_request = false;
    while (const auto number = inbox_.next()) {
      if (*number == SIGCHLD) continue;
      if (!asks_for_end(plan_, *number)) {
        say(signal_name(*number) + " came while no rank runs on this machine; it has no effect");
        continue;
      }
      hear(*number);
      has_request = true;
    }
    const bool is_readable = std::any_of(waits.begin() + 2, waits.end(), [](auto& wait) { return wait.revents != 0; });
    if (has_request || is_readable || Clock::now() >= until) return;
  }
}

inline void Console::deliver_output() {
  while (output_.waiting_for() >= 0) {
    pollfd waits[] = {{inbox_.descriptor(), POLLIN, 0}, {output_.waiting_for(), POLLOUT, 0}};
    if (::poll(waits, 2, request_ ? 2'000 : -1) == 0) return;
    if (waits[1].revents != 0)
      output_.write_some();
    else
      while (const auto number = inbox_.next())
        if (number != SIGCHLD) return;
  }
}

}  // namespace ddpxx::detail
