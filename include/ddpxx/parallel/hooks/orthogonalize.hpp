// ddpxx/parallel/hooks/orthogonalize.hpp — thin matrices with orthonormal columns, for PowerSGD.
#pragma once

#include <cstdint>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/norm.h>

namespace ddpxx::detail {

/// Makes the columns orthonormal, in place; a column of zeros stays zeros. `epsilon` is added to the length of a
/// column, up to rank 2.
inline void orthogonalize(at::Tensor matrix, double epsilon = 0.0) {
  const bool half = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (matrix.size(1) > 2 && !half) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    auto column = matrix.narrow(1, i, 1);
    const auto length = at::norm(column, 2, 0, /*keepdim=*/true).add_(epsilon);
    column.div_(length.masked_fill(length == 0, 1.0));
    auto rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    // Two passes: of a column that depends on this one, the first pass leaves rounding errors only, which are not
    // orthogonal to it.
    for (int pass = 0; pass < 2; ++pass) rest.sub_((column * rest).sum(0, /*keepdim=*/true) * column);
  }
}

/// Sets columns of zeros, and columns with an element that is not finite, to ones. Otherwise no later step would change
/// anything after a step whose gradients were zeros or overflowed.
inline void revive(at::Tensor matrix) {
  matrix.masked_fill_(at::isfinite(matrix).all(0, /*keepdim=*/true).logical_not_(), 1.0);
  matrix.masked_fill_((matrix == 0).all(0, /*keepdim=*/true), 1.0);
}

}  // namespace ddpxx::detail
