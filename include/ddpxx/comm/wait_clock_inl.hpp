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
  if (starts_ == 0) return wait();
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
  auto events = take_events();
  record(events.before);
  wait();
  record(events.after);
  const std::lock_guard lock{mutex_};
  pending_.push_back(std::move(events));
  add_passed();
}

DDPXX_INLINE WaitClock::Events WaitClock::take_events() {
  {
    const std::lock_guard lock{mutex_};
    if (!spare_.empty()) {
      auto events = std::move(spare_.back());
      spare_.pop_back();
      return events;
    }
  }
  constexpr auto kTimed = c10::EventFlag::BACKEND_DEFAULT;  // only events of this kind have times
  return {.before = c10::Event{device_.type(), kTimed}, .after = c10::Event{device_.type(), kTimed}};
}

DDPXX_INLINE void WaitClock::stop() noexcept {
  const std::lock_guard lock{mutex_};
  if (--starts_ == 0) pending_.clear();
}

DDPXX_INLINE double WaitClock::milliseconds() {
  const std::lock_guard lock{mutex_};
  add_passed();
  return milliseconds_;
}

DDPXX_INLINE void WaitClock::add_passed() {
  while (!pending_.empty() && pending_.front().after.query()) {
    auto& passed = pending_.front();
    milliseconds_ += passed.before.elapsedTime(passed.after);
    spare_.push_back(std::move(passed));
    pending_.pop_front();
  }
}

}  // namespace ddpxx
