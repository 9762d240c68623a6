// ddpxx/comm/tensor_allocator.hpp — memory for the tensors of a CPU, without gaps in the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/alignment.h>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/heap.hpp>

namespace ddpxx {

/// Allocates each tensor's memory by `malloc`, with room to align it. LibTorch's own allocator calls `posix_memalign`,
/// which in glibc takes a larger block and returns the rest to the heap. Small objects settle in these rests, so that
/// a freed block is too small for the next tensor of its size, and the heap grows. Memory that LibTorch's allocator
/// has given is still freed by it.
class TensorAllocator final : public c10::Allocator {
 public:
  /// Errors  LibTorch's own where no memory is left.
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu{c10::DeviceType::CPU};
    if (bytes == 0) return {nullptr, nullptr, &free, cpu};
    void* const block = bytes <= SIZE_MAX - c10::gAlignment ? std::malloc(bytes + c10::gAlignment) : nullptr;
    if (block == nullptr) {
      c10::GetDefaultCPUAllocator()->allocate(bytes);  // throws the error that says how many bytes were asked for
      throw std::bad_alloc{};
    }
    // malloc aligns to 16 bytes, so that at least 16 lie before the tensor, and its block's address fits there.
    static_assert(alignof(std::max_align_t) >= sizeof(void*) && c10::gAlignment > alignof(std::max_align_t));
    const auto past = reinterpret_cast<std::uintptr_t>(block) % c10::gAlignment;
    auto* const data = static_cast<std::byte*>(block) + (c10::gAlignment - past);
    reinterpret_cast<void**>(data)[-1] = block;
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &free, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free(void* data) {
    if (data == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    std::free(static_cast<void**>(data)[-1]);
  }
};

/// Makes TensorAllocator the allocator of this process for tensors on the CPU. Does nothing for another `malloc` than
/// that of glibc 2.35 or newer; where LibTorch's allocator has been replaced; and where the environment asks for huge
/// pages for each tensor (THP_MEM_ALLOC_ENABLE). It is called before other threads make tensors.
inline void use_tensor_allocator() {
  if (!detail::glibc_allocates() || environment("THP_MEM_ALLOC_ENABLE") ||
      c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator())
    return;
  c10::SetCPUAllocator(new TensorAllocator);  // lives as long as the process: LibTorch keeps the pointer
}

}  // namespace ddpxx
