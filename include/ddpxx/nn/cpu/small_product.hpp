// ddpxx/nn/cpu/small_product.hpp — products of small matrices whose operands stay in the cache.
#pragma once

#if defined(__x86_64__)

#include <cstdint>
#include <type_traits>
#include <utility>

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

inline constexpr std::int64_t kThreadRows = 32;  ///< The fewest rows of a product that are worth a thread.

/// Calls `run` with each of the numbers below `kCount` as a constant, so that the elements of an array that it names
/// may stay in registers.
template <int kCount, class Run>
[[gnu::always_inline]] inline void unrolled(const Run& run) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (run(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

/// Computes kRows x kLanes kVectors elements of a product in registers.
template <int kLanes, int kRows, int kVectors, Result kResult>
[[gnu::always_inline]] inline void product_block(LeftOperand a, RowsOperand b, std::int64_t depth, float* out,
                                                 std::int64_t out_stride) {
  using Vector = typename Floats<kLanes>::Vector;
  Vector sums[kRows][kVectors], row[kVectors];
  unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
    unrolled<kVectors>([&](auto v) __attribute__((always_inline)) {
      sums[r][v] = kResult == Result::added ? load<kLanes>(out + r * out_stride + kLanes * v).all : Vector{};
    });
  });
  for (std::int64_t k = 0; k < depth; ++k) {
    unrolled<kVectors>([&](auto v) __attribute__((always_inline)) {
      row[v] = load<kLanes>(b.data + k * b.row_stride + kLanes * v).all;
    });
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      const float factor = a.data[r * a.row_stride + k * a.k_stride];
      unrolled<kVectors>([&](auto v) __attribute__((always_inline)) { sums[r][v] += factor * row[v]; });
    });
  }
  unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
    unrolled<kVectors>([&](auto v) __attribute__((always_inline)) {
      store<kLanes>(out + r * out_stride + kLanes * v, sums[r][v]);
    });
  });
}

/// Computes `kRows` rows of a product, of which each block has up to `kVectors` vectors of lanes.
template <int kLanes, int kRows, int kVectors, Result kResult>
[[gnu::always_inline]] inline void product_row_group(LeftOperand a, RowsOperand b, std::int64_t depth,
                                                     std::int64_t width, float* out, std::int64_t out_stride) {
  std::int64_t column = 0;
  if constexpr (kVectors == 3)  // two blocks of 2 vectors are faster than one of 3 and one of 1
    for (; column + 3 * kLanes <= width && column + 4 * kLanes != width; column += 3 * kLanes)
      product_block<kLanes, kRows, 3, kResult>(a, {b.data + column, b.row_stride}, depth, out + column, out_stride);
  for (; column + 2 * kLanes <= width; column += 2 * kLanes)
    product_block<kLanes, kRows, 2, kResult>(a, {b.data + column, b.row_stride}, depth, out + column, out_stride);
  if (column < width)
    product_block<kLanes, kRows, 1, kResult>(a, {b.data + column, b.row_stride}, depth, out + column, out_stride);
}

/// Computes as many rows as are a multiple of kRows, from `row`, and returns the row behind them.
template <int kLanes, int kRows, int kVectors, Result kResult>
[[gnu::always_inline]] inline std::int64_t product_rows(LeftOperand a, RowsOperand b, std::int64_t row,
                                                        std::int64_t rows, std::int64_t depth, std::int64_t width,
                                                        float* out, std::int64_t out_stride) {
  for (; row + kRows <= rows; row += kRows)
    product_row_group<kLanes, kRows, kVectors, kResult>({a.data + row * a.row_stride, a.row_stride, a.k_stride}, b,
                                                        depth, width, out + row * out_stride, out_stride);
  return row;
}

// AVX2 has registers for the sums of 6 x 2 vectors, and AVX-512 for those of 8 x 3.

/// out = A B, or out += A B, for A of `rows` x `depth` and B of `depth` x `width`.
/// Shapes  `depth` is at least 1, and `width` a multiple of the number of lanes.
template <Result kResult>
[[gnu::target("avx2,fma")]] void small_product(Lanes<8>, LeftOperand a, RowsOperand b, std::int64_t rows,
                                               std::int64_t depth, std::int64_t width, float* out,
                                               std::int64_t out_stride) {
  auto row = product_rows<8, 6, 2, kResult>(a, b, 0, rows, depth, width, out, out_stride);
  row = product_rows<8, 3, 2, kResult>(a, b, row, rows, depth, width, out, out_stride);
  product_rows<8, 1, 2, kResult>(a, b, row, rows, depth, width, out, out_stride);
}
template <Result kResult>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void small_product(Lanes<16>, LeftOperand a, RowsOperand b,
                                                                             std::int64_t rows, std::int64_t depth,
                                                                             std::int64_t width, float* out,
                                                                             std::int64_t out_stride) {
  auto row = product_rows<16, 8, 3, kResult>(a, b, 0, rows, depth, width, out, out_stride);
  row = product_rows<16, 4, 3, kResult>(a, b, row, rows, depth, width, out, out_stride);
  product_rows<16, 1, 3, kResult>(a, b, row, rows, depth, width, out, out_stride);
}

}  // namespace ddpxx::detail

#endif
