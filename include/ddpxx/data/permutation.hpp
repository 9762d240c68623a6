// ddpxx/data/permutation.hpp — the random order of n samples, the same bits as PyTorch's.
#pragma once

#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

namespace ddpxx {

/// The numbers from 0 to size - 1 in random order; a pure function of its arguments.
/// Shapes  Result: int64 [size].
/// Source  torch.randperm(size, generator=torch.Generator().manual_seed(seed)).
inline at::Tensor permutation(std::int64_t size, std::uint64_t seed) {
  return at::randperm(size, at::detail::createCPUGenerator(seed), at::kLong, at::kStrided, at::kCPU, false);
}

}  // namespace ddpxx
