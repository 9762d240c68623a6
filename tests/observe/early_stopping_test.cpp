#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/observe/early_stopping.hpp>

namespace ddpxx::early_stopping_test {
namespace {

/// The number of the evaluation at which early stopping asks to stop; 0 if it never does.
int stops_at(const EarlyStoppingConfig& config, const std::vector<double>& values) {
  std::ostringstream said;
  EarlyStopping stopping{config, Log{0, said}};
  stopping.on_begin({});
  for (int number = 1; const double value : values) {
    if (stopping.on_evaluated({.val_loss = value, .metrics = {{"accuracy", value}}}) == Verdict::stop) return number;
    ++number;
  }
  return 0;
}

TEST(EarlyStopping, StopsAfterAsManyEvaluationsWithoutImprovementAsItHasPatience) {
  const EarlyStoppingConfig config{.metric = "val_loss", .patience = 2};
  EXPECT_EQ(stops_at(config, {3, 2, 1, 0}), 0);
  EXPECT_EQ(stops_at(config, {3, 3, 3}), 3);
  EXPECT_EQ(stops_at(config, {3, 4, 2, 2.5, 2.25, 1}), 5);
  EXPECT_EQ(stops_at(config, {3, 4, 2, 2.5, 1, 2, 1}), 7);
}

TEST(EarlyStopping, SaysOnceWhyTheRunStops) {
  std::ostringstream said;
  EarlyStopping stopping{{.metric = "val_loss", .patience = 1}, Log{0, said}};
  stopping.on_begin({});
  EXPECT_EQ(stopping.on_evaluated({.val_loss = 3}), Verdict::go_on);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(stopping.on_evaluated({.val_loss = 3}), Verdict::stop);
  EXPECT_EQ(said.str(), "early stopping: val_loss has not improved on 3.000000 in 1 evaluation\n");
}

TEST(EarlyStopping, CountsAChangeOfMinDeltaOrLessAsNone) {
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2, .min_delta = 0.5}, {3, 2.75, 2.5, 1}), 3);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2, .min_delta = 0.5}, {3, 2.75, 2.25, 2}), 0);
}

TEST(EarlyStopping, TakesANumberThatIsNotFiniteForNoImprovement) {
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2}, {std::nan(""), std::nan("")}), 2);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2}, {std::nan(""), 3, std::nan(""), 2}), 0);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 3}, {3, -std::numeric_limits<double>::infinity(), 2, 1}), 0);
}

TEST(EarlyStopping, WatchesAMetricOfTheModelThatIsToGrow) {
  const EarlyStoppingConfig config{.metric = "val_accuracy", .patience = 2, .mode = MetricMode::max};
  EXPECT_EQ(stops_at(config, {0.1, 0.2, 0.3}), 0);
  EXPECT_EQ(stops_at(config, {0.3, 0.2, 0.1}), 3);
}

TEST(EarlyStopping, SaysWhichMetricsThereAreWhereItsOwnIsNot) {
  EarlyStopping stopping{{.metric = "val_acuracy"}};
  try {
    stopping.on_evaluated({.metrics = {{"accuracy", 1}}});
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("an evaluation has no val_acuracy (it has: val_loss, val_accuracy)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ddpxx::early_stopping_test
