// ddpxx/nn/cpu/products.hpp — products of matrices, by the function that takes the least time for their size.
// Shape suffixes: N rows, K and M widths.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/util/BFloat16.h>

#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/cpu/pair_product.hpp>
#include <ddpxx/nn/cpu/ranges.hpp>
#include <ddpxx/nn/cpu/small_product.hpp>
#include <ddpxx/nn/cpu/transpose_rows.hpp>

namespace ddpxx::detail {

template <class Number>
const Number* numbers(const at::Tensor& tensor) {
  return tensor.const_data_ptr<Number>();
}
template <class Number>
Number* writable_numbers(const at::Tensor& tensor) {
  return tensor.mutable_data_ptr<Number>();
}
inline const float* floats(const at::Tensor& tensor) { return numbers<float>(tensor); }
inline float* writable_floats(const at::Tensor& tensor) { return writable_numbers<float>(tensor); }

inline constexpr std::int64_t kSmallFloats = 150'000;  ///< 600 kB; measured with a second-level cache of 512 kB.
inline constexpr std::int64_t kPanelFloats = 65'536;   ///< 256 kB, so that a panel stays in the second-level cache.

/// True where small_product() takes less time than LibTorch's products of all sizes: LibTorch calls MKL, which uses
/// AVX-512 on processors of Intel only.
inline bool beats_mkl() {
  static const bool beats = cpu_has_avx512() && !__builtin_cpu_is("intel");
  return beats;
}

/// True for products of floats that own_product() computes in less time than an operation of ATen. Where MKL uses all
/// of the processor, these are the small ones in one thread: a block of gpt-nano takes 8 % less with one sample, and 12
/// % less with four.
inline bool is_own(const at::Tensor& operand, std::int64_t rows, std::int64_t depth, std::int64_t width) {
  if (operand.scalar_type() != at::kFloat || operand.numel() == 0) return false;
  const std::int64_t threads = at::get_num_threads();
  if (threads == 1 && rows * depth + depth * width + rows * width <= kSmallFloats) return true;
  return beats_mkl() && (threads == 1 || rows >= threads * kThreadRows);
}

/// out = A B, for A of `rows` x `depth` and B of `depth` x `width`, in LibTorch's threads, each of which computes some
/// of the rows. B and `out` are stored without gaps. A large B is multiplied in parts: of some columns, so that a part
/// stays in the cache, and of `kMostDepth` rows, because a long sum of floats is less exact than a sum of sums. The
/// result does not depend on the number of threads.
///
/// Shapes  `depth` is at least 1.
inline void own_product(LeftOperand a, const float* b, std::int64_t rows, std::int64_t depth, std::int64_t width,
                        float* out) {
  constexpr std::int64_t kMostDepth = 1024;
  constexpr std::int64_t kBlockColumns = 48;  // of small_product's largest blocks
  const auto panel =
      std::max(kPanelFloats / std::clamp<std::int64_t>(depth, 1, kMostDepth) / kBlockColumns, std::int64_t{1}) *
      kBlockColumns;
  Ranges{rows, kThreadRows}.for_each(
      width, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        const auto from_depth = [&](std::int64_t k) {
          return LeftOperand{a.data + first * a.row_stride + k * a.k_stride, a.row_stride, a.k_stride};
        };
        for (std::int64_t column = 0; column < width; column += panel) {
          const auto columns = std::min(panel, width - column);
          float* const part = out + first * width + column;
          small_product<Result::written>(lanes, from_depth(0), {b + column, width}, last - first,
                                         std::min(depth, kMostDepth), columns, part, width);
          for (std::int64_t k = kMostDepth; k < depth; k += kMostDepth)
            small_product<Result::added>(lanes, from_depth(k), {b + k * width + column, width}, last - first,
                                         std::min(depth - k, kMostDepth), columns, part, width);
        }
      });
}

/// True for products of bfloat16 with a weight of K x M elements, or for its gradient, that pair_product() computes in
/// less time than an operation of ATen: two to seven times as fast at width 48, as fast at 384, and slower at 768, in
/// one thread. The choice does not depend on the number of threads, so that a run with another number has equal bits.
inline bool is_of_pairs(const at::Tensor& operand, std::int64_t K, std::int64_t M) {
  constexpr std::int64_t kMostWeight = 600'000;
  return operand.scalar_type() == at::kBFloat16 && operand.numel() > 0 && K % kPairLanes == 0 && M % kPairLanes == 0 &&
         K * M <= kMostWeight && multiplies_pairs();
}

inline const c10::BFloat16* bfloats(const at::Tensor& tensor) { return numbers<c10::BFloat16>(tensor); }

/// x_NK w_MK^T, in the type of x. The weight is rounded to that type.
inline at::Tensor times_transposed(const at::Tensor& x_NK, const at::Tensor& w_MK) {
  const auto N = x_NK.size(0), K = x_NK.size(1), M = w_MK.size(0);
  if (is_of_pairs(x_NK, K, M)) {
    const auto pairs = joined_columns(w_MK.to(at::kBFloat16)), out_NM = at::empty({N, M}, x_NK.options());
    pair_product({bfloats(x_NK), K, 2}, {bfloats(pairs), 2 * M}, N, K / 2, M, writable_numbers<c10::BFloat16>(out_NM));
    return out_NM;
  }
  if (!is_own(x_NK, N, K, M)) return at::mm(x_NK, w_MK.to(x_NK.scalar_type()).t());
  const auto w_KM = at::empty({K, M}, x_NK.options()), out_NM = at::empty({N, M}, x_NK.options());
  constexpr std::int64_t kColumns = 8;  // which transpose_rows() takes at a time
  Ranges{K / kColumns, 1}.for_each(
      kColumns, [&](auto, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        transpose_rows(floats(w_MK) + first * kColumns, K, M, (last - first) * kColumns,
                       writable_floats(w_KM) + first * kColumns * M, M);
      });
  own_product({floats(x_NK), K, 1}, floats(w_KM), N, K, M, writable_floats(out_NM));
  return out_NM;
}

/// x_NM w_MK, in the type of x. The weight is rounded to that type.
inline at::Tensor times(const at::Tensor& x_NM, const at::Tensor& w_MK) {
  const auto N = x_NM.size(0), M = x_NM.size(1), K = w_MK.size(1);
  if (is_of_pairs(x_NM, K, M)) {
    const auto pairs = joined_rows<float>(w_MK), out_NK = at::empty({N, K}, x_NM.options());
    pair_product({bfloats(x_NM), M, 2}, {bfloats(pairs), 2 * K}, N, M / 2, K, writable_numbers<c10::BFloat16>(out_NK));
    return out_NK;
  }
  if (!is_own(x_NM, N, M, K)) return at::mm(x_NM, w_MK.to(x_NM.scalar_type()));
  const auto out_NK = at::empty({N, K}, x_NM.options());
  own_product({floats(x_NM), M, 1}, floats(w_MK), N, M, K, writable_floats(out_NK));
  return out_NK;
}

/// d_NM^T x_NK, computed in the type of the operands and stored as float32 in `out_MK`, or in new memory if that is
/// undefined.
inline at::Tensor transposed_times(const at::Tensor& d_NM, const at::Tensor& x_NK, at::Tensor out_MK) {
  const auto N = d_NM.size(0), M = d_NM.size(1), K = x_NK.size(1);
  if (!out_MK.defined()) out_MK = at::empty({M, K}, x_NK.options().dtype(at::kFloat));
  if (is_of_pairs(d_NM, K, M)) {
    const auto d_pairs = joined_rows<c10::BFloat16>(d_NM), x_pairs = joined_rows<c10::BFloat16>(x_NK);
    pair_product({bfloats(d_pairs), 2, 2 * M}, {bfloats(x_pairs), 2 * K}, M, (N + 1) / 2, K, writable_floats(out_MK));
  } else if (is_own(d_NM, M, N, K)) {
    own_product({floats(d_NM), 1, M}, floats(x_NK), M, N, K, writable_floats(out_MK));
  } else if (d_NM.scalar_type() == at::kFloat) {
    at::mm_out(out_MK, d_NM.t(), x_NK);
  } else {
    out_MK.copy_(at::mm(d_NM.t(), x_NK));
  }
  return out_MK;
}

}  // namespace ddpxx::detail

#endif
