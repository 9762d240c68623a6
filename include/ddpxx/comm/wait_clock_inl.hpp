// ddpxx/comm/wait_clock_inl.hpp — the definitions of wait_clock.hpp.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE void WaitClock::count(const std::function<void()>& wait) {
  if (!is_started_) return wait();
  if (device_.is_cpu()) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    wait();
    const std::chrono::duration<double, std::milli> passed = Clock::now() - begin;
    const std::lock_guard lock{mutex_};
    milliseconds_ += passed.count();
    return;
  }
  const auto record = [&](c10::Event& event) {
    event.record(c10::impl::VirtualGuardImpl{device_.type()}.getStream(device_));
  };
  // Only events of this kind have times.
  c10::Event before{device_.type(), c10::EventFlag::BACKEND_DEFAULT};
  c10::Event after{device_.type(), c10::EventFlag::BACKEND_DEFAULT};
  record(before);
  wait();
  record(after);
  const std::lock_guard lock{mutex_};
  pending_.emplace_back(std::move(before), std::move(after));
  add_passed();
}

DDPXX_INLINE double WaitClock::milliseconds() {
  const std::lock_guard lock{mutex_};
  add_passed();
  return milliseconds_;
}

DDPXX_INLINE void WaitClock::add_passed() {
  while (!pending_.empty() && pending_.front().second.query()) {
    milliseconds_ += pending_.front().first.elapsedTime(pending_.front().second);
    pending_.pop_front();
  }
}

}  // namespace ddpxx
