// ddpxx/core/heap.hpp — the heap of a program that allocates equally large blocks again in each step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace ddpxx {

namespace detail {

/// Whether `malloc` is that of glibc 2.35 or newer, which can keep large blocks; mallinfo2 came with 2.33. Other
/// allocators leave glibc's functions for settings and counts as they are.
inline bool glibc_allocates() {
  bool is_counted = false;
#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 35)
  const auto used = ::mallinfo2().uordblks;
  void* volatile block = std::malloc(1 << 16);  // volatile, or the compiler leaves the calls out
  is_counted = ::mallinfo2().uordblks > used;
  std::free(block);
#endif
#endif
  return is_counted;
}

/// Whether this process may reserve addresses that it does not use, and no variable of the environment sets what the
/// heap does.
inline bool heap_may_grow() {
  constexpr std::array kLimits{RLIMIT_AS, RLIMIT_DATA};
  constexpr std::array kSettings{"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
                                 "MALLOC_TOP_PAD_"};
  char overcommit = '0';  // 2: the system counts addresses as memory
  std::ifstream{"/proc/sys/vm/overcommit_memory"} >> overcommit;
  return overcommit != '2' &&
         std::ranges::all_of(kLimits,
                             [](auto resource) {
                               ::rlimit limit{};
                               return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
                             }) &&
         std::ranges::all_of(kSettings, [](const char* name) { return std::getenv(name) == nullptr; });
}

}  // namespace detail

/// Keeps blocks of memory that this thread frees for later ones, instead of returning them to the system, and asks for
/// huge pages for the next GiB of the heap. Otherwise each step gets its largest blocks from the system again, which
/// clears each page, and the processor looks up the address of each page of 4 KiB. The system gives memory of the GiB
/// only once it is used. A second call does nothing.
///
/// Does nothing for another allocator than glibc's, or one before 2.35; where the addresses of the process are limited,
/// or the system does not promise more memory than it has (vm.overcommit_memory=2); and where the environment has
/// settings of glibc's allocator, such as MALLOC_TRIM_THRESHOLD_.
/// Units   The largest block that is kept, and the size of the memory with huge pages: 1 GiB.
inline void keep_freed_blocks() {
#ifdef __GLIBC__
  [[maybe_unused]] static const bool once = [] {
    constexpr int kNever = -1;
    constexpr int kBytes = (1 << 30) - (1 << 20);  // less than the threshold, so that the block comes from the heap
    if (!detail::glibc_allocates() || !detail::heap_may_grow() || ::mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0 ||
        ::mallopt(M_TRIM_THRESHOLD, kNever) == 0)
      return false;
    auto* const old_end = static_cast<std::byte*>(::sbrk(0));
    void* volatile block = std::malloc(kBytes);  // makes the heap larger; its pages are not used yet
    std::free(block);
    auto size = static_cast<std::size_t>(static_cast<std::byte*>(::sbrk(0)) - old_end);
    constexpr std::size_t kHugePage = 2 << 20;
    void* begin = old_end;
    return std::align(kHugePage, kHugePage, begin, size) != nullptr && ::madvise(begin, size, MADV_HUGEPAGE) == 0;
  }();
#endif
}

}  // namespace ddpxx
