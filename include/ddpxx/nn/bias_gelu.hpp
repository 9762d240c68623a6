// ddpxx/nn/bias_gelu.hpp — the addition of a bias and GELU, in one kernel forward and one backward.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// GELU of `x + bias`, computed in float32 and rounded once to the type of `x`. `approximate` is "tanh" or "none", as
/// in at::gelu. On a GPU each pass is one kernel, which NVRTC compiles at its first use.
/// Shapes  `x` [..., F], `bias` [F]; the result has the shape of `x`.
/// Errors  `config` for other shapes, and for another `approximate`; in backward, if it is to create a graph; on a GPU
///         for types other than float32, bfloat16 and float16, and where NVRTC is not found.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/bias_gelu_inl.hpp>
#endif
