// ddpxx/flat/live_bytes.hpp — current and peak memory of tensors, counted during a scope.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace ddpxx {

/// Counts the bytes of tensors that this thread allocates during the lifetime of the object, on all devices. Tensors
/// allocated before are not counted. On a GPU the count includes allocations by autograd's threads for this thread.
/// Allocations on the CPU by other threads for this one, such as Gloo's copies of sent data, have a count of their own.
/// No allocator is replaced: the object receives the memory reports that LibTorch has for profilers. A thread may have
/// one such object at a time, and no profiler beside it; the thread that made the object destroys it.
class LiveBytes {
 public:
  LiveBytes() = default;
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  /// Bytes that are allocated now.
  std::int64_t current() const { return counts_->read().here.current; }
  /// Maximum of current(), in bytes, since construction or the last `reset_peak`.
  std::int64_t peak() const { return counts_->read().here.peak; }
  /// Maximum of the bytes that other threads held for this one, since construction or the last `reset_peak`.
  std::int64_t peak_elsewhere() const { return counts_->read().elsewhere.peak; }
  void reset_peak() { counts_->reset_peak(); }

 private:
  struct Count {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    void add(std::int64_t bytes) {
      current += bytes;
      peak = std::max(peak, current);
    }
  };
  struct Numbers {
    Count here;
    Count elsewhere;
  };

  class Counts : public c10::MemoryReportingInfoBase {
   public:
    bool memoryProfilingEnabled() const override { return true; }
    /// `bytes` is negative when memory is freed, perhaps by another thread than the one that took it.
    void reportMemoryUsage(void* memory, std::int64_t bytes, std::size_t, std::size_t, c10::Device device) override {
      const std::lock_guard lock{mutex_};
      forget(memory);  // a thread that reports nothing may have freed a block at this address
      if (bytes <= 0) return;
      const bool here = !device.is_cpu() || std::this_thread::get_id() == owner_;
      blocks_[memory] = {bytes, here};
      (here ? numbers_.here : numbers_.elsewhere).add(bytes);
    }
    Numbers read() const {
      const std::lock_guard lock{mutex_};
      return numbers_;
    }
    void reset_peak() {
      const std::lock_guard lock{mutex_};
      numbers_.here.peak = numbers_.here.current;
      numbers_.elsewhere.peak = numbers_.elsewhere.current;
    }

   private:
    struct Block {
      std::int64_t bytes;
      bool here;
    };
    void forget(void* memory) {
      const auto found = blocks_.find(memory);
      if (found == blocks_.end()) return;
      (found->second.here ? numbers_.here : numbers_.elsewhere).add(-found->second.bytes);
      blocks_.erase(found);
    }

    mutable std::mutex mutex_;
    std::thread::id owner_ = std::this_thread::get_id();
    std::unordered_map<void*, Block> blocks_;
    Numbers numbers_;
  };

  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  c10::DebugInfoGuard reports_{c10::DebugInfoKind::PROFILER_STATE, counts_};
};

}  // namespace ddpxx
