// ddpxx/nn/biased_linear.hpp — linear layers whose backward pass adds up the gradient of the bias in kernels.
// Shape suffixes: I inputs, F features, P features of a part.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// The result of at::linear, in autocast too. On a GPU the gradient of the bias is added up in float32 by two kernels,
/// which NVRTC compiles at their first use; LibTorch's own sum over the rows takes several times as long.
///
/// Shapes  `x` [..., I], `weight` [F, I], `bias` [F] or undefined, which is none; result [..., F].
/// Errors  In backward `config`, if it is to create a graph; on a GPU for types other than float32, bfloat16 and
///         float16, and where NVRTC is not found.
at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The result of biased_linear() in two or three parts of its features, such as queries, keys and values. On a GPU the
/// gradients of the parts are joined by the kernel that adds up the gradient of the bias.
///
/// Shapes  As biased_linear(); each part is [..., P], with P = F / num_parts.
/// Errors  Those of biased_linear(); `config` if the features do not divide into one to three parts.
std::vector<at::Tensor> biased_linear_parts(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                            std::size_t num_parts);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/biased_linear_inl.hpp>
#endif
