// ddpxx/nn/cpu/attention_rows.hpp — causal attention of one head, and its gradient, without the masked half.
// Shape suffixes: T tokens, S tokens rounded up to 16, D width of a head, R query rows of a tile.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/cpu/small_product.hpp>
#include <ddpxx/nn/cpu/transpose_rows.hpp>

namespace ddpxx::detail {

/// Query rows that are computed together; their scores stay in the cache.
inline constexpr std::int64_t kQueryRows = 24;

/// The sizes of one head.
struct HeadSizes {
  std::int64_t tokens;
  std::int64_t width;       ///< Number of floats of a token in this head.
  std::int64_t stride;      ///< From a token to the next in queries, keys, values and their gradients.
  std::int64_t out_stride;  ///< From a token to the next in the result and its gradient.

  /// The number of tokens, rounded up to a multiple of 16.
  std::int64_t padded_tokens() const noexcept { return (tokens + 15) / 16 * 16; }
  float scale() const noexcept { return 1.0F / std::sqrt(static_cast<float>(width)); }
  /// The floats that attend() and attend_backward() need as a buffer.
  std::int64_t buffer() const noexcept { return 2 * width * padded_tokens() + kQueryRows * (padded_tokens() + width); }
  std::int64_t backward_buffer() const noexcept {
    return 5 * width * padded_tokens() + kQueryRows * (2 * padded_tokens() + 3 * width);
  }
};

/// Where the queries, keys and values of a head lie.
template <class Number>
struct HeadParts {
  Number* q;
  Number* k;
  Number* v;
};

/// to_TD = from_TD + bias_D, in contiguous floats.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void load_rows(const Number* from_TD, std::int64_t stride, const float* bias_D,
                                             std::int64_t T, std::int64_t D, float* to_TD) {
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t d = 0; d < D; d += kLanes)
      store(to_TD + t * D + d, load<kLanes>(from_TD + t * stride + d) + load<kLanes>(bias_D + d));
}

/// Writes contiguous floats as numbers.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void store_rows(const float* from_TD, std::int64_t T, std::int64_t D, Number* to_TD,
                                              std::int64_t stride) {
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t d = 0; d < D; d += kLanes) store(to_TD + t * stride + d, load<kLanes>(from_TD + t * D + d));
}

/// Turns the scores of one query, to the keys [0, keys), into weights, and those of all keys up to `width` into 0.
/// Returns the logarithm of the sum of the exponentials of the scaled scores.
template <int kLanes>
[[gnu::always_inline]] inline float softmax_row(float* scores_S, std::int64_t keys, std::int64_t width, float scale) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  auto largest = first_lanes(keys, load<kLanes>(scores_S), kMasked);
  for (std::int64_t s = kLanes; s < keys; s += kLanes)
    largest = max_of(largest, first_lanes(keys - s, load<kLanes>(scores_S + s), kMasked));
  const float max = max_of(largest) * scale;
  Floats<kLanes> sums = {};
  for (std::int64_t s = 0; s < keys; s += kLanes) {
    const Floats<kLanes> weight = exp_of(multiply_add(load<kLanes>(scores_S + s), scale, -max));
    const Floats<kLanes> visible = first_lanes(keys - s, weight, 0.0F);
    sums += visible;
    store(scores_S + s, visible);
  }
  const float sum = sum_of(sums), inverse = 1.0F / sum;
  std::int64_t s = 0;
  for (; s < keys; s += kLanes) store(scores_S + s, load<kLanes>(scores_S + s) * inverse);
  for (; s < width; s += kLanes) store(scores_S + s, Floats<kLanes>{});
  return max + std::log(sum);
}

/// out_TD = softmax(q k^T / sqrt(D)) v, where a query sees the keys up to its own position, and q, k and v are `in`
/// plus `bias`. `log_sums_T` gets the logarithm of each query's sum of exponentials.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void attend(Lanes<kLanes> lanes, const HeadSizes& sizes,
                                          const HeadParts<const Number>& in, const HeadParts<const float>& bias,
                                          Number* out_TD, float* log_sums_T, float* buffer) {
  const auto T = sizes.tokens, S = sizes.padded_tokens(), D = sizes.width;
  float* const k_DS = buffer;
  float* const v_TD = k_DS + D * S;
  float* const scores_RS = v_TD + D * S;
  float* const rows_RD = scores_RS + kQueryRows * S;  // of queries, then of the result
  load_rows<kLanes>(in.k, sizes.stride, bias.k, T, D, v_TD);
  transpose_rows(v_TD, D, T, D, k_DS, S);
  load_rows<kLanes>(in.v, sizes.stride, bias.v, T, D, v_TD);
  for (std::int64_t first = 0; first < T; first += kQueryRows) {
    const auto rows = std::min(kQueryRows, T - first);
    const auto width = (first + rows + kLanes - 1) / kLanes * kLanes;
    load_rows<kLanes>(in.q + first * sizes.stride, sizes.stride, bias.q, rows, D, rows_RD);
    small_product<Result::written>(lanes, {rows_RD, D, 1}, {k_DS, S}, rows, D, width, scores_RS, S);
    for (std::int64_t r = 0; r < rows; ++r)
      log_sums_T[first + r] = softmax_row<kLanes>(scores_RS + r * S, first + r + 1, width, sizes.scale());
    small_product<Result::written>(lanes, {scores_RS, S, 1}, {v_TD, D}, rows, first + rows, D, rows_RD, D);
    store_rows<kLanes>(rows_RD, rows, D, out_TD + first * sizes.out_stride, sizes.out_stride);
  }
}

/// What attend() has computed, and the gradient of its result.
template <class Number>
struct HeadGradient {
  const Number* out;
  const float* log_sums;
  const Number* d_out;
};

/// Computes the gradients of a head's queries, keys and values.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void attend_backward(Lanes<kLanes> lanes, const HeadSizes& sizes,
                                                   const HeadParts<const Number>& in,
                                                   const HeadParts<const float>& bias,
                                                   const HeadGradient<Number>& given, const HeadParts<Number>& out,
                                                   float* buffer) {
  const auto T = sizes.tokens, S = sizes.padded_tokens(), D = sizes.width;
  const float scale = sizes.scale();
  float* const k_TD = buffer;
  float* const k_DS = k_TD + D * S;
  float* const v_DS = k_DS + D * S;
  float* const d_k_TD = v_DS + D * S;
  float* const d_v_TD = d_k_TD + D * S;
  float* const weights_RS = d_v_TD + D * S;
  float* const d_scores_RS = weights_RS + kQueryRows * S;
  float* const q_RD = d_scores_RS + kQueryRows * S;
  float* const d_q_RD = q_RD + kQueryRows * D;
  float* const d_out_RD = d_q_RD + kQueryRows * D;
  load_rows<kLanes>(in.v, sizes.stride, bias.v, T, D, k_TD);
  transpose_rows(k_TD, D, T, D, v_DS, S);
  load_rows<kLanes>(in.k, sizes.stride, bias.k, T, D, k_TD);
  transpose_rows(k_TD, D, T, D, k_DS, S);
  std::fill_n(d_k_TD, 2 * D * S, 0.0F);
  for (std::int64_t first = 0; first < T; first += kQueryRows) {
    const auto rows = std::min(kQueryRows, T - first), keys = first + rows;
    const auto width = (keys + kLanes - 1) / kLanes * kLanes;
    const Number* const given_out_RD = given.out + first * sizes.out_stride;
    load_rows<kLanes>(in.q + first * sizes.stride, sizes.stride, bias.q, rows, D, q_RD);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t d = 0; d < D; d += kLanes)
        store(d_out_RD + r * D + d, load<kLanes>(given.d_out + (first + r) * sizes.out_stride + d));
    small_product<Result::written>(lanes, {q_RD, D, 1}, {k_DS, S}, rows, D, width, weights_RS, S);
    small_product<Result::written>(lanes, {d_out_RD, D, 1}, {v_DS, S}, rows, D, width, d_scores_RS, S);
    for (std::int64_t r = 0; r < rows; ++r) {
      Floats<kLanes> products = {};
      for (std::int64_t d = 0; d < D; d += kLanes)
        products = multiply_add(load<kLanes>(d_out_RD + r * D + d),
                                load<kLanes>(given_out_RD + r * sizes.out_stride + d), products);
      const float mean = sum_of(products), log_sum = given.log_sums[first + r];
      float* const weights_S = weights_RS + r * S;
      float* const d_scores_S = d_scores_RS + r * S;
      const auto visible = first + r + 1;
      std::int64_t s = 0;
      for (; s < visible; s += kLanes) {
        const Floats<kLanes> exponential = exp_of(multiply_add(load<kLanes>(weights_S + s), scale, -log_sum));
        const Floats<kLanes> weight = first_lanes(visible - s, exponential, 0.0F);
        const Floats<kLanes> d_score = weight * scale * (load<kLanes>(d_scores_S + s) - mean);
        store(weights_S + s, weight);
        store(d_scores_S + s, first_lanes(visible - s, d_score, 0.0F));
      }
      for (; s < width; s += kLanes) {
        store(weights_S + s, Floats<kLanes>{});
        store(d_scores_S + s, Floats<kLanes>{});
      }
    }
    small_product<Result::written>(lanes, {d_scores_RS, S, 1}, {k_TD, D}, rows, keys, D, d_q_RD, D);
    store_rows<kLanes>(d_q_RD, rows, D, out.q + first * sizes.stride, sizes.stride);
    small_product<Result::added>(lanes, {d_scores_RS, 1, S}, {q_RD, D}, keys, rows, D, d_k_TD, D);
    small_product<Result::added>(lanes, {weights_RS, 1, S}, {d_out_RD, D}, keys, rows, D, d_v_TD, D);
  }
  store_rows<kLanes>(d_k_TD, T, D, out.k, sizes.stride);
  store_rows<kLanes>(d_v_TD, T, D, out.v, sizes.stride);
}

}  // namespace ddpxx::detail

#endif
