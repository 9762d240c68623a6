// ddpxx/nn/bias_gelu_inl.hpp — the definitions of bias_gelu.hpp.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/bias_gelu.hpp>
#include <ddpxx/nn/first_derivative.hpp>
#include <ddpxx/nn/kernels/bias_gelu_kernels.hpp>
#include <ddpxx/nn/kernels/driver.hpp>

namespace ddpxx {

namespace detail {

/// The version for a CPU, made of operations of ATen. It computes 16 bits in float32, as the kernels do.
inline at::Tensor bias_gelu_forward(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate) {
  const auto type = at::toOpMathType(x.scalar_type());
  return at::gelu(x.to(type) + bias.to(type), approximate).to(x.scalar_type());
}

inline BiasGeluGradients bias_gelu_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& bias,
                                            std::string_view approximate) {
  const auto type = at::toOpMathType(x.scalar_type());
  const auto gradient = at::gelu_backward(d_y.to(type), x.to(type) + bias.to(type), approximate);
  return {gradient.to(x.scalar_type()), gradient.reshape({-1, bias.size(0)}).sum(0).to(bias.scalar_type())};
}

class BiasGeluFunction : public torch::autograd::Function<BiasGeluFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            const std::string& approximate) {
    context->save_for_backward({x, bias});
    context->saved_data["approximate"] = approximate;
    return x.is_cuda() ? bias_gelu_forward_by_kernel(x, bias, approximate, launch_on_gpu)
                       : bias_gelu_forward(x, bias, approximate);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    check_first_derivative("bias_gelu");
    const auto saved = context->get_saved_variables();
    const auto& approximate = context->saved_data["approximate"].toStringRef();
    const c10::OptionalDeviceGuard device{saved[0].device()};
    const auto found = saved[0].is_cuda()
                           ? bias_gelu_backward_by_kernel(gradients[0], saved[0], saved[1], approximate, launch_on_gpu)
                           : bias_gelu_backward(gradients[0], saved[0], saved[1], approximate);
    return {found.x, found.bias, {}};
  }
};

}  // namespace detail

DDPXX_INLINE at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate) {
  if (x.dim() < 1 || bias.dim() != 1 || bias.size(0) != x.size(-1))
    throw Error{Errc::config, (std::ostringstream{} << "bias_gelu: x " << x.sizes() << " and bias " << bias.sizes()
                                                    << " do not fit: pass [..., F] and [F]")
                                  .str()};
  if (bias.device() != x.device())
    throw Error{Errc::config, "bias_gelu: x is on " + x.device().str() + " and bias on " + bias.device().str() +
                                  ": pass tensors of one device"};
  if (approximate != "tanh" && approximate != "none")
    throw Error{Errc::config, "bias_gelu: approximate is \"" + std::string{approximate} + "\"; pass tanh or none"};
  const auto no_autocast = AutocastScope::off(x.device().type());
  const c10::OptionalDeviceGuard device{x.device()};
  return detail::BiasGeluFunction::apply(x, bias, std::string{approximate});
}

}  // namespace ddpxx
