// ddpxx/optim/clip.hpp — the global gradient norm, clipping by it and by value; nothing is read on the host.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// The L2 norm of all gradients together.
/// Shapes  0-dim, on the gradients' device.
/// Ranks   Local, except for `sum_over_shards`, which adds the other ranks' squares if slices are shards.
template <class SumOverShards>
at::Tensor gradient_norm(std::span<const Slice> slices, SumOverShards&& sum_over_shards) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const auto& slice : slices) norms.push_back(at::linalg_vector_norm(slice.gradients));
  const auto square = norms.empty() ? at::zeros({}) : at::stack(norms).square_().sum();
  return sum_over_shards(square).sqrt();
}

/// Scales all gradients by one factor so that their norm, given as `norm`, becomes at most `max_norm`.
/// Source  Pascanu et al. 2013, arXiv:1211.5063; the factor is torch.nn.utils.clip_grad_norm_'s.
inline void clip_by_norm(std::span<const Slice> slices, const at::Tensor& norm, double max_norm) {
  const c10::NoGradGuard no_grad;
  const auto factor = (max_norm / (norm + 1e-6)).clamp_max_(1.0);
  for (const auto& slice : slices) at::Tensor{slice.gradients}.mul_(factor);
}

/// The number by which gradients with this norm are divided so that their norm becomes at most `max_norm`: the inverse
/// of clip_by_norm's factor, for an optimizer that divides while it reads them. Shapes  0-dim, float32.
inline at::Tensor clip_divisor(const at::Tensor& norm, double max_norm) {
  const c10::NoGradGuard no_grad;
  return ((norm + 1e-6) / max_norm).clamp_min_(1.0).to(at::kFloat);
}

/// Clamps every element of the gradients to [-max_value, max_value]; NaN stays NaN.
/// Ranks   Local; the result does not depend on how the gradients are cut into slices.
/// Errors  `config` for a `max_value` below 0, which would also write into the gaps between parameters.
/// Source  torch.nn.utils.clip_grad_value_.
inline void clip_by_value(std::span<const Slice> slices, double max_value) {
  if (!(max_value >= 0))
    throw Error{Errc::config,
                "clip_by_value: max_value is " + std::to_string(max_value) + "; give a bound of at least 0"};
  const c10::NoGradGuard no_grad;
  for (const auto& slice : slices) at::Tensor{slice.gradients}.clamp_(-max_value, max_value);
}

}  // namespace ddpxx
