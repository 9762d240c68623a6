// ddpxx/nn/cpu/small_product.hpp — products of small matrices whose operands stay in the cache.
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include <ddpxx/nn/cpu/lanes.hpp>

namespace ddpxx::detail {

/// The left operand of a product: element (row, k) lies at data[row * row_stride + k * k_stride].
struct LeftOperand {
  const float* data;
  std::int64_t row_stride;
  std::int64_t k_stride;
};

/// A matrix in rows of contiguous floats.
struct RowsOperand {
  const float* data;
  std::int64_t row_stride;
};

enum class Result { written, added };

/// Computes kRows x kLanes kVectors elements of a product in registers.
template <int kLanes, int kRows, int kVectors, Result kResult>
[[gnu::always_inline]] inline void product_block(LeftOperand a, RowsOperand b, std::int64_t depth, float* out,
                                                 std::int64_t out_stride) {
  Floats<kLanes> sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kResult == Result::added ? load<kLanes>(out + r * out_stride + kLanes * v) : Floats<kLanes>{};
  for (std::int64_t k = 0; k < depth; ++k) {
    Floats<kLanes> row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load<kLanes>(b.data + k * b.row_stride + kLanes * v);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Floats<kLanes> factor = a.data[r * a.row_stride + k * a.k_stride];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add(factor, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + kLanes * v, sums[r][v]);
}

/// Computes as many rows as are a multiple of kRows, from `row`, and returns the row behind them.
template <int kLanes, int kRows, Result kResult>
[[gnu::always_inline]] inline std::int64_t product_rows(LeftOperand a, RowsOperand b, std::int64_t row,
                                                        std::int64_t rows, std::int64_t depth, std::int64_t width,
                                                        float* out, std::int64_t out_stride) {
  for (; row + kRows <= rows; row += kRows) {
    const LeftOperand a_rows{a.data + row * a.row_stride, a.row_stride, a.k_stride};
    float* const out_rows = out + row * out_stride;
    std::int64_t column = 0;
    for (; column + 2 * kLanes <= width; column += 2 * kLanes)
      product_block<kLanes, kRows, 2, kResult>(a_rows, {b.data + column, b.row_stride}, depth, out_rows + column,
                                               out_stride);
    if (column < width)
      product_block<kLanes, kRows, 1, kResult>(a_rows, {b.data + column, b.row_stride}, depth, out_rows + column,
                                               out_stride);
  }
  return row;
}

// AVX2 has registers for the sums of 6 x 2 vectors, and AVX-512 for those of 12 x 2.

/// out = A B, or out += A B, for A of `rows` x `depth` and B of `depth` x `width`.
/// Shapes  `width` is a multiple of the number of lanes.
template <Result kResult>
[[gnu::target("avx2,fma")]] void small_product(Lanes<8>, LeftOperand a, RowsOperand b, std::int64_t rows,
                                               std::int64_t depth, std::int64_t width, float* out,
                                               std::int64_t out_stride) {
  auto row = product_rows<8, 6, kResult>(a, b, 0, rows, depth, width, out, out_stride);
  row = product_rows<8, 3, kResult>(a, b, row, rows, depth, width, out, out_stride);
  product_rows<8, 1, kResult>(a, b, row, rows, depth, width, out, out_stride);
}
template <Result kResult>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void small_product(Lanes<16>, LeftOperand a, RowsOperand b,
                                                                             std::int64_t rows, std::int64_t depth,
                                                                             std::int64_t width, float* out,
                                                                             std::int64_t out_stride) {
  auto row = product_rows<16, 12, kResult>(a, b, 0, rows, depth, width, out, out_stride);
  row = product_rows<16, 4, kResult>(a, b, row, rows, depth, width, out, out_stride);
  product_rows<16, 1, kResult>(a, b, row, rows, depth, width, out, out_stride);
}

}  // namespace ddpxx::detail

#endif
