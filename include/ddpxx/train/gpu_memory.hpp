// ddpxx/train/gpu_memory.hpp — the memory of a GPU that a training uses.
#pragma once

#include <optional>

#include <c10/core/Device.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/observe/events.hpp>

namespace ddpxx {

/// What LibTorch's allocator has counted on a GPU; none on another device. The GPU is not waited for.
std::optional<GPUMemory> gpu_memory(at::Device device);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/gpu_memory_inl.hpp>
#endif
