// Each case runs in a process of its own, since it changes the heap.
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/heap.hpp>

namespace ddpxx::heap_test {
namespace {

constexpr std::size_t kBytes = 256 << 20, kPage = 4096;

/// Runs `body` in a process of its own, and returns the number that it returns, of at most 255.
template <class Body>
int in_a_process(Body body) {
  const auto child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

/// How often the kernel had to give this process a page while it wrote to each page of a block, which is then freed.
long page_faults_of_a_block() {
  const auto faults = [] {
    ::rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  auto* const block = static_cast<char*>(std::malloc(kBytes));
  const auto before = faults();
  for (std::size_t i = 0; i < kBytes; i += kPage) *const_cast<volatile char*>(block + i) = 1;
  const auto count = faults() - before;
  std::free(block);
  return count;
}

/// Whether the process has asked for huge pages in its heap.
bool heap_asks_for_huge_pages() {
  std::ifstream mappings{"/proc/self/smaps"};
  bool in_heap = false;
  for (std::string line; std::getline(mappings, line);) {
    if (line.find(" [heap]") != std::string::npos) in_heap = true;
    if (!line.starts_with("VmFlags:")) continue;
    if (in_heap && line.find(" hg") != std::string::npos) return true;
    in_heap = false;
  }
  return false;
}

/// Whether the heap is as large after the call as before.
bool heap_stays() {
  const auto* const end = ::sbrk(0);
  keep_freed_blocks();
  return ::sbrk(0) == end;
}

class KeepFreedBlocks : public testing::Test {
 protected:
  void SetUp() override {
    if (!detail::glibc_allocates())
      GTEST_SKIP() << "malloc is not that of glibc 2.35 or newer, the only one that is set up";
    if (!detail::heap_may_grow())
      GTEST_SKIP() << "a limit, vm.overcommit_memory=2 or a variable of the environment forbids it";
  }
};

TEST_F(KeepFreedBlocks, ReusesFreedMemory) {
  EXPECT_EQ(in_a_process([] {
              keep_freed_blocks();
              page_faults_of_a_block();
              return page_faults_of_a_block() < 10 ? 0 : 1;
            }),
            0);
}

TEST_F(KeepFreedBlocks, AsksForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the kernel has no huge pages";
  EXPECT_EQ(in_a_process([] {
              keep_freed_blocks();
              return heap_asks_for_huge_pages() ? 0 : 1;
            }),
            0);
}

TEST_F(KeepFreedBlocks, ReservesAddressesOnce) {
  EXPECT_EQ(in_a_process([] {
              if (heap_stays()) return 1;
              void* volatile block = std::malloc(kBytes);  // else a second GiB would fit where the first one was
              const bool stays = heap_stays();
              std::free(block);
              return stays ? 0 : 2;
            }),
            0);
}

TEST_F(KeepFreedBlocks, ChangesNothingWhereAddressesAreLimited) {
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA})
    EXPECT_EQ(in_a_process([&] {
                const ::rlimit limit{.rlim_cur = 1UL << 45, .rlim_max = RLIM_INFINITY};
                if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return 2;
                return heap_stays() ? 0 : 1;
              }),
              0);
}

TEST_F(KeepFreedBlocks, ChangesNothingWhereTheEnvironmentSetsTheHeap) {
  for (const auto* name : {"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"})
    EXPECT_EQ(in_a_process([&] {
                ::setenv(name, "0", 1);
                return heap_stays() ? 0 : 1;
              }),
              0)
        << name;
}

}  // namespace
}  // namespace ddpxx::heap_test
