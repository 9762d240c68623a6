// ddpxx/nn/fused_block_inl.hpp — the definitions of fused_block.hpp.
// Shape suffixes: B batch, T tokens, C width.
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
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/vector_instructions.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/block_parameters.hpp>
#include <ddpxx/nn/cpu/block_passes.hpp>
#include <ddpxx/nn/first_derivative.hpp>
#include <ddpxx/nn/fused_block.hpp>

namespace ddpxx {

namespace detail {

#if defined(__x86_64__)

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
    check_first_derivative("fused_block");
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
    // Backward may be called inside of a scope that forward did not see.
    const auto no_autocast = AutocastScope::off(at::kCPU);
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
                    "of the sizes in block_parameters.hpp")
                    .str()};
#if defined(__x86_64__)
  return detail::BlockNode::compute(x_BTC, p, heads);
#else
  return x_BTC;
#endif
}

}  // namespace ddpxx
