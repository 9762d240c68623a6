// The schedules wsd, one_cycle and step compared with their definitions, and properties of all schedules that end.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/optim/adamw_config.hpp>
#include <ddpxx/optim/schedule.hpp>
#include <ddpxx/optim/sgd_config.hpp>

namespace ddpxx::schedule_test {
namespace {

constexpr double kPeak = 6e-4;
constexpr double kRounding = 1e-12 * kPeak;

void expect_rates(const AdamWConfig& config, const std::vector<double>& rates) {
  for (std::size_t step = 0; step < rates.size(); ++step)
    EXPECT_NEAR(config.learning_rate_at(static_cast<std::int64_t>(step)), rates[step], 1e-12 * rates[step])
        << "step " << step << " of " << config.decay_steps;
}

// Each list of rates is what this prints:
//   s = OneCycleLR(SGD([zeros(1)], lr=1.0), max_lr=6e-4, total_steps=TOTAL, cycle_momentum=False)
//   for _ in range(TOTAL): print(s.get_last_lr()[0]); s.optimizer.step(); s.step()
TEST(OneCycle, HasTheStepsOfTorchWithItsDefaults) {
  const auto config = [](std::int64_t total) {
    return AdamWConfig{.learning_rate = kPeak, .schedule = Schedule::one_cycle, .decay_steps = total};
  };
  expect_rates(config(20), {2.400000000000004e-05,  7.900310562001514e-05,  0.00022300310562001517,
                            0.0004009968943799848,  0.0005449968943799847,  0.0006,
                            0.0005924784037410524,  0.0005702907792080842,  0.00053454970654263,
                            0.00048704739236985785, 0.0004301658010747805,  0.00036675721316177355,
                            0.0003000012,           0.00023324518683822646, 0.00016983659892521954,
                            0.0001129550076301422,  6.545269345737003e-05,  2.971162079191577e-05,
                            7.523996258947533e-06,  2.3999999999999996e-09});
  // The peak lies between two steps, or before the first one.
  expect_rates(config(4),
               {2.400000000000004e-05, 0.0004870473923698578, 0.00016983659892521954, 2.3999999999999996e-09});
  expect_rates(config(3), {0.000596649261270547, 0.00027758226160018505, 2.3999999999999996e-09});
  expect_rates(config(2), {0.0004870473923698578, 2.3999999999999996e-09});
  expect_rates(config(1), {2.3999999999999996e-09});
}

// The rates that the program above prints with total_steps=16, pct_start=5/16, final_div_factor=4.0.
TEST(OneCycle, TakesWarmupStepsAndTheFinalRateForTorchsShareAndDivisor) {
  expect_rates({.learning_rate = kPeak,
                .schedule = Schedule::one_cycle,
                .warmup_steps = 5,
                .decay_steps = 16,
                .final_learning_rate = kPeak / 25 / 4},
               {2.400000000000004e-05, 0.00010835324701827438, 0.000312, 0.0005156467529817256, 0.0006,
                0.0005879694131635057, 0.0005528522992508608, 0.0004974936379817497, 0.0004263782588615602,
                0.00034526750696716563, 0.0002607324930328343, 0.00017962174113843974, 0.00010850636201825035,
                5.314770074913914e-05, 1.803058683649431e-05, 5.999999999999999e-06});
}

// torch's OneCycleLR divides by zero with these settings.
TEST(OneCycle, WithOneStepToRiseBeginsAtThePeak) {
  const AdamWConfig config{
      .learning_rate = kPeak, .schedule = Schedule::one_cycle, .warmup_steps = 1, .decay_steps = 8};
  EXPECT_TRUE(config.check().empty());
  EXPECT_DOUBLE_EQ(config.learning_rate_at(0), kPeak);
  EXPECT_LT(config.learning_rate_at(1), kPeak);
}

TEST(WSD, ClimbsStaysAndFallsOverItsShareOfTheSteps) {
  const AdamWConfig config{.learning_rate = kPeak,
                           .schedule = Schedule::wsd,
                           .warmup_steps = 10,
                           .decay_steps = 100,
                           .decay_ratio = 0.2,
                           .final_learning_rate = 1e-4};
  EXPECT_TRUE(config.check().empty());
  for (std::int64_t step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(config.learning_rate_at(step), kPeak * static_cast<double>(step + 1) / 11);
  for (std::int64_t step = 10; step <= 80; ++step) EXPECT_DOUBLE_EQ(config.learning_rate_at(step), kPeak);
  for (std::int64_t step = 80; step <= 100; ++step)
    EXPECT_NEAR(config.learning_rate_at(step), kPeak - 2.5e-5 * static_cast<double>(step - 80), kRounding) << step;
  EXPECT_DOUBLE_EQ(config.learning_rate_at(1000), 1e-4);
}

TEST(WSD, ThatFallsOverAllStepsIsLinear) {
  AdamWConfig config{.learning_rate = kPeak, .schedule = Schedule::wsd, .decay_steps = 30, .decay_ratio = 1.0};
  EXPECT_TRUE(config.check().empty());
  auto linear = config;
  linear.schedule = Schedule::linear;
  for (std::int64_t step = 0; step < 40; ++step)
    EXPECT_EQ(config.learning_rate_at(step), linear.learning_rate_at(step)) << step;
}

// Each list of rates is what this prints, with s = StepLR(o, 3, 0.1), s = ExponentialLR(o, 0.9), and
// s = SequentialLR(o, [LinearLR(o, 1/4, 1, 3), StepLR(o, 2, 0.5)], [3]), where o = SGD([zeros(1)], lr=6e-4):
//   for _ in range(N): print(s.get_last_lr()[0]); o.step(); s.step()
TEST(Step, FallsAsTorchsStepLRAndExponentialLR) {
  expect_rates({.learning_rate = kPeak, .schedule = Schedule::step, .decay_every = 3, .decay_factor = 0.1},
               {0.0006, 0.0006, 0.0006, 5.9999999999999995e-05, 5.9999999999999995e-05, 5.9999999999999995e-05, 6e-06,
                6e-06, 6e-06, 6.000000000000001e-07});
  expect_rates({.learning_rate = kPeak, .schedule = Schedule::step, .decay_every = 1, .decay_factor = 0.9},
               {0.0006, 0.00054, 0.000486, 0.0004374, 0.00039366, 0.000354294, 0.0003188646, 0.00028697814,
                0.000258280326, 0.0002324522934});
}

// Each list of rates is what the same loop prints with s = MultiStepLR(o, [2, 3, 6], 0.1).
TEST(Step, FallsAtStepsAsTorchsMultiStepLR) {
  const AdamWConfig config{
      .learning_rate = kPeak, .schedule = Schedule::step, .decay_at = {2, 3, 6}, .decay_factor = 0.1};
  EXPECT_TRUE(config.check().empty());
  expect_rates(config, {0.0006, 0.0006, 5.9999999999999995e-05, 6e-06, 6e-06, 6e-06, 6.000000000000001e-07,
                        6.000000000000001e-07, 6.000000000000001e-07});
  auto warmed = config;
  warmed.warmup_steps = 2;
  EXPECT_TRUE(warmed.check().empty());
  EXPECT_DOUBLE_EQ(warmed.learning_rate_at(0), kPeak / 3);
  for (const std::int64_t step : {2, 3, 5, 6})
    EXPECT_EQ(warmed.learning_rate_at(step), config.learning_rate_at(step)) << "the steps of warm-up count too";
}

TEST(Step, CountsItsStepsFromTheEndOfWarmUp) {
  expect_rates(
      {.learning_rate = kPeak, .schedule = Schedule::step, .warmup_steps = 3, .decay_every = 2, .decay_factor = 0.5},
      {0.00015, 0.0003, 0.00045, 0.0006, 0.0006, 0.0003, 0.0003, 0.00015, 0.00015, 7.5e-05, 7.5e-05, 3.75e-05});
}

TEST(Step, FallsNoLowerThanTheFinalRate) {
  const AdamWConfig config{.learning_rate = kPeak,
                           .schedule = Schedule::step,
                           .decay_every = 10,
                           .decay_factor = 0.5,
                           .final_learning_rate = 1e-4};
  EXPECT_TRUE(config.check().empty());
  EXPECT_DOUBLE_EQ(config.learning_rate_at(29), kPeak / 4);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(30), 1e-4);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(1'000'000'000), 1e-4);
}

TEST(Step, NeverRisesAfterWarmUpAndStaysBetweenTheFinalRateAndThePeak) {
  for (const std::int64_t warmup : {0, 1, 7})
    for (const std::int64_t every : {1, 2, 9, 100})
      for (const double factor : {0.1, 0.9, 1.0})
        for (const double end : {0.0, kPeak / 10, kPeak}) {
          const AdamWConfig config{.learning_rate = kPeak,
                                   .schedule = Schedule::step,
                                   .warmup_steps = warmup,
                                   .decay_every = every,
                                   .decay_factor = factor,
                                   .final_learning_rate = end};
          ASSERT_TRUE(config.check().empty());
          for (std::int64_t step = warmup; step < 400; ++step) {
            const auto rate = config.learning_rate_at(step);
            ASSERT_TRUE(rate >= end && rate <= kPeak) << step;
            ASSERT_LE(config.learning_rate_at(step + 1), rate) << step;
            const bool decays = (step + 1 - warmup) % every == 0 && factor < 1 && rate > end && rate > 0;
            ASSERT_EQ(config.learning_rate_at(step + 1) < rate, decays) << step;
          }
        }
}

/// Configurations of every schedule but step, with many settings; all of them pass check().
std::vector<AdamWConfig> many_configs() {
  std::vector<AdamWConfig> configs;
  for (const auto& [schedule, name] : enum_names(Schedule{})) {
    if (schedule == Schedule::step) continue;  // it jumps, and has no last step
    for (const std::int64_t warmup : {0, 1, 2, 7, 40})
      for (const std::int64_t decay : {1, 2, 3, 9, 50, 333})
        for (const double ratio : {0.1, 0.3, 1.0})
          for (const double end : {0.0, kPeak / 10, kPeak}) {
            const AdamWConfig config{.learning_rate = kPeak,
                                     .schedule = schedule,
                                     .warmup_steps = warmup,
                                     .decay_steps = decay,
                                     .decay_ratio = ratio,
                                     .final_learning_rate = end};
            if (config.check().empty()) configs.push_back(config);
          }
  }
  return configs;
}

std::string text(const AdamWConfig& config) {
  std::ostringstream out;
  out << enum_names(Schedule{})[static_cast<std::size_t>(config.schedule)].name << ", " << config.warmup_steps << " of "
      << config.decay_steps << " steps, ratio " << config.decay_ratio << ", to " << config.final_learning_rate;
  return out.str();
}

TEST(EveryScheduleThatEnds, StaysAboveZeroAndBelowThePeakAndKeepsItsLastRate) {
  const auto configs = many_configs();
  ASSERT_GT(configs.size(), 400U);
  for (const auto& config : configs) {
    SCOPED_TRACE(text(config));
    for (std::int64_t step = 0; step < 400; ++step) {
      const auto rate = config.learning_rate_at(step);
      ASSERT_TRUE(rate >= 0 && rate <= kPeak + kRounding) << rate << " at step " << step;
    }
    const bool one_cycle = config.schedule == Schedule::one_cycle;
    const bool stays = config.schedule == Schedule::none || config.schedule == Schedule::constant;
    const double end = stays                                            ? kPeak
                       : one_cycle && config.final_learning_rate == 0.0 ? kPeak / 25 / 1e4
                                                                        : config.final_learning_rate;
    const auto last = std::max(config.decay_steps, config.warmup_steps) - (one_cycle ? 1 : 0);
    for (const std::int64_t after : {0, 1, 1000}) ASSERT_DOUBLE_EQ(config.learning_rate_at(last + after), end);
  }
}

TEST(EveryScheduleThatEnds, ChangesByNoMoreThanItsSlope) {
  for (const auto& config : many_configs()) {
    const auto warmup = static_cast<double>(config.warmup_steps), decay = static_cast<double>(config.decay_steps);
    double slope = kPeak / (warmup + 1);
    const double steepest = std::numbers::pi / 2;  // the largest slope of half a cosine, relative to a straight line
    switch (config.schedule) {
      case Schedule::none:
        slope = 0;
        break;
      case Schedule::constant:
      case Schedule::step:
        break;
      case Schedule::linear:
        slope = std::max(slope, kPeak / (decay - warmup));
        break;
      case Schedule::cosine:
        slope = std::max(slope, steepest * kPeak / (decay - warmup));
        break;
      case Schedule::wsd:
        slope = std::max(slope, kPeak / std::round(config.decay_ratio * decay));
        break;
      case Schedule::one_cycle: {
        const double top = (warmup > 0 ? warmup : 0.3 * decay) - 1;
        slope = steepest * kPeak / std::max(1.0, std::min(top > 0 ? top : decay, decay - 1 - top));
        break;
      }
    }
    for (std::int64_t step = 0; step < 400; ++step)
      ASSERT_LE(std::abs(config.learning_rate_at(step + 1) - config.learning_rate_at(step)), slope + kRounding)
          << text(config) << ", step " << step;
  }
}

using Texts = std::vector<std::pair<std::string, std::string>>;
template <class Config>
Texts found_in(const Config& config, Severity severity) {
  Texts texts;
  for (const auto& found : config.check())
    if (found.severity == severity) texts.emplace_back(found.field, found.text);
  return texts;
}
template <class Config>
Texts errors_of(const Config& config) {
  return found_in(config, Severity::error);
}

TEST(ScheduleRules, NameTheFieldAndTheNumbersThatDoNotFit) {
  const AdamWConfig wsd{.schedule = Schedule::wsd, .warmup_steps = 50, .decay_steps = 100, .decay_ratio = 0.5};
  EXPECT_EQ(errors_of(wsd), Texts{});
  auto config = wsd;
  config.decay_ratio = 0.51;
  EXPECT_EQ(errors_of(config), (Texts{{"decay_ratio",
                                       "makes wsd fall over 51 steps, but only 50 lie between warmup_steps (50) and "
                                       "decay_steps (100)"}}));
  config.decay_ratio = 0.004;
  EXPECT_EQ(errors_of(config), (Texts{{"decay_ratio", "is less than one of decay_steps (100)"}}));
  config.decay_steps = 50;  // one error, without errors that follow from it
  const Texts no_end{{"decay_steps", "must be greater than warmup_steps (50) unless schedule=constant or step"}};
  EXPECT_EQ(errors_of(config), no_end);
  config.schedule = Schedule::one_cycle;
  EXPECT_EQ(errors_of(config), no_end);
  config.schedule = Schedule::constant;
  EXPECT_EQ(errors_of(config), Texts{});
  EXPECT_EQ(found_in(config, Severity::warning),
            (Texts{{"decay_steps", "does nothing with schedule=constant: choose linear, cosine, wsd or one_cycle"}}));
}

TEST(ScheduleRules, WantTheStepsBetweenDecaysForStepAlone) {
  const SGDConfig step{.learning_rate = 0.1, .schedule = Schedule::step};
  EXPECT_EQ(errors_of(step),
            (Texts{{"decay_every", "must be at least 1 with schedule=step, or name the steps in decay_at"}}));
  SGDConfig linear{.schedule = Schedule::linear, .decay_steps = 10, .decay_every = 5};
  EXPECT_EQ(errors_of(linear), Texts{});
  EXPECT_EQ(found_in(linear, Severity::warning),
            (Texts{{"decay_every", "does nothing with schedule=linear: choose step"}}));
  linear.schedule = Schedule::step;
  EXPECT_EQ(errors_of(linear), Texts{});
  EXPECT_EQ(found_in(linear, Severity::warning),
            (Texts{{"decay_steps", "does nothing with schedule=step: choose linear, cosine, wsd or one_cycle"}}));
}

TEST(ScheduleRules, WantRisingStepsOfDecaysBehindTheWarmUp) {
  const auto errors = [](std::vector<std::int64_t> decay_at, std::int64_t decay_every = 0) {
    return errors_of(SGDConfig{
        .schedule = Schedule::step, .warmup_steps = 5, .decay_every = decay_every, .decay_at = std::move(decay_at)});
  };
  EXPECT_EQ(errors({5, 9}), Texts{});
  EXPECT_EQ(errors({5, 9}, 3), (Texts{{"decay_every", "cannot be set beside decay_at: leave one of them out"}}));
  for (const auto& wrong : {std::vector<std::int64_t>{9, 8}, {9, 9}})
    EXPECT_EQ(errors(wrong), (Texts{{"decay_at", "must name each step once, and rise"}}));
  EXPECT_EQ(errors({4, 9}), (Texts{{"decay_at", "begins at step 4, within the warm-up of warmup_steps (5)"}}));
  EXPECT_EQ(found_in(SGDConfig{.decay_at = {4}}, Severity::warning),
            (Texts{{"decay_at", "does nothing with schedule=constant: choose step"}}));
}

TEST(ScheduleRules, HoldAFinalRateThatIsNoFallAgainstSchedulesWithAPeakOnly) {
  for (const auto& [schedule, name] : enum_names(Schedule{})) {
    const SGDConfig config{
        .learning_rate = 0.1, .schedule = schedule, .decay_steps = 100, .decay_every = 10, .final_learning_rate = 0.2};
    const bool has_peak = schedule == Schedule::wsd || schedule == Schedule::one_cycle || schedule == Schedule::step;
    EXPECT_EQ(errors_of(config).size(), has_peak ? 1U : 0U) << name;
  }
}

TEST(SGDRules, GiveNesterovAMomentumWithoutDampening) {
  const Texts refusal{{"nesterov", "needs momentum above 0 and dampening=0"}};
  EXPECT_EQ(errors_of(SGDConfig{.nesterov = true}), refusal);
  EXPECT_EQ(errors_of(SGDConfig{.momentum = 0.9, .dampening = 0.1, .nesterov = true}), refusal);
  EXPECT_EQ(errors_of(SGDConfig{.momentum = 0.9, .nesterov = true}), Texts{});
}

}  // namespace
}  // namespace ddpxx::schedule_test
