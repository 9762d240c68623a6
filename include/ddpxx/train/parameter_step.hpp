// ddpxx/train/parameter_step.hpp — steps the parameters by the gradients that backward has left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/trace_span.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/optim/clip.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/in_parts.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/optim/plateau.hpp>
#include <ddpxx/optim/plateau_config.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/train/captured_step.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/matrix_owners.hpp>
#include <ddpxx/train/spike_guard.hpp>

namespace ddpxx {

/// Sees all values and gradients that this rank's optimizer is about to use, and may change them in place.
using SliceHook = std::function<void(std::span<const Slice>)>;

/// What is done with large gradients before the optimizer uses them. They are clipped by value first, then by their
/// norm, as by PyTorch's clip_grad_value_ and then clip_grad_norm_.
struct GradientLimits {
  double norm = 0.0;          ///< Largest global gradient norm; 0 does not clip.
  double value = 0.0;         ///< Largest absolute value of a gradient's elements; 0 does not clip.
  bool fused = false;         ///< Clip by the norm in the optimizer's own pass, if the optimizer can.
  double spike_factor = 0.0;  ///< Leave out steps by a `SpikeGuard` of this factor; 0 leaves out none.
};

namespace detail {

template <class Optimizer, bool kInBackward>
struct StepperOf {
  using type = Optimizer;
};
template <SliceOptimizer Optimizer>
struct StepperOf<Optimizer, true> {
  using type = OptimizerInParts<Optimizer>;
};

}  // namespace detail

/// The second half of a step, once the gradients of all micro-batches have been averaged over the ranks: unscale,
/// hooks, clip, step. Holds the optimizer and the loss scale.
///
/// Under StepInBackward the parameters are stepped while backward still computes, and step() only sums up their norms.
template <class Optimizer, class Precision, class Strategy>
class ParameterStep {
 public:
  /// The type of the optimizer, or `OptimizerInParts` of it where parameters are stepped in backward.
  using Stepper = typename detail::StepperOf<Optimizer, steps_in_backward<Strategy>>::type;

  /// Attaches the model to the strategy, and makes the optimizer of what this rank then holds. The strategy, the group
  /// and `groups`, the settings of the optimizer groups, must outlive this object. `names` are those of the model's
  /// parameters in its own order, in which their norms are added up.
  /// Ranks   Collective.
  /// Errors  those of the precision, the strategy and the optimizer for what they cannot do with this model.
  ParameterStep(Group& group, Strategy& strategy, FlatModel& model, const Precision& precision,
                const typename Optimizer::Config& optimizer, const GradientLimits& limits, const PlateauConfig& plateau,
                std::span<const ParameterGroup> groups, std::span<const std::string> names)
      : strategy_{&strategy},
        config_{optimizer},
        limits_{limits},
        optimizer_{attached(group, model, groups)},
        scaler_{make_scaler(precision)} {
    if (!plateau.metric.empty()) plateau_.emplace(plateau);
    // The gradients of offloaded parameters are on another device than the model.
    if (limits.spike_factor > 0) spike_guard_.emplace(limits.spike_factor, norm_options().device());
    if constexpr (!steps_in_backward<Strategy>)
      gradients_ = parameter_gradients(strategy.slices(), names, strategy.trainable().entries());
  }
  ParameterStep(const ParameterStep&) = delete;  // the strategy calls this object in backward
  ParameterStep& operator=(const ParameterStep&) = delete;

  /// Begins step `step`, counted from 0.
  void begin(std::int64_t step) {
    norms_.clear();  // an exception may have ended the last step
    learning_rate_ = rate_at(step);
  }

  /// Whether a part of the parameters has been stepped in backward since begin(), and step() has not come yet.
  bool has_stepped_in_backward() const noexcept { return !norms_.empty(); }

  /// The learning rate of the step that has begun last.
  double learning_rate() const noexcept { return learning_rate_; }

  /// The gradient of the loss with which backward starts, multiplied by the loss scale where there is one.
  at::Tensor scaled(const at::Tensor& seed) const {
    if constexpr (scales_loss<Precision>)
      return scaler_.scale(seed);
    else
      return seed;
  }

  /// Divides the gradients by the loss scale. Returns 1 if one of them is not finite, else 0, as a 0-dim tensor;
  /// undefined where the loss is not scaled.
  /// Ranks   Collective where the loss is scaled.
  at::Tensor unscale() {
    if constexpr (scales_loss<Precision>)
      return strategy_->sum_over_shards(scaler_.unscale(strategy_->slices())).clamp_max(1);
    else
      return {};
  }

  /// From now on `hook` runs in each step before the gradients are clipped, after those that were added before it.
  void add_hook(SliceHook hook) { hooks_.push_back(std::move(hook)); }

  /// What step() has done; 0-dim tensors.
  struct Stepped {
    at::Tensor norm;     ///< Of the gradients before they were clipped; 0 where one of them was not finite.
    at::Tensor skipped;  ///< 1 if the step was left out, else 0; undefined where none can be.
  };

  /// Steps all parameters, unless `found_inf` is 1 or the gradients are a spike. Does so through `captured` if that is
  /// not null.
  ///
  /// Ranks   Collective.
  Stepped step(const at::Tensor& found_inf, [[maybe_unused]] CapturedStep* captured) {
    const TraceSpan span{"optimizer"};
    if constexpr (steps_in_backward<Strategy>) {
      return {norm_of_parts(), {}};
    } else {
      for (const auto& hook : hooks_) hook(strategy_->slices());
      if constexpr (StepsWithLoadedRate<Stepper>)
        if (captured != nullptr) {
          optimizer_.load_learning_rate(learning_rate_);
          const auto step = [&](const auto& inf, const auto& divisor) {
            optimizer_.step_with_loaded_rate(inf, divisor);
          };
          if (captured->is_plain()) return clip_and_step(found_inf, step);
          return {captured->step([&] { return clip_and_step(found_inf, step).norm; }), found_inf};
        }
      return clip_and_step(found_inf, [this](const auto& inf, const auto& divisor) { step_optimizer(inf, divisor); });
    }
  }

  const Stepper& optimizer() const noexcept { return optimizer_; }

  /// A copy of the factor by which the next step scales its loss; undefined where the loss is not scaled.
  at::Tensor loss_scale() const {
    if constexpr (scales_loss<Precision>)
      for (const auto& [name, tensor] : scaler_.state())
        if (name == "scale") return tensor.clone();
    return {};
  }

  /// Continues after step `step`, whose values have been read into the state as far as `held` says; the rest begins
  /// anew.
  void resume_at(std::int64_t step, const HeldState& held, const Precision& precision) {
    if (!held.optimizer) reset_optimizer();
    if (!held.scale) reset_scale(precision);
    if (!held.spikes) reset_spikes();
    if (plateau_) held.plateau ? plateau_->resume() : plateau_->reset();
    if constexpr (CountsOptimizerSteps<Stepper>) optimizer_.resume_at(held.optimizer ? step : 0);
  }

  /// Notes the metric of an evaluation after step `step`, where something lowers the learning rate by it. Returns the
  /// learning rate of the next step if that has become lower.
  std::optional<double> note_evaluation(double value, std::int64_t step) {
    if (!plateau_) return std::nullopt;
    const double before = rate_at(step);
    plateau_->note(value);
    const double after = rate_at(step);
    return after < before ? std::optional{after} : std::nullopt;
  }

  /// What a snapshot writes and reads beside the optimizer's moments: the number of steps, the state of the scaler, the
  /// average of the norms, and what the evaluations say about the learning rate.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    std::vector<std::pair<std::string, at::Tensor>> state;
    if constexpr (KeepsStepCount<Stepper>) state.emplace_back("optimizer.step", optimizer_.step_count());
    if constexpr (scales_loss<Precision>)
      for (const auto& [name, tensor] : scaler_.state()) state.emplace_back("scaler." + name, tensor);
    if (spike_guard_)
      for (const auto& [name, tensor] : spike_guard_->state()) state.emplace_back("spikes." + name, tensor);
    if (plateau_)
      for (const auto& [name, tensor] : plateau_->state()) state.emplace_back("plateau." + name, tensor);
    return state;
  }

 private:
  using Scaler = ScalerOf<Precision>;

  /// The learning rate of the step after step `step`.
  double rate_at(std::int64_t step) const {
    const double scheduled = config_.learning_rate_at(step);
    return plateau_ ? plateau_->rate(scheduled) : scheduled;
  }

  /// Sets the optimizer's state to that before the first step, in place, since a captured step reads these tensors.
  /// Steps, or a damaged snapshot, may have changed it.
  void reset_optimizer() {
    const c10::NoGradGuard no_grad;
    for (const auto& moment : optimizer_.moments())
      for (const at::Tensor& values : moment.slices) values.zero_();
    if constexpr (KeepsStepCount<Stepper>)
      if (const at::Tensor count = optimizer_.step_count(); count.defined()) count.zero_();
  }
  /// Sets the loss scale to that before the first step, in place as well.
  void reset_scale([[maybe_unused]] const Precision& precision) {
    const c10::NoGradGuard no_grad;
    if constexpr (scales_loss<Precision>) {
      const auto first = make_scaler(precision).state();
      for (std::size_t i = 0; auto& [name, tensor] : scaler_.state()) tensor.copy_(first[i++].second);
    }
  }

  /// Forgets the norms of earlier steps.
  void reset_spikes() {
    if (!spike_guard_) return;
    for (auto& [name, tensor] : spike_guard_->state()) tensor.zero_();
  }

  Stepper attached(Group& group, FlatModel& model, std::span<const ParameterGroup> groups) {
    Precision::check(model.device());
    if constexpr (steps_in_backward<Strategy>)
      strategy_->step_in_backward([this](std::size_t segment) { step_segment(segment); });
    strategy_->attach(model);
    const auto& arena = strategy_->trainable();
    const auto make = [&](const auto&... parts) {
      if constexpr (TakesParameterGroups<Optimizer>)
        return Stepper{config_, parts..., groups};
      else
        return Stepper{config_, parts...};
    };
    if constexpr (steps_in_backward<Strategy>)
      return make(arena);
    else if constexpr (MatrixOptimizer<Optimizer>)
      return make(arena, [&group](const Arena& matrices_of, std::vector<std::size_t> matrices) {
        return MatrixTransform{
            [owners = MatrixOwners{matrices_of, std::move(matrices), group}](
                std::span<const at::Tensor> parts, const auto& change) { owners.transform(parts, change); }};
      });
    else if constexpr (ParameterOptimizer<Optimizer>)
      return make(arena, [this](at::Tensor value) { return strategy_->sum_over_shards(value); });
    else
      return make(strategy_->slices());
  }

  Scaler make_scaler(const Precision& precision) const {
    if constexpr (scales_loss<Precision>)
      return precision.make_scaler(strategy_->slices().front().values.device());
    else
      return {};
  }

  /// Does the rest of step() once the hooks have seen the gradients; `step(found_inf, divisor)` steps the optimizer.
  template <class Step>
  Stepped clip_and_step(const at::Tensor& found_inf, const Step& step) {
    const auto norm_of_all = [this] {
      return gradient_norm(gradients_, norm_options(),
                           [this](at::Tensor square) { return strategy_->sum_over_shards(square); });
    };
    auto norm = norm_of_all();
    auto skipped = found_inf;
    if (spike_guard_) {
      const auto spike = spike_guard_->check(norm);
      skipped = skipped.defined() ? at::maximum(skipped, spike) : spike;
      norm = norm.nan_to_num(0.0, 0.0, 0.0);
    }
    if (limits_.value > 0) clip_by_value(strategy_->slices(), limits_.value);
    std::optional<at::Tensor> divisor;
    if (limits_.norm > 0) {
      const auto norm_to_clip = limits_.value > 0 ? norm_of_all() : norm;
      // The fused operation takes a divisor in float32, which would be too coarse for gradients in float64.
      const bool in_float = norm.scalar_type() != at::kDouble;
      if (DividesGradients<Stepper> && limits_.fused && in_float)
        divisor = clip_divisor(norm_to_clip, limits_.norm);
      else
        clip_by_norm(strategy_->slices(), norm_to_clip, limits_.norm);
    }
    step(skipped.defined() ? std::optional{skipped} : std::nullopt, divisor);
    if constexpr (scales_loss<Precision>) {
      scaler_.update(found_inf);
      norm = norm.masked_fill(found_inf > 0, 0.0);
    }
    return {norm, skipped};
  }

  void step_optimizer([[maybe_unused]] const std::optional<at::Tensor>& found_inf,
                      [[maybe_unused]] const std::optional<at::Tensor>& divisor) {
    if constexpr (DividesGradients<Stepper>)
      if (divisor) return optimizer_.step(learning_rate_, found_inf, *divisor);
    if constexpr (SkipsSteps<Stepper>)
      optimizer_.step(learning_rate_, found_inf);
    else
      optimizer_.step(learning_rate_);
  }

  /// Steps one segment of the flat memory, inside of backward.
  void step_segment(std::size_t segment) {
    const auto slices = optimizer_.slices(segment);
    std::vector<at::Tensor> gradients;  // of whole slices, which is quicker here than of each parameter
    for (const auto& slice : slices) gradients.push_back(slice.gradients);
    norms_.push_back(gradient_norm(gradients, norm_options(), [](at::Tensor square) { return square; }));
    if (limits_.value > 0) clip_by_value(slices, limits_.value);
    optimizer_.step(segment, learning_rate_);
  }

  /// The norm of all gradients of a step, once all segments have been stepped.
  at::Tensor norm_of_parts() {
    const auto norms = std::exchange(norms_, {});
    return gradient_norm(norms, norm_options(),
                         [this](at::Tensor square) { return strategy_->sum_over_shards(square); });
  }

  /// Type and device of a norm on a rank that holds no gradient; all ranks sum theirs in one collective.
  at::TensorOptions norm_options() const {
    const auto slices = strategy_->slices();
    return slices.empty() ? strategy_->trainable().options() : slices.front().values.options();
  }

  Strategy* strategy_;
  typename Optimizer::Config config_;
  GradientLimits limits_;
  std::optional<SpikeGuard> spike_guard_;
  std::optional<Plateau> plateau_;
  double learning_rate_ = 0.0;
  Stepper optimizer_;
  /// Views of this rank's gradients, sorted as the model's parameters; their norm is computed.
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> norms_;  ///< Gradient norms of the segments that this step's backward has stepped.
  Scaler scaler_;                  ///< The loss scale; an empty type where the precision does not scale the loss.
  std::vector<SliceHook> hooks_;
};

}  // namespace ddpxx
