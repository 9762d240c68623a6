// ddpxx/optim/ema.hpp — an exponential moving average of the parameters, over slices of flat memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/ema_config.hpp>

namespace ddpxx {

/// The moving average of the parameters: after each step, average = decay · average + (1 - decay) · value. The first
/// update copies the values. Each element is averaged alone, so the numbers do not depend on how parameters are
/// sharded.
/// Errors  `config` for values of less than 32 bits: rounding would stop the average from changing.
/// Source  torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn; the warm-up is TensorFlow's
///         ExponentialMovingAverage with num_updates.
class EMA {
 public:
  using Config = EMAConfig;

  EMA(const Config& config, std::span<const Slice> slices) : config_{config}, average_{make_moment("ema", slices)} {
    for (const auto& slice : slices) {
      if (slice.values.element_size() < 4)
        throw Error{Errc::config, std::string{"a moving average of "} + c10::toString(slice.values.scalar_type()) +
                                      " parameters would not change, because small updates round to nothing: keep "
                                      "the parameters in float32, or set training.ema_decay=0"};
      values_.push_back(slice.values);
    }
    copy_values();
  }

  /// Adds the values of the last step to the average, by one call over all slices.
  /// Errors  `config` while values and average are exchanged.
  void update() {
    if (swapped_)
      throw Error{Errc::config, "EMA::update() while the values are exchanged for their average: swap() back first"};
    if (steps_done_ == 0) {
      copy_values();
    } else if (!values_.empty()) {
      const c10::NoGradGuard no_grad;
      at::_foreach_lerp_(average_.slices, values_, 1.0 - decay_after(steps_done_));
    }
    ++steps_done_;
  }

  /// Exchanges the values and their average, bit for bit, through a buffer of a few MiB. No other thread and no pending
  /// collective may read the values meanwhile. Afterwards the caller updates copies of the values, by a strategy's
  /// `finish_step()`.
  void swap() {
    exchange();
    swapped_ = !swapped_;
  }

  /// The average, as a moment that a snapshot can hold.
  const Moment& average() const noexcept { return average_; }
  /// The number of updates.
  std::int64_t steps_done() const noexcept { return steps_done_; }
  /// Sets the number of updates to `step`, after a snapshot's average has been read into average().
  void resume_at(std::int64_t step) noexcept { steps_done_ = step; }

 private:
  double decay_after(std::int64_t steps) const {
    if (!config_.warmup) return config_.decay;
    const auto n = static_cast<double>(steps);
    return std::min(config_.decay, (1.0 + n) / (10.0 + n));
  }

  void exchange() {
    const c10::NoGradGuard no_grad;
    if (values_.empty()) return;
    constexpr std::int64_t kElementsAtOnce = 1 << 20;
    std::int64_t largest = 0;
    for (const auto& values : values_) largest = std::max(largest, values.numel());
    // Where memory is short, this fails before anything has changed.
    const auto buffer = at::empty({std::min(kElementsAtOnce, largest)}, average_.slices.front().options());
    for (std::size_t i = 0; i < values_.size(); ++i)
      for (std::int64_t begin = 0, size = values_[i].numel(); begin < size; begin += kElementsAtOnce) {
        const auto value = values_[i].narrow(0, begin, std::min(kElementsAtOnce, size - begin));
        const auto average = average_.slices[i].narrow(0, begin, value.numel());
        const auto kept = buffer.narrow(0, 0, value.numel());
        kept.copy_(value);
        value.copy_(average);
        average.copy_(kept);
      }
  }

  void copy_values() {
    const c10::NoGradGuard no_grad;
    if (!values_.empty()) at::_foreach_copy_(average_.slices, values_);
  }

  Config config_;
  Moment average_;
  std::vector<at::Tensor> values_;
  std::int64_t steps_done_ = 0;
  bool swapped_ = false;
};

/// A scope in which the parameters hold their average, for a program that evaluates in a loop of its own. Its
/// constructor and its destructor call `EMA::swap()`; the caller updates copies of the values after each. Where the
/// values cannot come back, as after an error of a GPU, an exception that ends the scope goes on; without one the
/// process ends.
class AverageScope {
 public:
  explicit AverageScope(EMA& ema) : ema_{&ema} { ema.swap(); }
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;
  ~AverageScope() {
    try {
      ema_->swap();
    } catch (const std::exception&) {
      if (std::uncaught_exceptions() == 0) std::terminate();  // the program would go on with the average
    }
  }

 private:
  EMA* ema_;
};

static_assert(BuiltFromSlices<EMA>);

}  // namespace ddpxx
