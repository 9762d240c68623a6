// ddpxx/nn/cpu/transpose_rows.hpp — transposes a matrix of floats.
#pragma once

#if defined(__x86_64__)

#include <cstdint>
#include <immintrin.h>

namespace ddpxx::detail {

/// Transposes eight rows of eight floats.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transpose_8x8(const float* from, std::int64_t from_stride,
                                                                          float* to, std::int64_t to_stride) {
  __m256 rows[8];
  __m256 pairs[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) rows[r] = _mm256_loadu_ps(from + r * from_stride);
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    pairs[r] = _mm256_unpacklo_ps(rows[r], rows[r + 1]);
    pairs[r + 1] = _mm256_unpackhi_ps(rows[r], rows[r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    rows[r] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0x44);
    rows[r + 1] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0xEE);
    rows[r + 2] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0x44);
    rows[r + 3] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    _mm256_storeu_ps(to + r * to_stride, _mm256_permute2f128_ps(rows[r], rows[r + 4], 0x20));
    _mm256_storeu_ps(to + (r + 4) * to_stride, _mm256_permute2f128_ps(rows[r], rows[r + 4], 0x31));
  }
}

/// Transposes `rows` of `width` floats. If `to_stride` is larger than `rows`, the columns behind them become 0.
/// Shapes  `width` and `to_stride` are multiples of 8.
[[gnu::target("avx2,fma")]] inline void transpose_rows(const float* from, std::int64_t from_stride, std::int64_t rows,
                                                       std::int64_t width, float* to, std::int64_t to_stride) {
  const auto whole = rows / 8 * 8;
  for (std::int64_t row = 0; row < whole; row += 8)
    for (std::int64_t column = 0; column < width; column += 8)
      transpose_8x8(from + row * from_stride + column, from_stride, to + column * to_stride + row, to_stride);
  for (auto row = whole; row < to_stride; ++row)
    for (std::int64_t column = 0; column < width; ++column)
      to[column * to_stride + row] = row < rows ? from[row * from_stride + column] : 0.0F;
}

}  // namespace ddpxx::detail

#endif
