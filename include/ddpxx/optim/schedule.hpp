// ddpxx/optim/schedule.hpp — the learning rate as a pure function of the step.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

enum class Schedule { none, constant, linear, cosine, wsd, one_cycle, step };

constexpr auto enum_names(Schedule) {
  return std::array{Named{Schedule::none, "none"},     Named{Schedule::constant, "constant"},
                    Named{Schedule::linear, "linear"}, Named{Schedule::cosine, "cosine"},
                    Named{Schedule::wsd, "wsd"},       Named{Schedule::one_cycle, "one_cycle"},
                    Named{Schedule::step, "step"}};
}

/// A config with the fields that `scheduled_rate` computes a learning rate from.
template <class C>
concept Scheduled = requires(const C& config) {
  { config.learning_rate } -> std::convertible_to<double>;
  { config.final_learning_rate } -> std::convertible_to<double>;
  { config.schedule } -> std::convertible_to<Schedule>;
  { config.warmup_steps } -> std::convertible_to<std::int64_t>;
  { config.decay_steps } -> std::convertible_to<std::int64_t>;
  { config.decay_ratio } -> std::convertible_to<double>;
  { config.decay_every } -> std::convertible_to<std::int64_t>;
  { config.decay_at } -> std::convertible_to<std::vector<std::int64_t>>;
  { config.decay_factor } -> std::convertible_to<double>;
};

/// The learning rate of optimizer step `step`, counted from 0. It does not depend on when the run stops.
/// With `none` it is `learning_rate` at every step. With constant, linear, cosine, wsd and step it rises linearly
/// over the first `warmup_steps` to `learning_rate`, the peak. After warm-up
/// - constant stays at the peak;
/// - linear and cosine decay to `final_learning_rate`, which they reach at `decay_steps` and keep;
/// - wsd (warm-up, stable, decay) stays at the peak and decays linearly over the last `decay_ratio` of `decay_steps`;
/// - step multiplies the rate by `decay_factor` every `decay_every` steps, or at the steps `decay_at`, down to
///   `final_learning_rate`. The steps of `decay_at` are counted from 0, those of `decay_every` from the end of warm-up.
/// one_cycle rises from learning_rate / 25 by half a cosine, and falls by half a cosine. Step warmup_steps - 1 has the
/// peak; with warmup_steps=0, step 0.3 * decay_steps - 1. Step decay_steps - 1 and all steps after it have
/// learning_rate / 250000, or `final_learning_rate` if that is above 0. Momentum is not cycled.
///
/// Source  constant, linear, cosine: the arithmetic of nanoGPT's get_lr. wsd: Hu et al. 2024, arXiv:2404.06395.
///         step: torch.optim.lr_scheduler.StepLR; with decay_every=1 ExponentialLR, with decay_at MultiStepLR.
///         one_cycle: torch.optim.lr_scheduler.OneCycleLR and its defaults; Smith and Topin 2017, arXiv:1708.07120.
template <Scheduled Config>
double scheduled_rate(const Config& config, std::int64_t step);

/// What the fields of a schedule mean, except for `learning_rate`; an optimizer config's `describe()` appends them.
template <class Config>
consteval auto schedule_fields() {
  return fields(
      field<&Config::schedule>("Schedule of the learning rate after warm-up; none has no warm-up either"),
      field<&Config::warmup_steps>("Optimizer steps of linear warm-up", at_least(0), Unit::steps),
      field<&Config::decay_steps>("Optimizer step at which the schedule ends", at_least(0), Unit::steps),
      field<&Config::decay_ratio>("Fraction of decay_steps over which schedule=wsd decays", above(0.0), at_most(1.0)),
      field<&Config::decay_every>("Optimizer steps between two decays of schedule=step", at_least(0), Unit::steps),
      field<&Config::decay_at>("Optimizer steps at which schedule=step decays, in place of decay_every", at_least(0),
                               Unit::steps),
      field<&Config::decay_factor>("Factor of each decay of schedule=step", above(0.0), at_most(1.0)),
      field<&Config::final_learning_rate>("Learning rate from decay_steps on; the lowest one of schedule=step",
                                          at_least(0.0)));
}

/// The rules between the fields of a schedule, for an optimizer config's `check()`.
template <Scheduled Config>
std::vector<FieldError> check_schedule(const Config& config);

namespace detail {

/// How often `step` has decayed the rate before optimizer step `step`.
template <Scheduled Config>
std::int64_t decays_before(const Config& config, std::int64_t step) {
  if (config.decay_at.empty()) return (step - config.warmup_steps) / std::max<std::int64_t>(config.decay_every, 1);
  return std::ranges::count_if(config.decay_at, [step](std::int64_t at) { return at <= step; });
}

/// The number of steps in which `wsd` decays: `decay_ratio` of `decay_steps`.
template <Scheduled Config>
std::int64_t fall_steps(const Config& config) {
  return std::llround(config.decay_ratio * static_cast<double>(config.decay_steps));
}

/// Half a cosine from `from` to `to`; `done` in [0, 1].
inline double cosine_between(double from, double to, double done) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

/// The learning rate of one_cycle. Its peak may lie between two steps: 0.3 of 25 steps is 7.5.
template <Scheduled Config>
double one_cycle_at(const Config& config, std::int64_t step_index) {
  constexpr double kStartDivisor = 25.0, kEndDivisor = 1e4, kRisingShare = 0.3;
  const double peak = config.learning_rate, start = peak / kStartDivisor;
  const double end = config.final_learning_rate > 0 ? config.final_learning_rate : start / kEndDivisor;
  const auto step = static_cast<double>(step_index), total = static_cast<double>(config.decay_steps);
  const double top = (config.warmup_steps > 0 ? static_cast<double>(config.warmup_steps) : kRisingShare * total) - 1.0;
  if (step >= total - 1.0) return end;
  if (step <= top) return top > 0 ? cosine_between(start, peak, step / top) : peak;
  return cosine_between(peak, end, (step - top) / (total - 1.0 - top));
}

}  // namespace detail

template <Scheduled Config>
double scheduled_rate(const Config& config, std::int64_t step) {
  if (config.schedule == Schedule::one_cycle) return detail::one_cycle_at(config, step);
  const double peak = config.learning_rate;
  if (config.schedule == Schedule::none) return peak;
  if (step < config.warmup_steps)
    return peak * static_cast<double>(step + 1) / (static_cast<double>(config.warmup_steps) + 1.0);
  if (config.schedule == Schedule::constant) return peak;
  if (config.schedule == Schedule::step) {
    const auto decays = static_cast<double>(detail::decays_before(config, step));
    return std::max<double>(config.final_learning_rate, peak * std::pow(config.decay_factor, decays));
  }
  if (step >= config.decay_steps) return config.final_learning_rate;
  const auto begin =
      config.schedule == Schedule::wsd ? config.decay_steps - detail::fall_steps(config) : config.warmup_steps;
  if (step < begin) return peak;
  const double done = static_cast<double>(step - begin) / static_cast<double>(config.decay_steps - begin);
  const double left =
      config.schedule == Schedule::cosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : 1.0 - done;
  return config.final_learning_rate + left * (peak - config.final_learning_rate);
}

template <Scheduled Config>
std::vector<FieldError> check_schedule(const Config& config) {
  std::vector<FieldError> errors;
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const bool has_end = config.decay_steps > config.warmup_steps;
  const bool stays = config.schedule == Schedule::none || config.schedule == Schedule::constant;
  const bool steps = config.schedule == Schedule::step;
  if (!stays && !steps && !has_end)
    errors.push_back({"decay_steps", "must be greater than warmup_steps (" + number(config.warmup_steps) +
                                         ") unless schedule=constant or step"});
  const bool has_list = !config.decay_at.empty();
  if (steps && !has_list && config.decay_every < 1)
    errors.push_back({"decay_every", "must be at least 1 with schedule=step, or name the steps in decay_at"});
  if (steps && has_list && config.decay_every > 0)
    errors.push_back({"decay_every", "cannot be set beside decay_at: leave one of them out"});
  if (steps && has_list && std::ranges::adjacent_find(config.decay_at, std::greater_equal{}) != config.decay_at.end())
    errors.push_back({"decay_at", "must name each step once, and rise"});
  if (steps && has_list && config.decay_at.front() < config.warmup_steps)
    errors.push_back({"decay_at", "begins at step " + number(config.decay_at.front()) +
                                      ", within the warm-up of warmup_steps (" + number(config.warmup_steps) + ")"});
  if (config.schedule == Schedule::wsd && has_end) {
    const auto fall = detail::fall_steps(config), room = config.decay_steps - config.warmup_steps;
    if (fall < 1)
      errors.push_back({"decay_ratio", "is less than one of decay_steps (" + number(config.decay_steps) + ")"});
    if (fall > room)
      errors.push_back({"decay_ratio", "makes wsd fall over " + number(fall) + " steps, but only " + number(room) +
                                           " lie between warmup_steps (" + number(config.warmup_steps) +
                                           ") and decay_steps (" + number(config.decay_steps) + ")"});
  }
  const auto does_nothing = [&](const char* field, const char* otherwise) {
    const std::string name{enum_names(Schedule{})[static_cast<std::size_t>(config.schedule)].name};
    errors.push_back({field, "does nothing with schedule=" + name + ": choose " + otherwise, Severity::warning});
  };
  if ((stays || steps) && config.decay_steps > 0) does_nothing("decay_steps", "linear, cosine, wsd or one_cycle");
  if (stays && config.final_learning_rate > 0) does_nothing("final_learning_rate", "another schedule");
  if (!steps && config.decay_every > 0) does_nothing("decay_every", "step");
  if (!steps && has_list) does_nothing("decay_at", "step");
  if (config.schedule == Schedule::none && config.warmup_steps > 0) does_nothing("warmup_steps", "another schedule");
  const bool peaks = config.schedule == Schedule::wsd || config.schedule == Schedule::one_cycle || steps;
  if (peaks && config.final_learning_rate > config.learning_rate)
    errors.push_back(
        {"final_learning_rate", "must not be above learning_rate, the peak of schedule=wsd, one_cycle and step"});
  return errors;
}

}  // namespace ddpxx
