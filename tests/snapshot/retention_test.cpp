#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx {
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

TEST(Retention, KeepsEveryFew) {
  EXPECT_THAT((Retention{.last = 1, .every_steps = 20}.keep(kSnapshots)), ElementsAre(20, 40, 50));
}

TEST(Retention, KeepsTheNewestInAnyCase) {
  EXPECT_THAT((Retention{.last = 1, .best = 1}.keep({kSnapshots.data(), 3})), ElementsAre(20, 30));
  EXPECT_THAT(Retention{.last = 1}.keep({}), ElementsAre());
}

}  // namespace
}  // namespace ddpxx
