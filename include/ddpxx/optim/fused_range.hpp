// ddpxx/optim/fused_range.hpp — the parts of slices that a fused operation steps as tensors of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>

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

/// The ranges of one optimizer group, in the lists that a fused operation takes.
struct FusedGroup {
  std::vector<at::Tensor> values, gradients;
  std::vector<std::vector<at::Tensor>> moments;  ///< One list for each moment of the optimizer.
};

/// Cuts slices for a fused operation: returns the ranges of each group of `table`. An optimizer calls it in its first
/// step, since gradients that are stepped in backward have no memory before, of which a view could be made.
inline std::vector<FusedGroup> fused_groups(std::span<const Slice> slices, const GroupTable& table,
                                            std::span<const Moment> moments) {
  const c10::NoGradGuard no_grad;
  std::vector<FusedGroup> groups(table.size());
  for (auto& group : groups) group.moments.resize(moments.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto& group = groups[table.index_of(slices[i].group)];
    for (const auto& range : fused_ranges(slices[i])) {
      group.values.push_back(range.of(slices[i].values));
      group.gradients.push_back(range.of(slices[i].gradients));
      for (std::size_t m = 0; m < moments.size(); ++m) group.moments[m].push_back(range.of(moments[m].slices[i]));
    }
  }
  return groups;
}

}  // namespace ddpxx
