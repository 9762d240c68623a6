// ddpxx/comm/shared_tensors.hpp — the tensors that collectives take, and how those through shared memory read them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <ddpxx/comm/rank_order_reduce.hpp>
#include <ddpxx/comm/reduce.hpp>

namespace ddpxx::detail {

// The checks throw c10::ValueError, as c10d's own backends do.

/// Returns the only tensor of a list, and throws if there are others or none.
inline at::Tensor only_tensor(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "a collective takes one tensor, not ", tensors.size());
  return tensors.front();
}
inline void check_on_cpu(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "Tensors must be on the CPU");
}
inline void check_contiguous(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && tensor.is_contiguous(),
                    "Tensors must be dense and contiguous: send a copy, made by contiguous()");
}
/// Throws unless the elements lie in memory without gaps. They may lie there in any order of the dimensions.
inline void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense(),
                    "Tensors must be dense, without gaps between their elements: send a copy, made by contiguous()");
}
/// Throws unless Gloo can add elements of the type, and exchange them between all ranks.
/// Source  torch/csrc/distributed/c10d/ProcessGroupGlooDetail.hpp, GENERATE_ALL_TYPES.
inline void check_type_of_gloo(at::ScalarType type) {
  constexpr std::array kTypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                              at::kInt,   at::kChar,   at::kByte, at::kBool};
  TORCH_CHECK_VALUE(std::ranges::find(kTypes, type) != kTypes.end(), "Gloo takes no elements of type ", type);
}
inline void check_equal_types(const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(), "the output has type ", output.scalar_type(),
                    " and the input ", input.scalar_type());
}
inline void check_reducible(const ReduceTypes& types) {
  TORCH_CHECK_VALUE(reduce_function(types) != nullptr, "elements of type ", types.input, " cannot be reduced to type ",
                    types.output);
}
inline Reduce reduce_of(const c10d::ReduceOp& operation) {
  if (operation == c10d::ReduceOp::MIN) return Reduce::min;
  if (operation == c10d::ReduceOp::MAX) return Reduce::max;
  TORCH_CHECK_VALUE(operation == c10d::ReduceOp::SUM, "only sum, min and max are supported");
  return Reduce::sum;
}
/// Throws unless the shapes fit a reduce-scatter of `size` ranks, which sums `size` equal parts, one for each rank.
inline void check_reduce_scatter(const at::Tensor& output, const at::Tensor& input, int size) {
  check_contiguous(output);
  check_contiguous(input);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size, "reduce_scatter: the input has ", input.numel(),
                    " elements, which is not ", size, " times the output's ", output.numel());
}
/// Throws also unless the ranks can carry out the reduce-scatter through memory that they share.
inline void check_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& operation,
                                 int size) {
  check_on_cpu(output);
  check_on_cpu(input);
  check_reduce_scatter(output, input, size);
  TORCH_CHECK_VALUE(reduce_of(operation) == Reduce::sum, "reduce_scatter: only sums are supported");
  check_reducible({input.scalar_type(), output.scalar_type()});
}
/// Throws unless the arguments fit an all-gather of `size` ranks, whose output has the inputs of all of them.
inline void check_all_gather(const at::Tensor& output, const at::Tensor& input, int size) {
  check_contiguous(output);
  check_contiguous(input);
  check_equal_types(output, input);
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size, "all_gather: the output has ", output.numel(),
                    " elements, which is not ", size, " times the input's ", input.numel());
}
/// Throws unless `sizes` are those of the parts of `tensor`, one for each of `num_ranks` ranks, or none for equal
/// parts.
inline void check_parts(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int num_ranks) {
  const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(rows % num_ranks == 0, "all_to_all: ", rows, " rows cannot be divided by ", num_ranks, " ranks");
    return;
  }
  std::int64_t sum = 0;
  for (const auto size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, "all_to_all: a part cannot have ", size, " rows");
    sum += size;
  }
  TORCH_CHECK_VALUE(static_cast<int>(sizes.size()) == num_ranks && sum == rows,
                    "all_to_all: the parts do not have the tensor's ", rows, " rows");
}
/// Throws unless the arguments fit an all_to_all of `num_ranks` ranks. Gloo would notice other sizes only when it
/// sends, and negative ones not at all: it would write outside the tensors.
inline void check_all_to_all(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<std::int64_t>& output_sizes,
                             const std::vector<std::int64_t>& input_sizes, int num_ranks) {
  check_contiguous(output);
  check_contiguous(input);
  check_equal_types(output, input);
  check_parts(output, output_sizes, num_ranks);
  check_parts(input, input_sizes, num_ranks);
}
/// The elements of a dense tensor in the order in which they lie in memory.
inline at::Tensor elements_of(const at::Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }
/// The memory of a dense tensor as a tensor of bytes, for backends which do not send elements of every type.
inline at::Tensor byte_view(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  return elements_of(tensor).view(at::kByte);
}
/// Puts the sum of the rows, which are added in their order, into `output`. It is dense, and has as many elements as a
/// row.
inline void sum_rows(const at::Tensor& output, const at::Tensor& rows) {
  const auto sum = output.view({-1});
  sum.copy_(rows[0]);
  for (std::int64_t row = 1; row < rows.size(0); ++row) sum.add_(rows[row]);
}
inline std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }
inline std::ptrdiff_t memory_size(const at::Tensor& tensor) { return static_cast<std::ptrdiff_t>(tensor.nbytes()); }

}  // namespace ddpxx::detail
