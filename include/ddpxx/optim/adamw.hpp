// ddpxx/optim/adamw.hpp — AdamW and Adam, fused, over slices of flat memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/optim/adamw_config.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/fused_range.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// Adam over slices, by one fused call for each optimizer group. The arena of the slices exists until the first step.
/// Errors  `config` for a slice of a group that is not among the groups; those of `GroupTable`.
/// Source  Kingma and Ba 2014, arXiv:1412.6980; Loshchilov and Hutter 2017, arXiv:1711.05101. Steps agree with
///         torch.optim's fused implementation, which calls the same ATen operation.
template <WeightDecay kDecay>
class FusedAdam {
 public:
  using Config = FusedAdamConfig<kDecay>;
  static constexpr const char* kPythonName = kDecay == WeightDecay::decoupled ? "AdamW" : "Adam";

  FusedAdam(const Config& config, std::span<const Slice> slices, std::span<const ParameterGroup> groups = kDecayGroups)
      : config_{config},
        table_{groups, config.learning_rate, config.weight_decay},
        slices_{slices.begin(), slices.end()},
        moments_{make_moment("exp_avg", slices), make_moment("exp_avg_sq", slices)} {
    if (!slices.empty()) steps_ = at::zeros({}, slices.front().values.options().dtype(at::kFloat));
    table_.check(slices_);
  }

  /// Does one optimizer step over all slices. If `found_inf`, 0-dim float32 on their device, is 1, nothing changes.
  /// Where `divisor` is given, 0-dim float32 on their device, the gradients are divided by it first, in the same pass.
  void step(double learning_rate, const std::optional<at::Tensor>& found_inf = {},
            const std::optional<at::Tensor>& divisor = {}) {
    step_with([&](std::size_t group) { return table_.learning_rate(group, learning_rate); }, found_inf, divisor);
  }

  /// step() in two parts, see StepsWithLoadedRate. On a GPU the learning rate is rounded to float32.
  void load_learning_rate(double learning_rate) {
    if (!steps_.defined()) return;
    cut_slices();
    const auto device = steps_.device();
    const auto type = at::TensorOptions{}.dtype(device.is_cpu() ? at::kDouble : at::kFloat);  // as the kernels take it
    if (!rates_.defined()) rates_ = at::empty({std::ssize(groups_)}, type.device(device));
    auto host = at::empty(rates_.sizes(), type.pinned_memory(device.is_cuda()));
    for (std::size_t i = 0; i < groups_.size(); ++i)
      host[static_cast<std::int64_t>(i)].fill_(table_.learning_rate(i, learning_rate));
    rates_.copy_(host, /*non_blocking=*/true);
  }
  void step_with_loaded_rate(const std::optional<at::Tensor>& found_inf, const std::optional<at::Tensor>& divisor) {
    step_with([&](std::size_t group) { return rates_[static_cast<std::int64_t>(group)]; }, found_inf, divisor);
  }

  /// The number of steps that were not skipped, 0-dim float32; undefined without slices.
  const at::Tensor& step_count() const noexcept { return steps_; }
  std::span<const Moment> moments() const noexcept { return moments_; }

 private:
  void cut_slices() {
    if (!groups_.empty()) return;
    auto groups = fused_groups(slices_, table_, moments_);
    counts_.clear();
    for (const auto& group : groups) counts_.emplace_back(group.values.size(), steps_);
    groups_ = std::move(groups);
    slices_.clear();
  }

  /// `learning_rate(group)` is a number of the host or a tensor.
  template <class LearningRate>
  void step_with(const LearningRate& learning_rate, const std::optional<at::Tensor>& found_inf,
                 const std::optional<at::Tensor>& divisor) {
    const c10::NoGradGuard no_grad;
    cut_slices();
    if (steps_.defined()) steps_.add_(1);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto& group = groups_[i];
      if (group.values.empty()) continue;
      const auto run = [&](auto fused) {
        fused(group.values, group.gradients, group.moments[0], group.moments[1], std::vector<at::Tensor>{}, counts_[i],
              learning_rate(i), config_.beta1, config_.beta2, table_.weight_decay(i), config_.epsilon);
      };
      if constexpr (kDecay == WeightDecay::decoupled)
        run([&](auto&&... args) { at::_fused_adamw_(args..., false, false, divisor, found_inf); });
      else
        run([&](auto&&... args) { at::_fused_adam_(args..., false, false, divisor, found_inf); });
    }
    if (steps_.defined() && found_inf) steps_.sub_(*found_inf);  // a skipped step does not count
  }

  Config config_;
  GroupTable table_;
  std::vector<Slice> slices_;       ///< Until the first step.
  std::vector<FusedGroup> groups_;  ///< From the first step on.
  std::array<Moment, 2> moments_;
  at::Tensor steps_;
  std::vector<std::vector<at::Tensor>> counts_;  ///< For each group: `steps_` once for each range.
  at::Tensor rates_;  ///< The learning rate of each group, on the device; undefined before one is loaded.
};

using AdamW = FusedAdam<WeightDecay::decoupled>;
using Adam = FusedAdam<WeightDecay::through_gradient>;

static_assert(explain_optimizer<AdamW>() && explain_optimizer<Adam>() && SkipsSteps<AdamW> && DividesGradients<AdamW> &&
              TakesParameterGroups<AdamW> && StepsWithLoadedRate<AdamW>);

}  // namespace ddpxx
