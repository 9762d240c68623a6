// ddpxx/nn/fused_block_inl.hpp — the definitions of fused_block.hpp.
// Shape suffixes: B batch, T tokens, C width, H heads, D width of a head, N = B T rows, F = 4C.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/gradients.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/cpu/attention_rows.hpp>
#include <ddpxx/nn/cpu/gelu_rows.hpp>
#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/cpu/norm_rows.hpp>
#include <ddpxx/nn/cpu/products.hpp>
#include <ddpxx/nn/cpu/ranges.hpp>
#include <ddpxx/nn/fused_block.hpp>

namespace ddpxx {

namespace detail {

inline constexpr double kBlockEpsilon = 1e-5;

#if defined(__x86_64__)

/// What the forward pass of a block keeps for its backward pass.
struct BlockState {
  at::Tensor qkv;         ///< [N, 3C], before the bias.
  at::Tensor attended;    ///< Before the projection.
  at::Tensor log_sums;    ///< See attend().
  at::Tensor sum;         ///< x + attention(norm(x))
  at::Tensor wide;        ///< Before bias and GELU.
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

/// Computes a block whose products have operands and results of type `Number`; `state` gets what the backward pass
/// needs.
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

/// The gradients of parameters that are sums over rows, such as biases. Each range of rows adds up its own sums. All
/// sums share one tensor, because to make a tensor takes as long as to add up the sums of a small block.
class ColumnSums {
 public:
  /// `width` is the number of elements of all parameters together.
  ColumnSums(const Ranges& rows, std::int64_t width, const at::TensorOptions& options)
      : sums_{at::zeros({rows.count, width}, options)} {}

  /// The sums for one parameter.
  class Part {
   public:
    float* of_range(std::int64_t range) const { return first_ + range * stride_; }
    /// The sums of all ranges, in the place of the parameter's gradient if it has one.
    at::Tensor total() const {
      auto total = GradientHooks::place_of(parameter_);
      if (!total.defined()) total = at::empty(parameter_.sizes(), parameter_.options());
      auto* const values = writable_floats(total);
      std::copy_n(first_, total.numel(), values);
      for (std::int64_t range = 1; range < ranges_; ++range)
        for (std::int64_t i = 0; i < total.numel(); ++i) values[i] += of_range(range)[i];
      return total;
    }

   private:
    friend ColumnSums;
    Part(at::Tensor parameter, float* first, const at::Tensor& sums)
        : parameter_{std::move(parameter)}, first_{first}, stride_{sums.size(1)}, ranges_{sums.size(0)} {}

    at::Tensor parameter_;
    float* first_;
    std::int64_t stride_, ranges_;
  };
  /// The sums for `parameter`. They lie behind those of the previous call.
  Part part(const at::Tensor& parameter) {
    const auto column = std::exchange(column_, column_ + parameter.numel());
    return {parameter, writable_floats(sums_) + column, sums_};
  }

 private:
  at::Tensor sums_;
  std::int64_t column_ = 0;
};

/// The weights of the four products whose gradients are wanted; all other gradients cost little.
struct WantedWeights {
  bool qkv, projection, widen, narrow;
};

/// The gradients of a block's input and, in order, of its parameters, for products as in block_forward().
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

/// The backward pass of a block, as autograd's graph holds it. torch::autograd::Function would keep each saved tensor
/// and number in memory of its own, and its bookkeeping takes longer than some products of a small block.
class BlockNode final : public torch::autograd::Node {
 public:
  /// The block's result, with a node behind it where a gradient is wanted.
  static at::Tensor compute(const at::Tensor& x_BTC, const BlockParameters& parameters, std::int64_t heads) {
    const bool has_gradient = c10::GradMode::is_enabled() && wants_gradient(x_BTC, parameters);
    BlockState state;
    at::Tensor input_BTC, result_BTC;
    {
      const at::AutoDispatchBelowADInplaceOrView no_graph;
      input_BTC = x_BTC.contiguous();
      const auto forward = AutocastState::of(at::kCPU).enabled ? block_forward<c10::BFloat16> : block_forward<float>;
      result_BTC = forward(input_BTC, parameters, heads, state);
    }
    if (!has_gradient) return result_BTC;
    // Node's own deleter ends a deep graph without a deep recursion.
    const std::shared_ptr<BlockNode> node{
        new BlockNode{std::move(input_BTC), x_BTC, parameters, heads, std::move(state)}, torch::autograd::deleteNode};
    torch::autograd::set_history(result_BTC, node);
    return result_BTC;
  }

  std::string name() const override { return "FusedBlock"; }

  void release_variables() override {
    const std::lock_guard lock{mutex_};
    saved_.reset();
  }

 private:
  /// The graph's inputs, in order, are x and the parameters.
  static constexpr std::size_t kParameters = 12;

  struct Saved {
    at::Tensor input;
    BlockParameters parameters;
    BlockState state;
  };

  BlockNode(at::Tensor input_BTC, const at::Tensor& x_BTC, const BlockParameters& parameters, std::int64_t heads,
            BlockState&& state)
      : heads_{heads} {
    add_next_edge(torch::autograd::impl::gradient_edge(x_BTC));
    for (const auto* parameter : all_of(parameters)) add_next_edge(torch::autograd::impl::gradient_edge(*parameter));
    saved_.emplace(Saved{std::move(input_BTC), parameters, std::move(state)});
    versions_ = versions();
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const std::lock_guard lock{mutex_};
    if (c10::GradMode::is_enabled())
      throw Error{Errc::config,
                  "fused_block has no second derivative: call backward without create_graph, or set "
                  "model.fused=false"};
    if (!saved_)
      throw Error{Errc::config,
                  "fused_block: backward was called a second time, and the first call has freed what it needs: set "
                  "retain_graph in the first call"};
    if (versions_ != versions())
      throw Error{Errc::config,
                  "fused_block: its input or a parameter was changed in place after the forward pass, and backward "
                  "needs the values from before: change it after backward"};
    if (!gradients[0].defined()) return torch::autograd::variable_list(1 + kParameters);
    const at::AutoDispatchBelowADInplaceOrView no_graph;
    auto autocast = AutocastState::of(at::kCPU);
    autocast.enabled = false;  // backward may be called inside of a scope that forward did not see
    const AutocastScope no_autocast{autocast};
    const auto backward =
        saved_->state.qkv.scalar_type() == at::kBFloat16 ? block_backward<c10::BFloat16> : block_backward<float>;
    return backward(gradients[0], saved_->input, saved_->parameters, heads_, saved_->state,
                    {.qkv = task_should_compute_output(3),
                     .projection = task_should_compute_output(5),
                     .widen = task_should_compute_output(9),
                     .narrow = task_should_compute_output(11)});
  }

  static std::array<const at::Tensor*, kParameters> all_of(const BlockParameters& p) {
    return {&p.norm_1_weight, &p.norm_1_bias, &p.qkv_weight,   &p.qkv_bias,   &p.projection_weight, &p.projection_bias,
            &p.norm_2_weight, &p.norm_2_bias, &p.widen_weight, &p.widen_bias, &p.narrow_weight,     &p.narrow_bias};
  }
  static bool wants_gradient(const at::Tensor& x_BTC, const BlockParameters& parameters) {
    const auto all = all_of(parameters);
    return x_BTC.requires_grad() ||
           std::ranges::any_of(all, [](const at::Tensor* parameter) { return parameter->requires_grad(); });
  }
  /// How often each of the tensors was changed in place.
  std::array<std::int64_t, 1 + kParameters> versions() const {
    std::array<std::int64_t, 1 + kParameters> all{saved_->input._version()};
    const auto parameters = all_of(saved_->parameters);
    for (std::size_t i = 0; i < kParameters; ++i) all[1 + i] = parameters[i]->_version();
    return all;
  }

  std::int64_t heads_;
  std::optional<Saved> saved_;  ///< None once backward has freed it.
  std::array<std::int64_t, 1 + kParameters> versions_{};
};

#endif

}  // namespace detail

DDPXX_INLINE bool fused_block_runs([[maybe_unused]] const at::Tensor& x_BTC, [[maybe_unused]] const BlockParameters& p,
                                   [[maybe_unused]] std::int64_t heads) {
#if defined(__x86_64__)
  if (x_BTC.dim() != 3 || x_BTC.numel() == 0 || heads < 1 || x_BTC.size(2) % (8 * heads) != 0) return false;
  if (InterceptedOperations::active() || !detail::cpu_has_avx2()) return false;
  if (const auto autocast = AutocastState::of(at::kCPU); autocast.enabled && autocast.type != at::kBFloat16)
    return false;
  const auto is_float = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
  };
  const auto fits = [&](const at::Tensor& parameter, at::IntArrayRef sizes) {
    return is_float(parameter) && parameter.sizes() == sizes && parameter.is_contiguous();
  };
  const auto C = x_BTC.size(2);
  return is_float(x_BTC) && fits(p.norm_1_weight, {C}) && fits(p.norm_1_bias, {C}) && fits(p.qkv_weight, {3 * C, C}) &&
         fits(p.qkv_bias, {3 * C}) && fits(p.projection_weight, {C, C}) && fits(p.projection_bias, {C}) &&
         fits(p.norm_2_weight, {C}) && fits(p.norm_2_bias, {C}) && fits(p.widen_weight, {4 * C, C}) &&
         fits(p.widen_bias, {4 * C}) && fits(p.narrow_weight, {C, 4 * C}) && fits(p.narrow_bias, {C});
#else
  return false;
#endif
}

DDPXX_INLINE at::Tensor fused_block(const at::Tensor& x_BTC, const BlockParameters& p, std::int64_t heads) {
  if (!fused_block_runs(x_BTC, p, heads))
    throw Error{Errc::config,
                (std::ostringstream{}
                 << "fused_block: cannot compute " << x_BTC.toString() << " " << x_BTC.sizes() << " with " << heads
                 << " heads: pass float32 on an x86-64 CPU with AVX2, without autocast or with "
                    "autocast to bfloat16, where the width of a head is a multiple of 8, and contiguous parameters "
                    "of the sizes in fused_block.hpp")
                    .str()};
#if defined(__x86_64__)
  return detail::BlockNode::compute(x_BTC, p, heads);
#else
  return x_BTC;
#endif
}

}  // namespace ddpxx
