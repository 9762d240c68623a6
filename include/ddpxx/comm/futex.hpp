// ddpxx/comm/futex.hpp — lets a thread sleep until a thread of another process changes a word that both can read.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ddpxx::detail {

/// Sleeps while `word` is `value`, for `limit` at most. It may also return earlier, so the caller looks at the word
/// again. The C++ library's own atomic wait does not work between processes.
inline void futex_wait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds limit) noexcept {
  const auto left = std::max(limit, std::chrono::nanoseconds{0});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const ::timespec time{static_cast<std::time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

/// Wakes all threads that sleep on `word`.
inline void futex_wake(std::uint32_t& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Tells the core that this thread waits in a loop without sleeping.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ddpxx::detail
