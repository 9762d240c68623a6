// ddpxx/nn/add_norm_inl.hpp — the definitions of add_norm.hpp.
// Shape suffixes: N rows, C width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/add_norm.hpp>
#include <ddpxx/nn/first_derivative.hpp>
#include <ddpxx/nn/kernels/add_norm_kernels.hpp>
#include <ddpxx/nn/kernels/driver.hpp>

namespace ddpxx {

namespace detail {

/// The tensor in this type, also one that is undefined.
inline at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

/// The version for a CPU, made of operations of ATen. It computes 16 bits in float32, as the kernels do. Without y,
/// which is undefined then, the sum is x itself.
inline AddNormParts add_norm_forward(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                                     const at::Tensor& bias, double epsilon, at::ScalarType normed_type) {
  AddNormParts parts;
  parts.sum = y.defined() ? x + y : x;
  const auto type = at::toOpMathType(parts.sum.scalar_type());
  std::tie(parts.normed, parts.mean, parts.rstd) =
      at::native_layer_norm(parts.sum.to(type), {weight.numel()}, weight.to(type), in_type(bias, type), epsilon);
  parts.normed = parts.normed.to(normed_type);
  return parts;
}

/// The gradients of x, y, weight and bias. `d_sum` is undefined if nothing else uses the sum, and `bias_type` is
/// Undefined if there is no bias.
inline AddNormGradients add_norm_backward(const at::Tensor& d_sum, const at::Tensor& d_normed, const at::Tensor& sum,
                                          const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight,
                                          at::ScalarType bias_type, at::ScalarType y_type) {
  const auto type = at::toOpMathType(sum.scalar_type());
  const auto typed_weight = weight.to(type);
  const bool has_bias = bias_type != at::ScalarType::Undefined;
  auto [d, d_weight, d_bias] =
      at::native_layer_norm_backward(d_normed.to(type), sum.to(type), {weight.numel()}, mean, rstd, typed_weight,
                                     has_bias ? at::zeros_like(typed_weight) : at::Tensor{}, {true, true, has_bias});
  if (d_sum.defined()) d = d + d_sum;
  return {d.to(sum.scalar_type()), d.to(y_type), d_weight.to(weight.scalar_type()), in_type(d_bias, bias_type)};
}

/// The type of the bias, which has none where it is undefined.
inline at::ScalarType bias_type(const at::Tensor& bias) {
  return bias.defined() ? bias.scalar_type() : at::ScalarType::Undefined;
}

/// The bias is an std::optional, because Function takes no undefined tensors.
class AddNormFunction : public torch::autograd::Function<AddNormFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                const at::Tensor& y, const at::Tensor& weight,
                                                const std::optional<at::Tensor>& given_bias, double epsilon,
                                                at::ScalarType normed_type) {
    const auto bias = given_bias.value_or(at::Tensor{});
    const auto parts = x.is_cuda() ? add_norm_forward_by_kernel(x, y, weight, bias, epsilon, normed_type, launch_on_gpu)
                                   : add_norm_forward(x, y, weight, bias, epsilon, normed_type);
    context->save_for_backward({parts.sum, parts.mean, parts.rstd, weight});
    context->saved_data["y_type"] = static_cast<std::int64_t>(y.scalar_type());
    context->saved_data["bias_type"] = static_cast<std::int64_t>(bias_type(bias));
    context->set_materialize_grads(false);
    return {parts.sum, parts.normed};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    check_first_derivative("add_norm");
    const auto saved = context->get_saved_variables();
    const auto type = [&](const char* key) { return static_cast<at::ScalarType>(context->saved_data[key].toInt()); };
    if (!gradients[0].defined() && !gradients[1].defined()) return torch::autograd::variable_list(6);
    if (!gradients[1].defined()) return {gradients[0], gradients[0].to(type("y_type")), {}, {}, {}, {}};
    const c10::OptionalDeviceGuard device{saved[0].device()};
    const auto found = saved[0].is_cuda()
                           ? add_norm_backward_by_kernel(gradients[0], gradients[1], saved[0], saved[1], saved[2],
                                                         saved[3], type("bias_type"), type("y_type"), launch_on_gpu)
                           : add_norm_backward(gradients[0], gradients[1], saved[0], saved[1], saved[2], saved[3],
                                               type("bias_type"), type("y_type"));
    return {found.x, found.y, found.weight, found.bias, {}, {}};
  }
};

/// The results are those of residual_norm().
class ResidualNormFunction : public torch::autograd::Function<ResidualNormFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                const at::Tensor& weight, const std::optional<at::Tensor>& given_bias,
                                                double epsilon, at::ScalarType normed_type) {
    const auto bias = given_bias.value_or(at::Tensor{});
    const auto parts = x.is_cuda()
                           ? add_norm_forward_by_kernel(x, {}, weight, bias, epsilon, normed_type, launch_on_gpu)
                           : add_norm_forward(x, {}, weight, bias, epsilon, normed_type);
    context->save_for_backward({x, parts.mean, parts.rstd, weight});
    context->saved_data["bias_type"] = static_cast<std::int64_t>(bias_type(bias));
    context->set_materialize_grads(false);
    return {x.detach(), parts.normed};  // an input that a Function returns could not be changed in place
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    check_first_derivative("layer_norm");
    const auto saved = context->get_saved_variables();
    const auto type = static_cast<at::ScalarType>(context->saved_data["bias_type"].toInt());
    if (!gradients[1].defined()) return {gradients[0], {}, {}, {}, {}};
    const c10::OptionalDeviceGuard device{saved[0].device()};
    const auto x_type = saved[0].scalar_type();
    const auto found =
        saved[0].is_cuda()
            ? add_norm_backward_by_kernel(gradients[0], gradients[1], in_packs(saved[0]), saved[1], saved[2], saved[3],
                                          type, x_type, launch_on_gpu)
            : add_norm_backward(gradients[0], gradients[1], saved[0], saved[1], saved[2], saved[3], type, x_type);
    return {found.x, found.weight, found.bias, {}, {}};
  }
};

/// Errors  `config` if the weight and the bias of a norm do not fit a row of `x`, or are on another device.
inline void check_norm(const char* name, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool fits = x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                    (!bias.defined() || weight.sizes() == bias.sizes());
  const auto& last = bias.defined() ? bias : weight;
  if (!fits)
    throw Error{Errc::config,
                (std::ostringstream{} << name << ": x " << x.sizes() << ", weight " << weight.sizes() << " and bias "
                                      << last.sizes() << " do not fit: pass [..., C] and [C] twice")
                    .str()};
  if (weight.device() != x.device() || last.device() != x.device())
    throw Error{Errc::config, std::string{name} + ": x is on " + x.device().str() + ", weight on " +
                                  weight.device().str() + " and bias on " + last.device().str() +
                                  ": pass tensors of one device"};
}

}  // namespace detail

DDPXX_INLINE AddNorm residual_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   double epsilon) {
  detail::check_norm("layer_norm", x, weight, bias);
  const auto normed_type = AutocastState::of(x.device().type()).type_for(x.scalar_type());
  const auto no_autocast = AutocastScope::off(x.device().type());
  const c10::OptionalDeviceGuard device{x.device()};
  const auto both = detail::ResidualNormFunction::apply(x, weight, std::optional{bias}, epsilon, normed_type);
  return {both[0], both[1]};
}

DDPXX_INLINE at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   double epsilon) {
  if (x.is_cuda()) return residual_norm(x, weight, bias, epsilon).normed;
  detail::check_norm("layer_norm", x, weight, bias);
  const auto normed_type = AutocastState::of(x.device().type()).type_for(x.scalar_type());
  const auto no_autocast = AutocastScope::off(x.device().type());
  const auto type = at::toOpMathType(x.scalar_type());
  return at::layer_norm(x.to(type), weight.sizes(), weight.to(type), detail::in_type(bias, type), epsilon)
      .to(normed_type);
}

DDPXX_INLINE AddNorm add_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                              const at::Tensor& bias, double epsilon) {
  if (x.sizes() != y.sizes() || x.device() != y.device())
    throw Error{Errc::config, (std::ostringstream{} << "add_norm: x " << x.sizes() << " on " << x.device() << " and y "
                                                    << y.sizes() << " on " << y.device() << " do not fit each other")
                                  .str()};
  detail::check_norm("add_norm", x, weight, bias);
  const auto sum_type = at::result_type(x, y);
  const auto normed_type = AutocastState::of(x.device().type()).type_for(sum_type);
  const auto no_autocast = AutocastScope::off(x.device().type());
  const c10::OptionalDeviceGuard device{x.device()};
  const auto both =
      detail::AddNormFunction::apply(x.to(sum_type), y, weight, std::optional{bias}, epsilon, normed_type);
  return {both[0], both[1]};
}

}  // namespace ddpxx
