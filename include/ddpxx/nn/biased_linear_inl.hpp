// ddpxx/nn/biased_linear_inl.hpp — the definitions of biased_linear.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/nn/biased_linear.hpp>
#include <ddpxx/nn/first_derivative.hpp>
#include <ddpxx/nn/kernels/column_sums_kernels.hpp>
#include <ddpxx/nn/kernels/driver.hpp>

namespace ddpxx {

namespace detail {

/// The version for a CPU, made of operations of ATen. It computes 16 bits in float32, as the kernels do.
inline JoinedSums joined_sums(const std::vector<at::Tensor>& parts, at::ScalarType sum_type) {
  const auto joined = parts.size() == 1 ? parts.front() : at::cat(parts, -1);
  const auto type = at::toOpMathType(joined.scalar_type());
  return {joined, joined.reshape({-1, joined.size(-1)}).sum(0, /*keepdim=*/false, type).to(sum_type)};
}

/// Cuts the result of a linear layer, to which its bias has been added already, and gives the bias its gradient.
class BiasGradientFunction : public torch::autograd::Function<BiasGradientFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& result,
                                                const at::Tensor& bias, std::int64_t num_parts) {
    context->saved_data["bias_type"] = static_cast<std::int64_t>(bias.scalar_type());
    auto parts = result.chunk(num_parts, -1);
    for (auto& part : parts) part = part.detach();  // a view that a Function returns could not be changed in place
    return parts;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    check_first_derivative("biased_linear");
    const auto bias_type = static_cast<at::ScalarType>(context->saved_data["bias_type"].toInt());
    const c10::OptionalDeviceGuard device{gradients.front().device()};
    const auto found = gradients.front().is_cuda() ? joined_sums_by_kernel(gradients, bias_type, launch_on_gpu)
                                                   : joined_sums(gradients, bias_type);
    return {found.joined, found.sums, {}};
  }
};

}  // namespace detail

DDPXX_INLINE std::vector<at::Tensor> biased_linear_parts(const at::Tensor& x, const at::Tensor& weight,
                                                         const at::Tensor& bias, std::size_t num_parts) {
  constexpr std::size_t kMaxParts = 3;
  const auto features = weight.size(0), parts = static_cast<std::int64_t>(num_parts);
  if (num_parts < 1 || num_parts > kMaxParts || features % parts != 0)
    throw Error{Errc::config, "biased_linear: " + std::to_string(features) + " features do not divide into " +
                                  std::to_string(num_parts) + " parts: pass 1 to " + std::to_string(kMaxParts) +
                                  ", of equal size"};
  if (!bias.defined() || !bias.requires_grad() || !c10::GradMode::is_enabled())
    return at::linear(x, weight, bias).chunk(parts, -1);
  return detail::BiasGradientFunction::apply(at::linear(x, weight, bias.detach()), bias, parts);
}

DDPXX_INLINE at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return biased_linear_parts(x, weight, bias, 1).front();
}

}  // namespace ddpxx
