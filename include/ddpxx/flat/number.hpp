// ddpxx/flat/number.hpp — a number as a factor of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

namespace ddpxx {

/// `value` as a tensor without dimensions that a product converts to the precision in which it computes, as it does
/// with numbers in Python. `tensor.mul_(value)` of LibTorch would round the number to the type of the tensor first,
/// which changes results in 16 bits; a plain float64 tensor would make the product with a tensor without dimensions
/// one in float64.
inline at::Tensor as_number(double value) {
  auto number = at::scalar_tensor(value, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

}  // namespace ddpxx
