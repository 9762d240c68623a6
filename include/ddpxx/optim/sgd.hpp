// ddpxx/optim/sgd.hpp — stochastic gradient descent, fused, over slices of flat memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/fused_range.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/optim/sgd_config.hpp>

namespace ddpxx {

/// SGD with momentum over slices, by one fused call for each optimizer group. Steps agree with
/// torch.optim.SGD(fused=True). The arena of the slices exists until the first step.
/// Errors  `config` for a slice of a group that is not among the groups; those of `GroupTable`.
class SGD {
 public:
  using Config = SGDConfig;
  static constexpr const char* kPythonName = "SGD";

  SGD(const Config& config, std::span<const Slice> slices, std::span<const ParameterGroup> groups = kDecayGroups)
      : config_{config},
        table_{groups, config.learning_rate, config.weight_decay},
        slices_{slices.begin(), slices.end()} {
    if (config.momentum != 0.0) moments_.push_back(make_moment("momentum_buffer", slices));
    table_.check(slices_);
  }

  /// Does one optimizer step over all slices. If `found_inf`, 0-dim float32 on their device, is 1, nothing changes.
  /// Errors  those of check_can_skip_steps(), where `found_inf` is given.
  void step(double learning_rate, const std::optional<at::Tensor>& found_inf = {}) {
    if (found_inf) check_can_skip_steps(config_);
    const c10::NoGradGuard no_grad;
    if (groups_.empty()) {
      groups_ = fused_groups(slices_, table_, moments_);
      slices_.clear();
    }
    // Without dampening the first step, whose momentum is zeros, needs no special case.
    const bool first = std::exchange(is_first_step_, false) && !found_inf && !moments_.empty();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto& group = groups_[i];
      if (group.values.empty()) continue;
      const auto momentum = group.moments.empty() ? at::TensorList{} : at::TensorList{group.moments[0]};
      at::_fused_sgd_(group.values, group.gradients, momentum, table_.weight_decay(i), config_.momentum,
                      table_.learning_rate(i, learning_rate), config_.dampening, config_.nesterov, /*maximize=*/false,
                      /*is_first_step=*/first, /*grad_scale=*/{}, found_inf);
    }
  }

  /// Errors  `config` for momentum with dampening: dampening does not act on the first step that counts, and only the
  ///         device knows which step that is.
  static void check_can_skip_steps(const Config& config) {
    if (config.momentum != 0.0 && config.dampening != 0.0)
      throw Error{Errc::config,
                  "SGD with momentum and dampening cannot leave steps out, which a scaled loss and "
                  "training.spike_factor need: set dampening=0"};
  }

  std::span<const Moment> moments() const noexcept { return moments_; }
  void resume_at(std::int64_t step) { is_first_step_ = step == 0; }

 private:
  Config config_;
  GroupTable table_;
  std::vector<Slice> slices_;       ///< Until the first step.
  std::vector<FusedGroup> groups_;  ///< From the first step on.
  std::vector<Moment> moments_;
  bool is_first_step_ = true;  ///< Nothing has been added to the momentum yet.
};

static_assert(explain_optimizer<SGD>() && SkipsSteps<SGD> && ChecksSkippedSteps<SGD> && CountsOptimizerSteps<SGD> &&
              TakesParameterGroups<SGD>);

}  // namespace ddpxx
