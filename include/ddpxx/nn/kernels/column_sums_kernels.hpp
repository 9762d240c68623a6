// ddpxx/nn/kernels/column_sums_kernels.hpp — the CUDA kernels that add up the rows of a matrix in two stages: the rows
// of each block first, then the sums of the blocks. Kernels that read the rows for another purpose add them up in that
// pass, and use the second stage alone.
// Shape suffixes: N rows, F features, P features of a part, G blocks of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The threads of a block of sum_blocks. Eight columns are 32 bytes of each row, which a GPU reads at once; few columns
/// give many blocks, and many threads to a column give each of them few rows.
inline constexpr std::int64_t kSumColumns = 8, kSumRows = 32;

/// The type T of the sums, kColumns and kRows are defined before this source.
inline constexpr const char* kSumBlocksSource = R"cuda(
extern "C" __global__ void sum_blocks(const float* __restrict__ blocks, T* __restrict__ sums, int count, int width) {
  __shared__ float scratch[kRows][kColumns];
  const int row = threadIdx.x / kColumns, column = threadIdx.x % kColumns;
  const int f = blockIdx.x * kColumns + column;
  float total = 0;
  if (f < width) {
#pragma unroll 8
    for (int g = row; g < count; g += kRows) total += blocks[static_cast<long long>(g) * width + f];
  }
  scratch[row][column] = total;
  __syncthreads();
  if (row > 0 || f >= width) return;
#pragma unroll
  for (int other = 1; other < kRows; ++other) total += scratch[other][column];
  sums[f] = store<T>(total);
}
)cuda";

inline KernelSource sum_blocks_source(at::ScalarType type) {
  return {.name = "sum_blocks",
          .kernels = kSumBlocksSource,
          .types = {{{"T", type}}},
          .numbers = {{{"kColumns", kSumColumns}, {"kRows", kSumRows}}}};
}

/// The sums over the first dimension.
///
/// Shapes  `blocks_GF` float32 [G, F]; result [F], of `type`.
inline at::Tensor sum_blocks_by_kernel(const at::Tensor& blocks_GF, at::ScalarType type, const LaunchKernel& launch) {
  const auto options = blocks_GF.options().dtype(type);
  const auto count = blocks_GF.size(0), width = blocks_GF.size(1);
  if (blocks_GF.numel() == 0) return at::zeros({width}, options);
  const auto sums_F = at::empty({width}, options);
  launch_with(launch, sum_blocks_source(type), "sum_blocks",
              {.grid_x = (width + kSumColumns - 1) / kSumColumns, .threads = kSumColumns * kSumRows},
              blocks_GF.data_ptr(), sums_F.data_ptr(), static_cast<int>(count), static_cast<int>(width));
  return sums_F;
}

/// The threads of a block whose threads have a pack of columns each.
inline constexpr std::int64_t kColumnThreads = 128;

/// A grid whose threads have a pack of columns each, and rows in `blocks` parts.
inline LaunchShape shape_for_columns(std::int64_t blocks, std::int64_t packs) {
  return {.grid_x = (packs + kColumnThreads - 1) / kColumnThreads, .grid_y = blocks, .threads = kColumnThreads};
}

/// The number of blocks in which the rows of a matrix are added up first: enough to fill a GPU, and more would only
/// make more partial sums.
inline std::int64_t blocks_of_rows(std::int64_t rows) {
  constexpr std::int64_t kMaxBlocks = 512;
  return std::min(rows, kMaxBlocks);
}

/// The type X of the numbers, kParts, kPack and kThreads are defined before this source. Each part is a matrix of its
/// own; a row of `joined` is their rows, one behind the other. A thread adds up its columns over its rows.
inline constexpr const char* kJoinedSumsSource = R"cuda(
// Four blocks on a multiprocessor leave a thread registers for all loads of a batch. Without the bound the compiler
// starts most loads of a batch behind the sums of the rows before, to use fewer registers.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    joined_sums(const Pack<X>* __restrict__ first, const Pack<X>* __restrict__ second,
                const Pack<X>* __restrict__ third, Pack<X>* __restrict__ joined, Pack<float>* __restrict__ sums,
                long long rows, int packs_of_part) {
  const int p = blockIdx.x * blockDim.x + threadIdx.x, packs = kParts * packs_of_part;
  if (p >= packs) return;
  const int part = p / packs_of_part;
  const Pack<X>* const column = (part == 0 ? first : part == 1 ? second : third) + p % packs_of_part;
  const long long step = gridDim.y;
  Pack<float> total;
  for (int k = 0; k < kPack; ++k) total.values[k] = 0;
  // All loads of a batch are started before the first of them is used. A loop that may end after any row would wait for
  // each row in turn. The order of the additions does not depend on the batches.
  constexpr int kBatch = 8;
  long long n = blockIdx.y;
  for (; n + (kBatch - 1) * step < rows; n += kBatch * step) {
    Pack<X> batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) batch[i] = column[(n + i * step) * packs_of_part];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      for (int k = 0; k < kPack; ++k) total.values[k] += load(batch[i].values[k]);
      if (kParts > 1) joined[(n + i * step) * packs + p] = batch[i];
    }
  }
  for (; n < rows; n += step) {
    const Pack<X> row = column[n * packs_of_part];
    for (int k = 0; k < kPack; ++k) total.values[k] += load(row.values[k]);
    if (kParts > 1) joined[n * packs + p] = row;
  }
  sums[static_cast<long long>(blockIdx.y) * packs + p] = total;
}
)cuda";

inline KernelSource joined_sums_source(at::ScalarType type, std::size_t parts, std::int64_t width_of_part) {
  return {.name = "joined_sums",
          .kernels = kJoinedSumsSource,
          .pack = pack_for(width_of_part),
          .types = {{{"X", type}}},
          .numbers = {{{"kParts", static_cast<std::int64_t>(parts)}, {"kThreads", kColumnThreads}}}};
}

struct JoinedSums {
  at::Tensor joined, sums;
};

/// One to three matrices side by side, and the sums of all columns; a single matrix is not copied.
/// Shapes  `parts` [..., P] each; `joined` [..., F], `sums` [F], of type `sum_type`.
inline JoinedSums joined_sums_by_kernel(const std::vector<at::Tensor>& parts, at::ScalarType sum_type,
                                        const LaunchKernel& launch) {
  std::vector<at::Tensor> packed;
  for (const auto& part : parts) packed.push_back(in_packs(part));
  const auto& first = packed.front();
  const auto width = first.size(-1), rows = first.numel() / std::max<std::int64_t>(width, 1);
  const auto blocks = blocks_of_rows(rows), whole = width * std::ssize(packed), packs = width / pack_for(width);
  auto sizes = first.sizes().vec();
  sizes.back() = whole;
  const auto joined = packed.size() == 1 ? first : at::empty(sizes, first.options());
  const auto blocks_GF = at::empty({blocks, whole}, first.options().dtype(at::kFloat));
  const auto data_of = [&](std::size_t i) { return i < packed.size() ? packed[i].data_ptr() : nullptr; };
  if (first.numel() > 0)
    launch_with(launch, joined_sums_source(first.scalar_type(), packed.size(), width), "joined_sums",
                shape_for_columns(blocks, packs * std::ssize(packed)), data_of(0), data_of(1), data_of(2),
                joined.data_ptr(), blocks_GF.data_ptr(), static_cast<long long>(rows), static_cast<int>(packs));
  return {joined, sum_blocks_by_kernel(blocks_GF, sum_type, launch)};
}

}  // namespace ddpxx::detail
