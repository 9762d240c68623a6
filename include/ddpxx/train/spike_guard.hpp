// ddpxx/train/spike_guard.hpp — finds the steps whose gradients are too large to be used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>

namespace ddpxx {

/// Compares the norm of each step's gradients with the moving average of the norms before, on the device. The newest
/// norm has a weight of 1/20 in the average, and the first ones count as in an ordinary mean.
class SpikeGuard {
 public:
  /// During this many first steps only norms that are not finite count as spikes.
  static constexpr int kFirstSteps = 20;

  SpikeGuard(double factor, at::Device device)
      : factor_{factor},
        average_{at::zeros({}, at::TensorOptions{}.dtype(at::kDouble).device(device))},
        steps_{at::zeros_like(average_)} {}

  /// Returns 1 if `norm` is not finite or more than `factor` times the average, else 0, and adds it to the average. A
  /// norm above that limit counts as the limit: if the norms of a run stay high, they pass after some steps.
  /// Shapes  0-dim.
  /// Ranks   Local; equal norms give equal results.
  at::Tensor check(const at::Tensor& norm) {
    const c10::NoGradGuard no_grad;
    const auto value = norm.to(at::kDouble), limit = average_ * factor_;
    const auto is_finite = at::isfinite(value);
    // An average of 0 says nothing: the model may have begun to learn only now.
    const auto is_spike = value.gt(limit).logical_and_(steps_.ge(kFirstSteps)).logical_and_(limit.gt(0));
    const auto weight = (steps_ + 1).reciprocal_().clamp_min_(1.0 / 20);
    const auto change = (at::where(is_spike, limit, value) - average_) * weight;
    average_.add_(at::where(is_finite, change, at::zeros_like(change)));
    steps_.add_(is_finite);
    return is_finite.logical_not().logical_or_(is_spike).to(at::kFloat);
  }

  /// The average and the number of norms in it, for snapshots to write and to read into.
  std::vector<std::pair<std::string, at::Tensor>> state() const { return {{"average", average_}, {"steps", steps_}}; }

 private:
  double factor_;
  at::Tensor average_, steps_;
};

}  // namespace ddpxx
