// ddpxx/launch/interrupts.hpp — tells a second Ctrl-C from one that belongs to an earlier request.
#pragma once

#include <chrono>
#include <optional>

#include <ddpxx/core/stop_signals.hpp>

namespace ddpxx {

/// The SIGINTs that a launcher has got, as `StopSignals` counts those of a rank. Other signals do not count: after
/// SIGTERM, as at a preemption, the first SIGINT must not end ranks that save.
class Interrupts {
 public:
  /// Notes a SIGINT; returns true if the first one came at least kSameRequest ago.
  bool note() {
    const auto now = std::chrono::steady_clock::now();
    if (!first_) first_ = now;
    return now - *first_ >= kSameRequest;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> first_;
};

}  // namespace ddpxx
