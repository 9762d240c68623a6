// ddpxx/comm/wait_clock.hpp — how long a rank has waited for its collectives.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace ddpxx {

/// Adds up the time in which a rank waits for the collectives of a group and of its parts. Any thread may wait.
///
/// On a CPU that is the time of the threads that wait. On a GPU, where a wait orders the current stream after the
/// collective, it is the time for which the stream stands still: two events are recorded around each wait.
class WaitClock {
 public:
  explicit WaitClock(c10::Device device) : device_{device} {}

  /// Waits are measured from now on, until stop() was called as often as start().
  void start() noexcept { ++starts_; }
  /// At the last stop, waits that the stream has not passed yet are forgotten.
  void stop() noexcept;

  /// Calls `wait`, which waits for a collective. A wait that throws does not count.
  void count(const std::function<void()>& wait);

  /// Milliseconds of all waits so far. On a GPU a wait counts once the stream has passed it.
  double milliseconds();

 private:
  /// What the stream records before and after a wait.
  struct Events {
    c10::Event before, after;
  };

  Events take_events();
  /// Adds the waits that the stream has passed. The mutex is locked.
  void add_passed();

  c10::Device device_;
  std::atomic<int> starts_{0};  ///< Calls of start() without one of stop().
  std::mutex mutex_;
  // Guarded by the mutex:
  double milliseconds_ = 0;
  std::deque<Events> pending_;  ///< The events of waits that the stream may not have passed yet.
  std::vector<Events> spare_;   ///< Events that are used again, because creating one takes long.
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/wait_clock_inl.hpp>
#endif
