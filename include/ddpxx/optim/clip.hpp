// ddpxx/optim/clip.hpp — the global gradient norm, clipping by it and by value; nothing is read on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/flat/number.hpp>

namespace ddpxx {

/// The gradients of each parameter that these slices hold, or hold a part of, sorted by the position of the parameter's
/// name in `names`; parameters that are not in `names` come last. A slice that does not tell its parameters counts as
/// one parameter. Those of `parameters` that have no elements lie in no slice, and add a gradient without elements, as
/// in Python: the number of gradients decides in which order their norms are added up.
/// Shapes  1-D views of the slices' gradients.
inline std::vector<at::Tensor> parameter_gradients(std::span<const Slice> slices,
                                                   std::span<const std::string> names = {},
                                                   std::span<const ArenaEntry> parameters = {}) {
  std::unordered_map<std::string_view, std::size_t> positions;
  for (const auto& name : names) positions.emplace(name, positions.size());
  std::vector<std::pair<std::size_t, at::Tensor>> parts;
  const auto add = [&](const ArenaEntry& parameter, const at::Tensor& gradient) {
    const auto found = positions.find(parameter.name);
    parts.emplace_back(found == positions.end() ? names.size() : found->second, gradient);
  };
  for (const auto& slice : slices) {
    if (slice.parameters.empty()) parts.emplace_back(names.size(), slice.gradients);
    for (const auto& entry : slice.entries()) add(*entry.parameter, slice.gradients.narrow(0, entry.begin, entry.size));
  }
  if (!slices.empty())
    for (const auto& parameter : parameters)
      if (parameter.numel == 0) add(parameter, slices.front().gradients.narrow(0, 0, 0));
  std::ranges::stable_sort(parts, {}, [](const auto& part) { return part.first; });
  std::vector<at::Tensor> gradients;
  for (auto& [position, gradient] : parts) gradients.push_back(std::move(gradient));
  return gradients;
}

namespace detail {

/// The values of 0-dim tensors. Shapes  [number of tensors].
inline at::Tensor joined(const std::vector<at::Tensor>& scalars) {
  const auto& first = scalars.front();
  const bool can_be_copied = !InterceptedOperations::active() && std::ranges::all_of(scalars, [&](const auto& scalar) {
    return scalar.is_cpu() && scalar.scalar_type() == first.scalar_type();
  });
  if (!can_be_copied) return at::stack(scalars);
  // at::stack starts two operations for each of them.
  auto values = at::empty({std::ssize(scalars)}, first.options());
  auto* to = static_cast<std::byte*>(values.mutable_data_ptr());
  for (const auto& scalar : scalars) {
    std::memcpy(to, scalar.const_data_ptr(), scalar.itemsize());
    to += scalar.itemsize();
  }
  return values;
}

}  // namespace detail

/// The L2 norm of all gradients together, made of the norm of each as by torch.nn.utils.clip_grad_norm_: it has the
/// bits of Python's where the gradients are those of whole parameters in the order of the model. Norms whose square
/// their type cannot hold become infinite or 0.
/// Shapes  0-dim, on the gradients' device; with the type and device of `options` if there are no gradients.
/// Ranks   Local, except for `sum_over_shards`, which adds the other ranks' squares if the gradients are shards.
template <class SumOverShards>
at::Tensor gradient_norm(at::TensorList gradients, const at::TensorOptions& options, SumOverShards&& sum_over_shards) {
  const c10::NoGradGuard no_grad;
  const auto norm =
      gradients.empty() ? at::zeros({}, options) : at::linalg_vector_norm(detail::joined(at::_foreach_norm(gradients)));
  // The root of a number's square is the number, bit for bit. float16 could not hold the square of a norm above 255.
  const auto type = norm.scalar_type(), type_of_square = at::isReducedFloatingType(type) ? at::kFloat : type;
  return sum_over_shards(norm.to(type_of_square).square()).sqrt().to(type);
}

/// Scales all gradients by one factor so that their norm, given as `norm`, becomes at most `max_norm`.
/// Source  Pascanu et al. 2013, arXiv:1211.5063; the factor has the bits of that of torch.nn.utils.clip_grad_norm_ in
///         Python.
inline void clip_by_norm(std::span<const Slice> slices, const at::Tensor& norm, double max_norm) {
  const c10::NoGradGuard no_grad;
  // Python divides a number by a tensor by taking the reciprocal first, so that the factor is rounded twice. A division
  // has another last bit for many limits that are not a power of two.
  const auto factor = (norm + 1e-6).reciprocal_().mul_(as_number(max_norm)).clamp_max_(1.0);
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
