// ddpxx/optim/lamb_inl.hpp — definitions of lamb.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/number.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/lamb_config.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

DDPXX_INLINE LAMB::LAMB(const Config& config, const Arena& arena, SumOverShards sum_over_shards,
                        std::span<const ParameterGroup> groups)
    : config_{config},
      table_{groups, config.learning_rate, config.weight_decay},
      slices_{arena.slices()},
      sum_over_shards_{std::move(sum_over_shards)},
      moments_{make_moment("exp_avg", slices_), make_moment("exp_avg_sq", slices_)} {
  const auto options = slices_.empty() ? arena.options() : slices_.front().values.options();
  squares_ = at::zeros({2, static_cast<std::int64_t>(arena.size())},
                       options.dtype(options.dtype() == at::kDouble ? at::kDouble : at::kFloat));
  steps_ = at::zeros({}, options.dtype(at::kFloat));
  table_.check(slices_);
}

DDPXX_INLINE void LAMB::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  steps_.add_(1);
  const auto correction = [this, steps = steps_.to(at::kDouble)](double beta) {  // a beta close to 1 is 1 in float32
    return (1 - at::pow(beta, steps)).to(squares_.scalar_type());
  };
  const auto first_correction = correction(config_.beta1), second_correction = correction(config_.beta2);
  squares_.zero_();
  std::vector<at::Tensor> directions;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const auto& slice = slices_[i];
    const double decay = table_.weight_decay(table_.index_of(slice.group));
    auto mean = moments_[0].slices[i], square = moments_[1].slices[i];
    mean.lerp_(slice.gradients, 1 - config_.beta1);
    square.mul_(as_number(config_.beta2)).addcmul_(slice.gradients, slice.gradients, 1 - config_.beta2);
    auto direction = mean / first_correction / (square / second_correction).sqrt_().add_(config_.epsilon);
    if (decay != 0.0) direction.add_(slice.values, decay);
    for (const auto& entry : slice.entries()) {
      const auto add = [&](std::int64_t row, const at::Tensor& all) {
        squares_.select(0, row)
            .select(0, static_cast<std::int64_t>(entry.parameter->index))
            .add_(all.narrow(0, entry.begin, entry.size).square().sum());
      };
      add(0, slice.values);
      add(1, direction);
    }
    directions.push_back(std::move(direction));
  }
  const auto norms = sum_over_shards_(squares_.clone()).sqrt();
  const auto of_values = norms.select(0, 0), of_direction = norms.select(0, 1);
  const auto factors =
      at::where((of_values > 0).logical_and(of_direction > 0), of_values / of_direction, at::ones_like(of_values));
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const double rate = table_.learning_rate(table_.index_of(slices_[i].group), learning_rate);
    for (const auto& entry : slices_[i].entries())
      at::Tensor{slices_[i].values}
          .narrow(0, entry.begin, entry.size)
          .sub_(directions[i].narrow(0, entry.begin, entry.size) *
                (rate * factors.select(0, static_cast<std::int64_t>(entry.parameter->index))));
  }
}

}  // namespace ddpxx
