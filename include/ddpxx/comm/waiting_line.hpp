// ddpxx/comm/waiting_line.hpp — when a process that waits logs a line.
#pragma once

#include <chrono>
#include <string>

namespace ddpxx {

/// Decides when a waiting process logs a line: after `first`, and then after every `next`.
class WaitingLine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitingLine(std::chrono::milliseconds first = std::chrono::seconds{10},
                       std::chrono::milliseconds next = std::chrono::seconds{30})
      : next_{next}, due_{started_ + first} {}

  Clock::time_point due() const noexcept { return due_; }
  /// Whether a line is due; if so, also sets when the next one is due.
  bool take() {
    if (Clock::now() < due_) return false;
    due_ = Clock::now() + next_;
    return true;
  }
  /// "12 of 300 s".
  std::string time_of(std::chrono::milliseconds limit) const {
    const auto seconds = [](auto time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); };
    return std::to_string(seconds(Clock::now() - started_)) + " of " + std::to_string(seconds(limit)) + " s";
  }

 private:
  Clock::time_point started_ = Clock::now();
  std::chrono::milliseconds next_;
  Clock::time_point due_;
};

}  // namespace ddpxx
