#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx::retention_test {
namespace {

using testing::ElementsAre;

const std::vector<RetainedSnapshot> kSnapshots{
    {10, {{"loss", 3.0}}}, {20, {{"loss", 1.0}}}, {30, {}}, {40, {{"loss", 1.0}}}, {50, {{"loss", 2.0}}}};

TEST(Retention, KeepsAllUnlessToldOtherwise) {
  EXPECT_THAT(Retention{}.keep(kSnapshots), ElementsAre(10, 20, 30, 40, 50));
}

TEST(Retention, KeepsTheLast) { EXPECT_THAT((Retention{.last = 2}.keep(kSnapshots)), ElementsAre(40, 50)); }

TEST(Retention, KeepsTheBestAndOfEqualOnesTheNewer) {
  EXPECT_THAT((Retention{.last = 1, .best = 1}.keep(kSnapshots)), ElementsAre(40, 50));
  EXPECT_THAT((Retention{.last = 1, .best = 2}.keep(kSnapshots)), ElementsAre(20, 40, 50));
  EXPECT_THAT((Retention{.last = 1, .best = 9}.keep(kSnapshots)), ElementsAre(10, 20, 40, 50));
}

TEST(Retention, RanksNoSnapshotWhoseValueIsNoNumber) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<RetainedSnapshot> snapshots{
      {10, {{"loss", nan}}}, {20, {{"loss", 1.0}}}, {30, {{"loss", -HUGE_VAL}}}, {40, {{"loss", 2.0}}}};
  EXPECT_THAT((Retention{.last = 1, .best = 1}.keep(snapshots)), ElementsAre(20, 40));
}

TEST(Retention, KeepsTheHighestOfAnotherMetric) {
  const std::vector<RetainedSnapshot> snapshots{
      {10, {{"accuracy", 0.3}}}, {20, {{"accuracy", 0.9}}}, {30, {{"loss", 0.0}}}, {40, {{"accuracy", 0.5}}}};
  EXPECT_THAT((Retention{.last = 1, .best = 1, .metric = "accuracy", .mode = MetricMode::max}.keep(snapshots)),
              ElementsAre(20, 40));
  EXPECT_THAT((Retention{.last = 1, .best = 1, .metric = "accuracy"}.keep(snapshots)), ElementsAre(10, 40));
}

TEST(Retention, KeepsEveryFew) {
  EXPECT_THAT((Retention{.last = 1, .every_steps = 20}.keep(kSnapshots)), ElementsAre(20, 40, 50));
}

TEST(Retention, KeepsTheFirstOneAfterEveryFewEpochs) {
  const std::vector<RetainedSnapshot> snapshots{{.step = 5, .epoch = 0},  {.step = 10, .epoch = 1},
                                                {.step = 15, .epoch = 2}, {.step = 20, .epoch = 2},
                                                {.step = 25, .epoch = 5}, {.step = 30, .epoch = 5}};
  EXPECT_THAT((Retention{.last = 1, .every_epochs = 1}.keep(snapshots)), ElementsAre(10, 15, 25, 30));
  EXPECT_THAT((Retention{.last = 1, .every_epochs = 2}.keep(snapshots)), ElementsAre(15, 25, 30));
  EXPECT_THAT((Retention{.last = 1, .every_epochs = 6}.keep(snapshots)), ElementsAre(30));
}

TEST(Retention, KeepsOneEverySoManySecondsAlsoAcrossAClockThatIsSetBack) {
  const std::vector<RetainedSnapshot> snapshots{{.step = 1},
                                                {.step = 2, .written_at = 1000},
                                                {.step = 3, .written_at = 1050},
                                                {.step = 4, .written_at = 1060},
                                                {.step = 5, .written_at = 1119},
                                                {.step = 6, .written_at = 200},
                                                {.step = 7, .written_at = 259},
                                                {.step = 8, .written_at = 261},
                                                {.step = 9, .written_at = 262}};
  EXPECT_THAT((Retention{.last = 1, .every_seconds = 60}.keep(snapshots)), ElementsAre(2, 4, 6, 8, 9));
}

TEST(Retention, OfTheWholeEqualsThatOfOneAfterTheOther) {
  const Retention rules{.last = 2, .every_epochs = 3, .every_seconds = 100};
  std::vector<RetainedSnapshot> all, there;
  std::set<std::int64_t> kept;
  for (std::int64_t step = 1; step < 60; ++step) {
    all.push_back({.step = step, .epoch = step / 4, .written_at = 7000 + 37 * step});
    there.push_back(all.back());
    kept = rules.keep(there);
    std::erase_if(there, [&](const RetainedSnapshot& each) { return !kept.contains(each.step); });
  }
  EXPECT_EQ(kept, rules.keep(all));
}

TEST(Retention, KeepsTheNewestInAnyCase) {
  EXPECT_THAT((Retention{.last = 1, .best = 1}.keep({kSnapshots.data(), 3})), ElementsAre(20, 30));
  EXPECT_THAT(Retention{.last = 1}.keep({}), ElementsAre());
}

}  // namespace
}  // namespace ddpxx::retention_test
