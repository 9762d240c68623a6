// ddpxx/nn/add_norm.hpp — layer norms in one kernel forward and one backward, alone or behind an addition.
// Shape suffixes: N rows, C width.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddpxx {

struct AddNorm {
  at::Tensor sum;     ///< x + y, [..., C].
  at::Tensor normed;  ///< The layer norm of `sum`, [..., C].
};

/// The sum of `x` and `y`, and its layer norm, as `sum = x + y` and `layer_norm(sum)` give them but for rounding: the
/// norm is computed in float32 (on a CPU that of float64 in float64) and rounded once. The sum has the type that `x +
/// y` has, and the norm too; in autocast the norm has autocast's type, to which the next linear layer would cast it. On
/// a GPU each pass is one kernel, which NVRTC compiles at its first use.
/// Shapes  `x` and `y` [..., C], `weight` and `bias` [C]; `bias` may be undefined, which is none.
/// Errors  `config` for other shapes and for tensors of several devices; in backward, if it is to create a graph; on a
///         GPU for types other than float32, bfloat16 and float16, for a width above 4096, and where NVRTC is not
///         found.
AddNorm add_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias,
                 double epsilon = 1e-5);

/// The layer norm of `x`, computed in float32 (on a CPU that of float64 in float64) and rounded once. It has the type
/// of `x`; in autocast it has autocast's type. On a GPU each pass is one kernel, as those of add_norm().
/// Shapes  `x` [..., C], `weight` and `bias` [C]; `bias` may be undefined, which is none.
/// Errors  `config` for other shapes and for tensors of several devices; on a GPU those of add_norm().
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon = 1e-5);

/// layer_norm() of an `x` to which something is added later, such as the result of an attention: the `sum` of the
/// result has the values of `x`, and stands for it in that addition. The backward pass of the norm then adds up both
/// gradients of `x`, which autograd otherwise does by an operation of its own.
///
/// Shapes  Those of layer_norm().
/// Errors  `config` for other shapes and for tensors of several devices; in backward, if it is to create a graph; on a
///         GPU those of add_norm().
AddNorm residual_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon = 1e-5);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/add_norm_inl.hpp>
#endif
