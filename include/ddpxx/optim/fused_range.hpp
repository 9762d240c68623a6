// ddpxx/optim/fused_range.hpp — the parts of a slice that a fused operation steps as tensors of their own.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// Elements of a slice.
struct FusedRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;

  /// Their view of a tensor laid out like the slice.
  at::Tensor of(const at::Tensor& whole) const { return size == whole.numel() ? whole : whole.narrow(0, begin, size); }
};

/// The ranges of a slice. On a CPU a fused operation computes the last elements of a tensor, where they do not fill a
/// vector, by other instructions, and rounds them differently. The tensors of torch.optim end with each parameter, and
/// so do the ranges, except for parameters without a gap behind them: those end with a vector. On other devices, and
/// for a slice that does not tell its parameters, the slice is one range.
inline std::vector<FusedRange> fused_ranges(const Slice& slice) {
  if (!slice.values.is_cpu() || slice.parameters.empty()) return {{0, slice.values.numel()}};
  std::vector<FusedRange> ranges;
  for (const auto& entry : slice.entries()) {
    if (!ranges.empty() && ranges.back().begin + ranges.back().size == entry.begin)
      ranges.back().size += entry.size;
    else
      ranges.push_back({entry.begin, entry.size});
  }
  return ranges;
}

}  // namespace ddpxx
