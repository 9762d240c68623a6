// ddpxx/nn/cpu/block_passes.hpp — the forward and the backward pass of a transformer block, without autograd.
// Shape suffixes: B batch, T tokens, C width, H heads, D width of a head, N = B T rows, F = 4C.
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/nn/block_parameters.hpp>
#include <ddpxx/nn/cpu/attention_rows.hpp>
#include <ddpxx/nn/cpu/column_sums.hpp>
#include <ddpxx/nn/cpu/gelu_rows.hpp>
#include <ddpxx/nn/cpu/norm_rows.hpp>
#include <ddpxx/nn/cpu/products.hpp>
#include <ddpxx/nn/cpu/ranges.hpp>

namespace ddpxx::detail {

inline constexpr double kBlockEpsilon = 1e-5;

/// What the forward pass of a block keeps for its backward pass.
struct BlockState {
  at::Tensor qkv;         ///< [N, 3C], before the bias.
  at::Tensor attended;    ///< [N, C], the result of attention before the projection.
  at::Tensor log_sums;    ///< [B, H, T], the logarithm of the sum of exponentials of each query's scores.
  at::Tensor sum;         ///< [N, C], s in block_forward().
  at::Tensor wide;        ///< [N, F], before bias and GELU.
  at::Tensor statistics;  ///< [4, N]: mean and 1 / standard deviation of the rows of both norms.
};

/// The sizes of a block's input.
struct BlockSizes {
  BlockSizes(const at::Tensor& x_BTC, std::int64_t number_of_heads)
      : batch{x_BTC.size(0)}, tokens{x_BTC.size(1)}, width{x_BTC.size(2)}, heads{number_of_heads} {}
  std::int64_t batch, tokens, width, heads;

  std::int64_t rows() const { return batch * tokens; }
  HeadSizes head() const {
    return {.tokens = tokens, .width = width / heads, .stride = 3 * width, .out_stride = width};
  }
  /// Queries, keys and values of head `i` of all heads of the batch, in a joint projection.
  template <class Number>
  HeadParts<Number> parts(Number* qkv, std::int64_t i) const {
    auto* const q = qkv + i / heads * tokens * 3 * width + i % heads * (width / heads);
    return {q, q + width, q + 2 * width};
  }
  /// The biases of head `i`.
  HeadParts<const float> biases(const at::Tensor& qkv_bias, std::int64_t i) const {
    const float* const q = floats(qkv_bias) + i % heads * (width / heads);
    return {q, q + width, q + 2 * width};
  }
  /// Where the result of head `i` begins.
  std::int64_t out_offset(std::int64_t i) const { return i / heads * tokens * width + i % heads * (width / heads); }
};

inline NormRows first_norm(const BlockParameters& p, const at::Tensor& statistics, const BlockSizes& sizes) {
  float* const rows = writable_floats(statistics);
  return {floats(p.norm_1_weight), floats(p.norm_1_bias), rows, rows + sizes.rows(), sizes.width};
}
inline NormRows second_norm(const BlockParameters& p, const at::Tensor& statistics, const BlockSizes& sizes) {
  float* const rows = writable_floats(statistics) + 2 * sizes.rows();
  return {floats(p.norm_2_weight), floats(p.norm_2_bias), rows, rows + sizes.rows(), sizes.width};
}

/// `tensor` itself if it has floats, so that a pass over it may write its result there; else memory for as many floats.
inline at::Tensor in_floats(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? tensor : at::empty(tensor.sizes(), tensor.options().dtype(at::kFloat));
}

/// Computes s = x + projection(attention(norm_1(x))), and s + narrow(gelu(widen(norm_2(s)))). The operands and results
/// of the products with the four weights have type `Number`; attention computes in float32. `state` gets what the
/// backward pass needs.
template <class Number>
at::Tensor block_forward(const at::Tensor& x_BTC, const BlockParameters& p, std::int64_t heads, BlockState& state) {
  const BlockSizes sizes{x_BTC, heads};
  const std::int64_t B = sizes.batch, T = sizes.tokens, C = sizes.width, H = sizes.heads, N = sizes.rows(), F = 4 * C,
                     D = C / H;
  const auto options = x_BTC.options(), number = options.dtype(c10::CppTypeToScalarType<Number>::value);
  const Ranges rows{N, 64}, all_heads{B * H, 1};
  state.statistics = at::empty({4, N}, options);
  auto normed_NC = at::empty({N, C}, number);
  const auto norm_1 = first_norm(p, state.statistics, sizes), norm_2 = second_norm(p, state.statistics, sizes);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        norm_rows(lanes, norm_1, floats(x_BTC), writable_numbers<Number>(normed_NC), kBlockEpsilon, first, last);
      });

  state.qkv = times_transposed(normed_NC, p.qkv_weight);
  state.attended = at::empty({N, C}, number);
  state.log_sums = at::empty({B, H, T}, options);
  const auto head = sizes.head();
  const auto buffers = at::empty({all_heads.count, head.buffer()}, options);
  all_heads.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t range) __attribute__((always_inline)) {
        for (auto i = first; i < last; ++i)
          attend(lanes, head, sizes.parts(numbers<Number>(state.qkv), i), sizes.biases(p.qkv_bias, i),
                 writable_numbers<Number>(state.attended) + sizes.out_offset(i),
                 writable_floats(state.log_sums) + i * T, writable_floats(buffers) + range * head.buffer());
      });

  const auto projected_NC = times_transposed(state.attended, p.projection_weight);
  state.sum = at::empty({N, C}, options);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        add_norm_rows(lanes, norm_2, floats(x_BTC), numbers<Number>(projected_NC), floats(p.projection_bias),
                      writable_floats(state.sum), writable_numbers<Number>(normed_NC), kBlockEpsilon, first, last);
      });
  state.wide = times_transposed(normed_NC, p.widen_weight);
  const auto gelu_NF = at::empty({N, F}, number);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        gelu_rows(lanes, numbers<Number>(state.wide), floats(p.widen_bias), writable_numbers<Number>(gelu_NF), F, first,
                  last);
      });
  const auto narrow_NC = times_transposed(gelu_NF, p.narrow_weight);
  const auto result_NC = in_floats(narrow_NC);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t) __attribute__((always_inline)) {
        add_rows(lanes, floats(state.sum), numbers<Number>(narrow_NC), floats(p.narrow_bias),
                 writable_floats(result_NC), C, first, last);
      });
  // A view that is made here could not be changed in place.
  return at::_unsafe_view(result_NC, {B, T, C});
}

/// Which gradients of the four products' weights to compute. All other gradients are computed always.
struct WantedWeights {
  bool qkv, projection, widen, narrow;
};

/// Returns the gradients of a block's input and of its 12 parameters, in the order of BlockParameters; undefined for
/// weights that are not wanted.
template <class Number>
torch::autograd::variable_list block_backward(const at::Tensor& d_result_BTC, const at::Tensor& x_BTC,
                                              const BlockParameters& p, std::int64_t heads, const BlockState& state,
                                              const WantedWeights& wanted) {
  const BlockSizes sizes{x_BTC, heads};
  const std::int64_t B = sizes.batch, T = sizes.tokens, C = sizes.width, H = sizes.heads, N = sizes.rows(), F = 4 * C,
                     D = C / H;
  const auto options = x_BTC.options(), number = options.dtype(c10::CppTypeToScalarType<Number>::value);
  const Ranges rows{N, 64}, all_heads{B * H, 1};
  const auto d_result_NC = d_result_BTC.contiguous().view({N, C}), d_narrow_NC = d_result_NC.to(number);
  const auto norm_1 = first_norm(p, state.statistics, sizes), norm_2 = second_norm(p, state.statistics, sizes);
  ColumnSums sums{rows, 13 * C, options};
  const auto weight_gradient = [](const at::Tensor& weight, bool is_wanted, const at::Tensor& d_out,
                                  const at::Tensor& in) {
    return is_wanted ? transposed_times(d_out, in, GradientHooks::place_of(weight)) : at::Tensor{};
  };

  // The feed-forward half.
  const auto d_wide_NF = times(d_narrow_NC, p.narrow_weight);
  const auto gelu_NF = at::empty({N, F}, number);
  const auto d_widen_bias = sums.part(p.widen_bias);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t i) __attribute__((always_inline)) {
        gelu_backward_rows(lanes, numbers<Number>(state.wide), floats(p.widen_bias),
                           writable_numbers<Number>(d_wide_NF), writable_numbers<Number>(gelu_NF),
                           d_widen_bias.of_range(i), F, first, last);
      });
  const auto d_narrow_weight = weight_gradient(p.narrow_weight, wanted.narrow, d_narrow_NC, gelu_NF);
  const auto d_feed_forward_in_NC = times(d_wide_NF, p.widen_weight), d_sum_NC = in_floats(d_feed_forward_in_NC);
  const auto normed_NC = at::empty({N, C}, number);
  const auto d_norm_2_weight = sums.part(p.norm_2_weight), d_norm_2_bias = sums.part(p.norm_2_bias),
             d_narrow_bias = sums.part(p.narrow_bias), d_projection_bias = sums.part(p.projection_bias);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t i) __attribute__((always_inline)) {
        norm_backward_rows(lanes, norm_2, floats(state.sum), floats(d_result_NC), numbers<Number>(d_feed_forward_in_NC),
                           writable_floats(d_sum_NC), writable_numbers<Number>(normed_NC),
                           {d_norm_2_weight.of_range(i), d_norm_2_bias.of_range(i), d_narrow_bias.of_range(i),
                            d_projection_bias.of_range(i)},
                           first, last);
      });
  const auto d_widen_weight = weight_gradient(p.widen_weight, wanted.widen, d_wide_NF, normed_NC);

  // The attention.
  const auto d_projected_NC = d_sum_NC.to(number);
  const auto d_projection_weight =
      weight_gradient(p.projection_weight, wanted.projection, d_projected_NC, state.attended);
  const auto d_attended_NC = times(d_projected_NC, p.projection_weight);
  const auto d_qkv_NC = at::empty({N, 3 * C}, number);
  const auto head = sizes.head();
  const auto buffers = at::empty({all_heads.count, head.backward_buffer()}, options);
  all_heads.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t range) __attribute__((always_inline)) {
        for (auto i = first; i < last; ++i)
          attend_backward(lanes, head, sizes.parts(numbers<Number>(state.qkv), i), sizes.biases(p.qkv_bias, i),
                          HeadGradient<Number>{numbers<Number>(state.attended) + sizes.out_offset(i),
                                               floats(state.log_sums) + i * T,
                                               numbers<Number>(d_attended_NC) + sizes.out_offset(i)},
                          sizes.parts(writable_numbers<Number>(d_qkv_NC), i),
                          writable_floats(buffers) + range * head.backward_buffer());
      });
  const auto d_attention_in_NC = times(d_qkv_NC, p.qkv_weight), d_x_NC = in_floats(d_attention_in_NC);
  const auto d_norm_1_weight = sums.part(p.norm_1_weight), d_norm_1_bias = sums.part(p.norm_1_bias),
             d_qkv_bias = sums.part(p.qkv_bias);
  rows.for_each(
      D, [&](auto lanes, std::int64_t first, std::int64_t last, std::int64_t i) __attribute__((always_inline)) {
        norm_backward_rows(lanes, norm_1, floats(x_BTC), floats(d_sum_NC), numbers<Number>(d_attention_in_NC),
                           writable_floats(d_x_NC), writable_numbers<Number>(normed_NC),
                           {d_norm_1_weight.of_range(i), d_norm_1_bias.of_range(i), nullptr, nullptr}, first, last);
        add_columns(lanes, numbers<Number>(d_qkv_NC), d_qkv_bias.of_range(i), 3 * C, first, last);
      });
  const auto d_qkv_weight = weight_gradient(p.qkv_weight, wanted.qkv, d_qkv_NC, normed_NC);
  return {d_x_NC.view({B, T, C}), d_norm_1_weight.total(), d_norm_1_bias.total(),     d_qkv_weight,
          d_qkv_bias.total(),     d_projection_weight,     d_projection_bias.total(), d_norm_2_weight.total(),
          d_norm_2_bias.total(),  d_widen_weight,          d_widen_bias.total(),      d_narrow_weight,
          d_narrow_bias.total()};
}

}  // namespace ddpxx::detail

#endif
