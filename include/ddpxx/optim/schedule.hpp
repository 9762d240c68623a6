// ddpxx/optim/schedule.hpp — the learning rate as a pure function of the step.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

enum class Schedule { constant, linear, cosine };

constexpr auto enum_names(Schedule) {
  return std::array{Named{Schedule::constant, "constant"}, Named{Schedule::linear, "linear"},
                    Named{Schedule::cosine, "cosine"}};
}

/// What an optimizer's config says about its learning rate.
template <class C>
concept Scheduled = requires(const C& config) {
  { config.learning_rate } -> std::convertible_to<double>;
  { config.final_learning_rate } -> std::convertible_to<double>;
  { config.schedule } -> std::convertible_to<Schedule>;
  { config.warmup_steps } -> std::convertible_to<std::int64_t>;
  { config.decay_steps } -> std::convertible_to<std::int64_t>;
};

/// The learning rate of optimizer step `step`, counted from 0.
/// Warm-up climbs linearly over the first `warmup_steps`; then the schedule falls from `learning_rate` to
/// `final_learning_rate`, which it reaches at `decay_steps` and keeps. When a run stops plays no part.
/// Source  The arithmetic of nanoGPT's get_lr.
template <Scheduled Config>
double learning_rate_at(const Config& config, std::int64_t step) {
  const double peak = config.learning_rate;
  if (step < config.warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps + 1);
  if (config.schedule == Schedule::constant) return peak;
  if (step >= config.decay_steps) return config.final_learning_rate;
  const double done =
      static_cast<double>(step - config.warmup_steps) / static_cast<double>(config.decay_steps - config.warmup_steps);
  const double left =
      config.schedule == Schedule::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return config.final_learning_rate + left * (peak - config.final_learning_rate);
}

/// The rules between the fields of a schedule, for an optimizer config's `check()`.
template <Scheduled Config>
std::vector<FieldError> check_schedule(const Config& config) {
  std::vector<FieldError> errors;
  if (config.schedule != Schedule::constant && config.decay_steps <= config.warmup_steps)
    errors.push_back({"decay_steps", "must be greater than warmup_steps (" + std::to_string(config.warmup_steps) +
                                         ") unless schedule=constant"});
  return errors;
}

}  // namespace ddpxx
