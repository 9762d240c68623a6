// The learning rate where evaluations stop improving, compared with torch's ReduceLROnPlateau.
#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/optim/plateau.hpp>
#include <ddpxx/optim/plateau_config.hpp>

namespace ddpxx::plateau_test {
namespace {

/// Expects the learning rates after each of the values. Each list of rates is what this prints, with SETTINGS such as
/// patience=2, factor=0.5:
///   o = SGD([zeros(1)], lr=LR); s = ReduceLROnPlateau(o, eps=0, SETTINGS)
///   for v in VALUES: s.step(v); print(o.param_groups[0]['lr'])
void expect_rates(const PlateauConfig& config, double scheduled, const std::vector<double>& values,
                  const std::vector<double>& rates) {
  Plateau plateau{config};
  ASSERT_EQ(values.size(), rates.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    plateau.note(values[i]);
    EXPECT_NEAR(plateau.rate(scheduled), rates[i], 1e-12 * scheduled) << i;
  }
}

TEST(Plateau, FallsAsTorchsReduceLROnPlateau) {
  expect_rates({.factor = 0.5, .patience = 2}, 1.0,
               {1.0, 0.9, 0.9, 0.95, 0.89995, 0.8, 0.9, std::nan(""), 0.81, 0.7, 0.7, 0.7, 0.7},
               {1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125});
  expect_rates({.factor = 0.5, .patience = 3, .threshold = 0.01, .cooldown = 1}, 0.5,
               {0.238, 0.544, 0.37,  0.604, 0.626, 0.066, 0.013, 0.837, 0.259, 0.234, 0.996, 0.47,  0.836, 0.476,
                0.639, 0.151, 0.635, 0.868, 0.523, 0.741, 0.671, 0.064, 0.758, 0.591, 0.301, 0.031, 0.866, 0.473,
                0.719, 0.879, 0.714, 0.921, 0.395, 0.801, 0.445, 0.936, 0.879, 0.097, 0.136, 0.217},
               {0.5,       0.5,       0.5,       0.5,        0.25,       0.25,       0.25,       0.25,
                0.25,      0.25,      0.125,     0.125,      0.125,      0.125,      0.125,      0.0625,
                0.0625,    0.0625,    0.0625,    0.0625,     0.03125,    0.03125,    0.03125,    0.03125,
                0.03125,   0.015625,  0.015625,  0.015625,   0.015625,   0.015625,   0.0078125,  0.0078125,
                0.0078125, 0.0078125, 0.0078125, 0.00390625, 0.00390625, 0.00390625, 0.00390625, 0.00390625});
}

TEST(Plateau, FallsForAMetricThatIsToGrowAndWaitsAfterAFall) {
  expect_rates({.mode = MetricMode::max, .patience = 0, .cooldown = 2}, 1.0,
               {0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3},
               {1.0, 1.0, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.001, 0.001});
}

TEST(Plateau, FallsNoLowerThanTheLowestRate) {
  expect_rates({.patience = 1, .threshold = 0.0, .lowest_learning_rate = 0.05}, 1.0, {1, 1, 1, 1, 1, 1, 1, 1},
               {1.0, 1.0, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05});
  Plateau plateau{{.lowest_learning_rate = 0.05}};
  EXPECT_EQ(plateau.rate(0.01), 0.01) << "the schedule itself may give less";
}

TEST(Plateau, GoesOnFromTheStateOfAnother) {
  const PlateauConfig config{.factor = 0.5, .patience = 1};
  Plateau first{config}, second{config};
  for (const double value : {1.0, 2.0, 2.0, 2.0}) first.note(value);
  const auto from = first.state(), to = second.state();
  for (std::size_t i = 0; i < to.size(); ++i) at::Tensor{to[i].second}.copy_(from[i].second);
  for (const double value : {2.0, 0.5, 2.0, 2.0}) {
    first.note(value);
    second.note(value);
    EXPECT_EQ(first.rate(1.0), second.rate(1.0));
  }
  EXPECT_EQ(second.rate(1.0), 0.125);
  second.resume();
  EXPECT_EQ(second.rate(1.0), 0.125);
  const auto counts = second.state();
  for (const auto& other : {PlateauConfig{.metric = "val_accuracy", .factor = 0.5, .patience = 1},
                            PlateauConfig{.mode = MetricMode::max, .factor = 0.5, .patience = 1}}) {
    Plateau third{other};
    const auto into = third.state();
    for (std::size_t i = 0; i < into.size(); ++i) at::Tensor{into[i].second}.copy_(counts[i].second);
    third.resume();
    EXPECT_EQ(third.rate(1.0), 1.0) << "the counts are of another metric, or of another mode";
  }
  second.reset();
  EXPECT_EQ(second.rate(1.0), 1.0);
}

}  // namespace
}  // namespace ddpxx::plateau_test
