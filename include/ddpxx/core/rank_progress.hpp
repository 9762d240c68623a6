// ddpxx/core/rank_progress.hpp — the last step and the last collective of a rank, in memory that its launcher can read
// after the rank's end, also where a signal has killed it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>

#include <ddpxx/core/inherited_descriptor.hpp>

namespace ddpxx {

/// The last step and the last collective of a rank. Memory of zeros is that of a rank that has done nothing. Any thread
/// of the rank may write.
class RankProgress {
 public:
  /// The result of this step has been read; steps count from 1.
  void note_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }

  /// A collective has started.
  void note_start(std::string_view op, std::int64_t bytes) noexcept {
    count_.fetch_add(1, std::memory_order_relaxed);
    last_.store(packed(op, bytes), std::memory_order_relaxed);
  }
  /// This rank waits for the end of a collective; if that fails, `note_end` is not called.
  void note_wait(std::string_view op, std::int64_t bytes) noexcept {
    waits_for_.store(packed(op, bytes), std::memory_order_relaxed);
  }
  void note_end() noexcept { waits_for_.store(0, std::memory_order_relaxed); }

  /// The last step; 0 for none.
  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// As `all_reduce of 4096 bytes, which did not end (collective 12 of this rank)`: the collective that the rank was
  /// waiting for, otherwise the last one that it started; empty for none.
  std::string collective() const {
    const auto waits_for = waits_for_.load(std::memory_order_relaxed);
    const auto shown = waits_for != 0 ? waits_for : last_.load(std::memory_order_relaxed);
    if (shown == 0) return {};
    const auto index = std::min<std::size_t>(shown >> kBytesBits, kOps.size() - 1);
    return std::string{kOps[index]} + " of " + std::to_string(shown & kMaxBytes) + " bytes" +
           (waits_for != 0 ? ", which did not end" : "") + " (collective " +
           std::to_string(count_.load(std::memory_order_relaxed)) + " of this rank)";
  }

 private:
  static constexpr int kBytesBits = 56;
  static constexpr std::uint64_t kMaxBytes = (std::uint64_t{1} << kBytesBits) - 1;
  static constexpr std::array<std::string_view, 8> kOps = {
      "nothing", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "a collective"};

  static std::uint64_t packed(std::string_view op, std::int64_t bytes) noexcept {
    const auto found = std::min(std::find(kOps.begin() + 1, kOps.end(), op), kOps.end() - 1);
    return static_cast<std::uint64_t>(found - kOps.begin()) << kBytesBits |
           (static_cast<std::uint64_t>(bytes) & kMaxBytes);
  }

  std::atomic<std::int64_t> step_{0};
  std::atomic<std::uint64_t> count_{0}, last_{0}, waits_for_{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "two processes use it");

/// Names the memory that a launcher shares with a rank; see `inherited_descriptor`.
inline constexpr const char* kProgressVariable = "DDPXX_PROGRESS";

namespace detail {

/// The memory that this process's launcher shares with it; null where there is none.
inline RankProgress* shared_progress() {
  const auto inherited = inherited_descriptor(kProgressVariable);
  if (!inherited || inherited->status.st_size < static_cast<off_t>(sizeof(RankProgress))) return nullptr;
  void* const memory = ::mmap(nullptr, sizeof(RankProgress), PROT_READ | PROT_WRITE, MAP_SHARED, inherited->number, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<RankProgress*>(memory);
}

}  // namespace detail

/// The progress of this process. Without a launcher that reads it, it is memory of this process alone.
inline RankProgress& own_progress() {
  static RankProgress unread;
  static RankProgress* const shared = detail::shared_progress();
  return shared != nullptr ? *shared : unread;
}

}  // namespace ddpxx
