// ddpxx/optim/lion.hpp — Lion, an optimizer whose steps have the sign of an average, over slices of flat memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/number.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/lion_config.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// Steps each weight by `learning_rate` against the sign of an average of gradient and momentum. Its state is one
/// moment, half of AdamW's.
/// Errors  `config` for a slice of a group that is not among the groups; those of `GroupTable`.
/// Source  Chen et al. 2023, arXiv:2302.06675, Algorithm 2.
class Lion {
 public:
  using Config = LionConfig;
  static constexpr const char* kSnapshotName = "Lion";

  Lion(const Config& config, std::span<const Slice> slices, std::span<const ParameterGroup> groups = kDecayGroups)
      : config_{config},
        table_{groups, config.learning_rate, config.weight_decay},
        slices_{slices.begin(), slices.end()},
        momentum_{make_moment("momentum", slices)} {
    table_.check(slices_);
  }

  void step(double learning_rate, const std::optional<at::Tensor>& found_inf = {}) {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const auto& slice = slices_[i];
      const auto group = table_.index_of(slice.group);
      const double rate = table_.learning_rate(group, learning_rate), decay = table_.weight_decay(group);
      // A part of the slice at a time, so that temporary tensors have a few MiB at most.
      for (std::int64_t begin = 0, size = slice.values.numel(); begin < size; begin += kElementsAtOnce) {
        const auto part = [&](const at::Tensor& whole) {
          return whole.narrow(0, begin, std::min(kElementsAtOnce, size - begin));
        };
        step_part(part(slice.values), part(slice.gradients), part(momentum_[0].slices[i]), rate, decay, found_inf);
      }
    }
  }

  std::span<const Moment> moments() const noexcept { return momentum_; }

 private:
  static constexpr std::int64_t kElementsAtOnce = 1 << 20;

  void step_part(at::Tensor values, const at::Tensor& gradients, at::Tensor momentum, double learning_rate,
                 double decay, const std::optional<at::Tensor>& found_inf) const {
    const auto direction = at::lerp(momentum, gradients, 1.0 - config_.beta1).sign_();
    if (!found_inf) {
      values.mul_(as_number(1.0 - learning_rate * decay)).sub_(direction, learning_rate);
      momentum.lerp_(gradients, 1.0 - config_.beta2);
      return;
    }
    const auto left_out = *found_inf > 0;
    values.copy_(at::where(left_out, values, values * (1.0 - learning_rate * decay) - direction * learning_rate));
    momentum.copy_(at::where(left_out, momentum, at::lerp(momentum, gradients, 1.0 - config_.beta2)));
  }

  Config config_;
  GroupTable table_;
  std::vector<Slice> slices_;
  std::array<Moment, 1> momentum_;
};

static_assert(explain_optimizer<Lion>() && SkipsSteps<Lion> && TakesParameterGroups<Lion>);

}  // namespace ddpxx
