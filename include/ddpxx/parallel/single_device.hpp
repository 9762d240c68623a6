// ddpxx/parallel/single_device.hpp — one process, nothing to synchronize.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/gradient_sum.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/single_device_config.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>
#include <ddpxx/parallel/whole_model.hpp>

namespace ddpxx {

/// One process that holds everything: the smallest strategy, which all others are tested against. A parameter that gets
/// no gradient counts as one with zeros.
/// Errors  `config` in a group of more than one rank, where each rank would train a model of its own.
class SingleDevice : public WholeModel {
 public:
  using Config = SingleDeviceConfig;

  SingleDevice(const Config&, Group& group) : group_{&group} {
    if (group.size() > 1)
      throw Error{Errc::config, "strategy single_device runs one process, but this group has " +
                                    std::to_string(group.size()) + "; choose ddp, or start one process"};
  }

  /// See CanBeCaptured.
  static bool can_be_captured(const Config&) noexcept { return true; }
  /// See OffersStepInBackward.
  void step_in_backward(StepSegment step) { step_ = std::move(step); }
  /// See PlansSegments.
  static std::int64_t segment_bytes(const Config&) noexcept { return kSteppedBytes; }
  void attach(FlatModel& model) {
    ArenaOptions options;
    if (step_) options = {.cut = CutAt::bytes, .first_segment_bytes = kSteppedBytes, .segment_bytes = kSteppedBytes};
    trainable_ = Arena{model.trainable(), options};
    frozen_ = Arena{model.frozen(), {.gradients = Gradients::none}};
    sum_.emplace(trainable_);
    if (step_) {
      stepped_.emplace(trainable_, step_);
      reducer_.emplace(trainable_, *group_,
                       ReducerOptions{.unused = UnusedParameters::find,
                                      .start = [](std::size_t, const at::Tensor&) { return Pending{}; },
                                      .stepped = &*stepped_});
    }
    hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor& gradient) { receive(i, gradient); },
                           [this](std::size_t i) { return reducer_ ? reducer_->place(i) : sum_->place(i); }};
  }

  void begin_backward(Sync sync) {
    if (std::exchange(in_backward_, true)) abandon();
    check_owned();
    sync_ = sync;
    sum_->begin_pass();
  }
  void finish_backward() {
    if (sync_ == Sync::now && reducer_)
      reducer_->finish();
    else if (sync_ == Sync::now)
      sum_->publish();
    else
      sum_->copy_waiting();  // the next forward pass may write to memory that an operation returned as a gradient
    in_backward_ = false;
  }

 private:
  static constexpr std::int64_t kSteppedBytes = std::int64_t{4} << 20;

  /// Drops the gradients of a step that an exception has ended.
  void abandon() {
    if (reducer_)
      reducer_->abandon();
    else
      sum_->drop();
  }
  void receive(std::size_t i, const at::Tensor& gradient) {
    if (!in_backward_) return;
    if (!reducer_)
      sum_->add_later(i, gradient);
    else if (sync_ == Sync::now)
      reducer_->ready(i, gradient);
    else
      reducer_->defer(i, gradient);
  }

  Group* group_;
  std::optional<GradientSum> sum_;
  StepSegment step_;
  std::optional<SteppedSegments> stepped_;  ///< For steps in backward; the reducer says when.
  std::optional<Reducer> reducer_;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
  bool in_backward_ = false;
};

static_assert(ParallelStrategy<SingleDevice> && explain_strategy<SingleDevice>());

}  // namespace ddpxx
