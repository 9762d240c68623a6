// ddpxx/nn/cpu/small_product.hpp — products of small matrices whose operands stay in the cache.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <immintrin.h>

#include <ddpxx/nn/cpu/floats8.hpp>

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

/// Computes kRows x 8 kVectors elements of a product in registers.
template <int kRows, int kVectors, Result kResult>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void product_block(LeftOperand a, RowsOperand b,
                                                                          std::int64_t depth, float* out,
                                                                          std::int64_t out_stride) {
  __m256 sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kResult == Result::added ? _mm256_loadu_ps(out + r * out_stride + 8 * v) : _mm256_setzero_ps();
  for (std::int64_t k = 0; k < depth; ++k) {
    __m256 row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = _mm256_loadu_ps(b.data + k * b.row_stride + 8 * v);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 factor = _mm256_broadcast_ss(a.data + r * a.row_stride + k * a.k_stride);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(factor, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(out + r * out_stride + 8 * v, sums[r][v]);
}

template <int kRows, Result kResult>
[[gnu::target("avx2,fma")]] inline void product_rows(LeftOperand a, RowsOperand b, std::int64_t depth,
                                                     std::int64_t width, float* out, std::int64_t out_stride) {
  std::int64_t column = 0;
  for (; column + 16 <= width; column += 16)
    product_block<kRows, 2, kResult>(a, {b.data + column, b.row_stride}, depth, out + column, out_stride);
  if (column < width)
    product_block<kRows, 1, kResult>(a, {b.data + column, b.row_stride}, depth, out + column, out_stride);
}

/// out = A B, or out += A B, for A of `rows` x `depth` and B of `depth` x `width`.
/// Shapes  `width` is a multiple of 8.
template <Result kResult>
[[gnu::target("avx2,fma")]] inline void small_product(LeftOperand a, RowsOperand b, std::int64_t rows,
                                                      std::int64_t depth, std::int64_t width, float* out,
                                                      std::int64_t out_stride) {
  std::int64_t row = 0;
  for (; row + 6 <= rows; row += 6)
    product_rows<6, kResult>({a.data + row * a.row_stride, a.row_stride, a.k_stride}, b, depth, width,
                             out + row * out_stride, out_stride);
  a.data += row * a.row_stride;
  out += row * out_stride;
  switch (rows - row) {
    case 5:
      return product_rows<5, kResult>(a, b, depth, width, out, out_stride);
    case 4:
      return product_rows<4, kResult>(a, b, depth, width, out, out_stride);
    case 3:
      return product_rows<3, kResult>(a, b, depth, width, out, out_stride);
    case 2:
      return product_rows<2, kResult>(a, b, depth, width, out, out_stride);
    case 1:
      return product_rows<1, kResult>(a, b, depth, width, out, out_stride);
    default:
      return;
  }
}

}  // namespace ddpxx::detail

#endif
