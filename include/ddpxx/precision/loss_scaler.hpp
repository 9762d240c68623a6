// ddpxx/precision/loss_scaler.hpp — keeps small float16 gradients from becoming zero, by scaling the loss.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/precision/loss_scaler_config.hpp>

namespace ddpxx {

/// A scale that grows as long as gradients stay finite, and falls when they do not. One step is
///
///     loss.backward(scaler.scale(seed));                // each micro-batch, by the same scale
///     const auto found_inf = scaler.unscale(slices);    // before the gradients' norm is taken
///     ...                                               // clip; step, unless found_inf
///     scaler.update(found_inf);
///
/// Nothing is read on the host: the optimizer skips a step on the device.
/// Ranks   Local. Ranks that hold different gradients must first agree on `found_inf` (by its maximum), or their scales
///         would differ; equal gradients give equal scales.
/// Source  Micikevicius et al. 2017, arXiv:1710.03740, section 3.2; the results equal those of torch.amp.GradScaler.
class LossScaler {
 public:
  /// `device` is where the gradients lie.
  LossScaler(const LossScalerConfig& config, at::Device device)
      : config_{config},
        scale_{at::full({}, config.initial_scale, at::TensorOptions{device}.dtype(at::kFloat))},
        growth_tracker_{at::zeros({}, at::TensorOptions{device}.dtype(at::kInt))} {}

  /// The seed gradient of a backward pass, multiplied by the scale.
  /// Shapes  `loss_seed` 0-dim float32; float16 could not hold the scale.
  at::Tensor scale(const at::Tensor& loss_seed) const { return loss_seed * scale_; }

  /// Divides the gradients of `slices` by the scale, in place.
  /// Shapes  Result: 0-dim float32, 1 if any gradient is inf or NaN, else 0.
  at::Tensor unscale(std::span<const Slice> slices) const {
    const c10::NoGradGuard no_grad;
    auto found_inf = at::zeros({}, scale_.options());
    std::vector<at::Tensor> gradients;
    gradients.reserve(slices.size());
    for (const auto& slice : slices)
      if (slice.gradients.defined()) gradients.push_back(slice.gradients);
    // As GradScaler does, the inverse is computed in double: some devices do not divide float32 exactly.
    const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
    if (!gradients.empty()) at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse);
    return found_inf;
  }

  /// Call once in each step. Reduces the scale if `found_inf` is 1; else grows it after `growth_interval` such steps.
  void update(const at::Tensor& found_inf) {
    const c10::NoGradGuard no_grad;
    at::_amp_update_scale_(scale_, growth_tracker_, found_inf, config_.growth_factor, config_.backoff_factor,
                           config_.growth_interval);
  }

  /// The state, under the names that a snapshot uses; copying into these tensors restores it.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    return {{"scale", scale_}, {"growth_tracker", growth_tracker_}};
  }

  LossScaler(LossScaler&&) noexcept = default;  // a copy would share the scale
  LossScaler& operator=(LossScaler&&) noexcept = default;

 private:
  LossScalerConfig config_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
};

static_assert(ScalesLoss<LossScaler>);

}  // namespace ddpxx
