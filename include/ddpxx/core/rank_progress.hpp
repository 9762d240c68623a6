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

  /// A collective has started. Returns its number on this rank; they count from 1.
  std::uint64_t note_start(std::string_view op, std::int64_t bytes) noexcept {
    last_.store(packed(op, bytes), std::memory_order_relaxed);
    return count_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  /// This rank waits for the end of the collective with this number. Call `note_end` or `note_failure` after it.
  void note_wait(std::string_view op, std::int64_t bytes, std::uint64_t number) noexcept {
    awaited_.store(packed(op, bytes), std::memory_order_relaxed);
    awaited_number_.store(number, std::memory_order_relaxed);
  }
  void note_end() noexcept { awaited_number_.store(0, std::memory_order_relaxed); }
  /// The wait has failed: the rank does not wait any more, and the collective did not end.
  void note_failure() noexcept { awaited_number_.fetch_or(kFailed, std::memory_order_relaxed); }

  /// The last step; 0 for none.
  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// The number of the collective whose end the rank waits for; 0 for none.
  std::uint64_t awaited_number() const noexcept {
    const auto number = awaited_number_.load(std::memory_order_relaxed);
    return (number & kFailed) == 0 ? number : 0;
  }

  /// As `all_reduce of 4096 bytes (collective 12)`: the collective that the rank waits for, otherwise the last one that
  /// it started; empty for none.
  std::string last_collective() const { return described("", ")"); }
  /// Like last_collective(), for the report about a rank that has ended: `all_reduce of 4096 bytes, which did not end
  /// (collective 12 of this rank)`.
  std::string collective() const { return described(", which did not end", " of this rank)"); }

 private:
  static constexpr std::uint64_t kFailed = std::uint64_t{1} << 63;  ///< Marks the number of a wait that has failed.
  static constexpr int kBytesBits = 56;
  static constexpr std::uint64_t kMaxBytes = (std::uint64_t{1} << kBytesBits) - 1;
  static constexpr std::array<std::string_view, 8> kOps = {
      "nothing", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "a collective"};

  std::string described(std::string_view if_it_waits, std::string_view end) const {
    const auto awaited = awaited_number_.load(std::memory_order_relaxed) & ~kFailed;
    const auto number = awaited != 0 ? awaited : count_.load(std::memory_order_relaxed);
    if (number == 0) return {};
    const auto shown = (awaited != 0 ? awaited_ : last_).load(std::memory_order_relaxed);
    const auto index = std::min<std::size_t>(shown >> kBytesBits, kOps.size() - 1);
    std::string text{kOps[index]};
    text += " of " + std::to_string(shown & kMaxBytes) + " bytes";
    if (awaited != 0) text += if_it_waits;
    return (text += " (collective " + std::to_string(number)) += end;
  }

  static std::uint64_t packed(std::string_view op, std::int64_t bytes) noexcept {
    const auto found = std::min(std::find(kOps.begin() + 1, kOps.end(), op), kOps.end() - 1);
    return static_cast<std::uint64_t>(found - kOps.begin()) << kBytesBits |
           (static_cast<std::uint64_t>(bytes) & kMaxBytes);
  }

  std::atomic<std::int64_t> step_{0};
  std::atomic<std::uint64_t> count_{0}, last_{0}, awaited_{0}, awaited_number_{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "two processes use it");

/// Names the memory that a launcher shares with a rank; see `inherited_descriptor`. The number is that of the layout of
/// RankProgress: a program and a launcher of two versions with different layouts share no memory.
inline constexpr const char* kProgressVariable = "DDPXX_PROGRESS_2";
static_assert(sizeof(RankProgress) == 40, "give another layout another number in kProgressVariable");

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
