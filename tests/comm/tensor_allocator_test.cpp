// Each case runs in a process of its own, since it replaces the allocator of LibTorch.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <malloc.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/tensor_allocator.hpp>
#include <ddpxx/core/heap.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/flat/live_bytes.hpp>

namespace ddpxx::tensor_allocator_test {
namespace {

/// Runs `body` in a process of its own, which begins with LibTorch's allocator, and returns the number that it returns,
/// of at most 255.
int in_a_process(const std::function<int()>& body) {
  const auto child = ::fork();
  if (child == 0) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
    ::_exit(body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

/// By how many MB the heap grows where a second step makes the tensors that a first one has made and freed, while small
/// objects of the first step, such as the nodes of a graph, are still there.
int growth_of_a_second_step() {
  constexpr std::int64_t kElements = 1 << 18;
  constexpr int kTensors = 100, kObjects = 20;
  std::vector<void*> objects;
  const auto step = [&] {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < kTensors; ++i) {
      tensors.push_back(at::empty({kElements}));
      for (int size = 16; size < 16 + 8 * kObjects; size += 8)
        objects.push_back(std::malloc(static_cast<std::size_t>(size)));
    }
  };
  step();
  const auto before = ::mallinfo2().arena;
  step();
  const auto grown = ::mallinfo2().arena - before;
  for (auto* object : objects) std::free(object);
  return static_cast<int>(grown / 1'000'000);
}

class TensorAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!detail::glibc_allocates() || !detail::heap_may_grow())
      GTEST_SKIP() << "malloc is not that of glibc 2.35 or newer, or the heap may not grow";
  }
};

TEST_F(TensorAllocatorTest, UsesFreedMemoryForTensorsOfTheSameSize) {
  // The small objects of the second step take about 200 kB. Where the heap has no holes for them, they take the memory
  // of a tensor of 1 MB, and the heap grows by that. With LibTorch's allocator it grows by more than 40 MB.
  constexpr int kMaxGrowth = 2;
  EXPECT_LE(in_a_process([] {
              // As by keep_freed_blocks(): freed memory stays in the heap, also at its end.
              ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
              ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
              use_tensor_allocator();
              return growth_of_a_second_step();
            }),
            kMaxGrowth);
}

TEST_F(TensorAllocatorTest, AlignsTensorsOfAllSizes) {
  EXPECT_EQ(in_a_process([] {
              use_tensor_allocator();
              std::vector<at::Tensor> tensors;
              for (std::int64_t bytes = 1; bytes < 1000; ++bytes) {
                const auto& tensor = tensors.emplace_back(at::full({bytes}, bytes % 100, at::kByte));
                if (reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64 != 0) return 1;
              }
              for (const auto& tensor : tensors)
                if (tensor.sum().item<std::int64_t>() != tensor.numel() * (tensor.numel() % 100)) return 2;
              return at::empty({0}).numel() == 0 ? 0 : 3;
            }),
            0);
}

TEST_F(TensorAllocatorTest, ReportsWhatLibTorchsAllocatorReports) {
  EXPECT_EQ(in_a_process([] {
              const auto earlier = at::empty({1000});
              use_tensor_allocator();
              const LiveBytes live;
              auto tensor = at::empty({1000});
              if (live.current() != 4000) return 1;
              tensor.resize_({2000});
              if (live.current() != 8000) return 2;
              tensor.reset();
              return live.current() == 0 && live.peak() >= 8000 ? 0 : 3;
            }),
            0);
}

TEST_F(TensorAllocatorTest, FailsAsLibTorchsAllocatorDoes) {
  EXPECT_EQ(in_a_process([] {
              use_tensor_allocator();
              try {
                at::empty({std::int64_t{1} << 50}, at::kByte);
              } catch (const std::exception& error) {
                const std::string text{error.what()};
                return text.find("you tried to allocate 1125899906842624 bytes") != text.npos ? 0 : 1;
              }
              return 2;
            }),
            0);
}

TEST_F(TensorAllocatorTest, LeavesAnAllocatorThatHasReplacedLibTorchs) {
  EXPECT_EQ(in_a_process([] {
              auto* const own = new TensorAllocator;
              c10::SetCPUAllocator(own);
              use_tensor_allocator();
              return c10::GetCPUAllocator() == own ? 0 : 1;
            }),
            0);
}

TEST_F(TensorAllocatorTest, IsUsedByAProgramOfDdpxxsOwnThatComputesOnTheCPU) {
  EXPECT_EQ(in_a_process([] {
              connect("no address", {});
              if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return 1;  // a host with its own main()
              const ProgramFrame frame;
              connect("no address", {});
              return c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator() ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace ddpxx::tensor_allocator_test
