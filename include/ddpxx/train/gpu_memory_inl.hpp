// ddpxx/train/gpu_memory_inl.hpp — definitions of gpu_memory.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <optional>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <ddpxx/observe/events.hpp>
#include <ddpxx/train/gpu_memory.hpp>

namespace ddpxx {

DDPXX_INLINE std::optional<GPUMemory> gpu_memory(at::Device device) {
  if (!device.is_cuda()) return {};
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return GPUMemory{.allocated_bytes = stats.allocated_bytes[kAll].current,
                   .reserved_bytes = stats.reserved_bytes[kAll].current,
                   .peak_bytes = stats.allocated_bytes[kAll].peak,
                   .retries = stats.num_alloc_retries};
}

}  // namespace ddpxx
