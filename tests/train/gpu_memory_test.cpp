// The memory of a GPU in the numbers of a step, with an allocator that stands for that of a GPU.
#include <cstddef>

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/train/gpu_memory.hpp>

namespace ddpxx::gpu_memory_test {
namespace {

/// Counts nothing; its numbers are fixed, and differ by the number of the device.
struct FakeAllocator : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = 10 + device;
    stats.allocated_bytes[0].peak = 20 + device;
    stats.reserved_bytes[0].current = 30 + device;
    stats.reserved_bytes[1].current = 1;  // of small blocks
    stats.num_alloc_retries = 40 + device;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

TEST(GpuMemory, IsThatOfTheAllocatorOfTheDevice) {
  FakeAllocator fake;
  auto* before = c10::GetAllocator(c10::DeviceType::CUDA);
  c10::SetAllocator(c10::DeviceType::CUDA, &fake, /*priority=*/255);
  const auto memory = gpu_memory({at::kCUDA, 2});
  c10::SetAllocator(c10::DeviceType::CUDA, before, /*priority=*/255);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->allocated_bytes, 12);
  EXPECT_EQ(memory->peak_bytes, 22);
  EXPECT_EQ(memory->reserved_bytes, 32);
  EXPECT_EQ(memory->retries, 42);
}

TEST(GpuMemory, IsNoneOnACpu) { EXPECT_FALSE(gpu_memory(at::kCPU).has_value()); }

}  // namespace
}  // namespace ddpxx::gpu_memory_test
