// ddpxx/nn/cpu/pair_product.hpp — products of matrices of bfloat16, on processors that multiply and add them in pairs.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <ddpxx/core/vector_instructions.hpp>
#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/cpu/ranges.hpp>
#include <ddpxx/nn/cpu/small_product.hpp>
#include <ddpxx/nn/cpu/transpose_rows.hpp>

namespace ddpxx::detail {

// An instruction of AVX512_BF16 takes two elements of a row of A and two of a column of B, and adds both products to a
// float. So the sum over the depth of a product is one over pairs of elements, which must lie side by side.

inline constexpr std::int64_t kPairLanes = 16;       ///< Widths of operands must be multiples of it.
inline constexpr std::int64_t kPanelPairs = 65'536;  ///< 256 kB, so that a panel stays in the second-level cache.

/// True for processors with AVX512_BF16 on which pair_product() takes less time than oneDNN, which LibTorch calls: on
/// processors of Intel oneDNN uses AMX.
inline bool multiplies_pairs() {
  static const bool multiplies =
      cpu_has_avx512() && __builtin_cpu_supports("avx512bf16") != 0 && !__builtin_cpu_is("intel");
  return multiplies;
}

/// The left operand of a product: elements (row, 2p) and (row, 2p + 1) lie at data + row * row_stride + p *
/// pair_stride.
struct LeftPairs {
  const c10::BFloat16* data;
  std::int64_t row_stride;
  std::int64_t pair_stride;
};

/// The right operand: elements (2p, column) and (2p + 1, column) lie at data + p * pair_stride + 2 * column.
struct RightPairs {
  const c10::BFloat16* data;
  std::int64_t pair_stride;
};

/// Computes kRows x 16 kVectors elements of a product in registers. A result in bfloat16 is rounded once.
template <int kRows, int kVectors, Result kResult, class Number>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"), gnu::always_inline]] inline void pair_block(
    LeftPairs a, RightPairs b, std::int64_t pairs, Number* out, std::int64_t out_stride) {
  using F = Floats<kPairLanes>;
  typename F::Vector sums[kRows][kVectors];
  typename F::Bits row[kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] =
          kResult == Result::added ? load<kPairLanes>(out + r * out_stride + kPairLanes * v).all : typename F::Vector{};
  for (std::int64_t p = 0; p < pairs; ++p) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      __builtin_memcpy(&row[v], b.data + p * b.pair_stride + 2 * kPairLanes * v, sizeof row[v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t pair = 0;
      __builtin_memcpy(&pair, a.data + r * a.row_stride + p * a.pair_stride, sizeof pair);
      const typename F::Bits factor = pair - typename F::Bits{};
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)  // Clang 16 cannot compile the intrinsic function in these loops
        asm("vdpbf16ps %2, %1, %0" : "+v"(sums[r][v]) : "v"(row[v]), "v"(factor));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      store<kPairLanes>(out + r * out_stride + kPairLanes * v, Floats<kPairLanes>{sums[r][v]});
}

/// Computes as many rows as are a multiple of kRows, from `row`, and returns the row behind them.
template <int kRows, Result kResult, class Number>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"), gnu::always_inline]] inline std::int64_t pair_rows(
    LeftPairs a, RightPairs b, std::int64_t row, std::int64_t rows, std::int64_t pairs, std::int64_t width, Number* out,
    std::int64_t out_stride) {
  for (; row + kRows <= rows; row += kRows) {
    const LeftPairs left{a.data + row * a.row_stride, a.row_stride, a.pair_stride};
    const auto right = [&](std::int64_t column) { return RightPairs{b.data + 2 * column, b.pair_stride}; };
    Number* const to = out + row * out_stride;
    std::int64_t column = 0;
    // Two blocks of 2 vectors are faster than one of 3 and one of 1.
    for (; column + 3 * kPairLanes <= width && column + 4 * kPairLanes != width; column += 3 * kPairLanes)
      pair_block<kRows, 3, kResult>(left, right(column), pairs, to + column, out_stride);
    for (; column + 2 * kPairLanes <= width; column += 2 * kPairLanes)
      pair_block<kRows, 2, kResult>(left, right(column), pairs, to + column, out_stride);
    if (column < width) pair_block<kRows, 1, kResult>(left, right(column), pairs, to + column, out_stride);
  }
  return row;
}

/// out = A B, or out += A B, for A of `rows` x 2 `pairs` and B of 2 `pairs` x `width`, in one thread.
/// Requires  multiplies_pairs().
/// Shapes  `width` is a multiple of kPairLanes.
template <Result kResult, class Number>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")]] void small_pair_product(
    LeftPairs a, RightPairs b, std::int64_t rows, std::int64_t pairs, std::int64_t width, Number* out,
    std::int64_t out_stride) {
  auto row = pair_rows<8, kResult>(a, b, 0, rows, pairs, width, out, out_stride);
  row = pair_rows<4, kResult>(a, b, row, rows, pairs, width, out, out_stride);
  pair_rows<1, kResult>(a, b, row, rows, pairs, width, out, out_stride);
}

/// out = A B, as small_pair_product() computes it, in LibTorch's threads, each of which computes some of the rows. A
/// large B is multiplied in parts of some columns, so that a part stays in the cache. The result does not depend on the
/// number of threads.
template <class Number>
void pair_product(LeftPairs a, RightPairs b, std::int64_t rows, std::int64_t pairs, std::int64_t width, Number* out) {
  constexpr std::int64_t kBlockColumns = 48;  // of small_pair_product's largest blocks
  // A long sum of floats is less exact than a sum of sums. What is rounded to bfloat16 is less exact than both.
  const auto most = std::is_same_v<Number, float> ? std::int64_t{1024} : std::max(pairs, std::int64_t{1});
  const auto panel =
      std::max(kPanelPairs / std::clamp<std::int64_t>(pairs, 1, most) / kBlockColumns, std::int64_t{1}) * kBlockColumns;
  Ranges{rows, kThreadRows}.for_each(width, [&](auto, std::int64_t first, std::int64_t last, std::int64_t) {
    for (std::int64_t column = 0; column < width; column += panel) {
      const auto columns = std::min(panel, width - column);
      Number* const part = out + first * width + column;
      const auto left = [&](std::int64_t p) {
        return LeftPairs{a.data + first * a.row_stride + p * a.pair_stride, a.row_stride, a.pair_stride};
      };
      const auto right = [&](std::int64_t p) {
        return RightPairs{b.data + p * b.pair_stride + 2 * column, b.pair_stride};
      };
      small_pair_product<Result::written>(left(0), right(0), last - first, std::min(pairs, most), columns, part, width);
      if constexpr (std::is_same_v<Number, float>)
        for (auto p = most; p < pairs; p += most)
          small_pair_product<Result::added>(left(p), right(p), last - first, std::min(pairs - p, most), columns, part,
                                            width);
    }
  });
}

/// The bits of kPairLanes numbers as bfloat16.
[[gnu::always_inline]] inline BFloatBits<kPairLanes> bfloat_bits(const float* from) {
  return rounded_bits(load<kPairLanes>(from));
}
[[gnu::always_inline]] inline BFloatBits<kPairLanes> bfloat_bits(const c10::BFloat16* from) {
  typename Floats<kPairLanes>::HalfBits bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return {__builtin_convertvector(bits, typename Floats<kPairLanes>::Bits)};
}

/// The elements of rows 2p and 2p + 1 of a matrix side by side, as bfloat16. Behind an odd number of rows, one of zeros
/// is added.
/// Shapes  x [rows, width], in floats or bfloat16, without gaps, `width` a multiple of kPairLanes; result [(rows + 1) /
/// 2, width, 2].
template <class Number>
at::Tensor joined_rows(const at::Tensor& x) {
  const auto rows = x.size(0), width = x.size(1);
  const auto joined = at::empty({(rows + 1) / 2, width, 2}, x.options().dtype(at::kBFloat16));
  const auto* const from = x.const_data_ptr<Number>();
  auto* const to = joined.mutable_data_ptr<c10::BFloat16>();
  Ranges{joined.size(0), 64}.for_each(
      width, [&](auto, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        for (auto p = first; p < last; ++p)
          for (std::int64_t column = 0; column < width; column += kPairLanes) {
            const auto bits_of = [&](std::int64_t row) __attribute__((always_inline)) {
              return row < rows ? bfloat_bits(from + row * width + column) : BFloatBits<kPairLanes>{};
            };
            const typename Floats<kPairLanes>::Bits pairs = bits_of(2 * p).all | bits_of(2 * p + 1).all << 16;
            __builtin_memcpy(to + 2 * (p * width + column), &pairs, sizeof pairs);
          }
      });
  return joined;
}

/// The elements (2p, column) and (2p + 1, column) of the transpose of a matrix side by side.
/// Shapes  x [rows, width] in bfloat16, without gaps, `rows` and `width` multiples of kPairLanes; result [width / 2,
/// rows, 2].
inline at::Tensor joined_columns(const at::Tensor& x) {
  constexpr std::int64_t kColumns = 8;  // which transpose_rows() takes at a time; a pair has the size of a float
  const auto rows = x.size(0), pairs = x.size(1) / 2;
  const auto joined = at::empty({pairs, rows, 2}, x.options());
  const auto* const from = static_cast<const float*>(x.const_data_ptr());
  auto* const to = static_cast<float*>(joined.mutable_data_ptr());
  Ranges{pairs / kColumns, 1}.for_each(kColumns, [&](auto, std::int64_t first, std::int64_t last, std::int64_t) {
    transpose_rows(from + first * kColumns, pairs, rows, (last - first) * kColumns, to + first * kColumns * rows, rows);
  });
  return joined;
}

}  // namespace ddpxx::detail

#endif
