#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/slow_ranks.hpp>

namespace ddpxx::slow_ranks_test {
namespace {

/// What is said of steps with these times of the ranks; a window has two steps.
std::string said_of(const std::vector<std::vector<RankTime>>& steps, double factor = 1.5,
                    const std::vector<std::string>& hosts = {}) {
  std::ostringstream said;
  SlowRanks watch{factor, 2, Log{0, said}};
  watch.on_begin({.hosts = hosts});
  for (const auto& times : steps) EXPECT_EQ(watch.on_step({.rank_times = times}), Verdict::go_on);
  return said.str();
}

using Times = std::vector<RankTime>;
const Times kEven{{10, 1}, {11, 1}, {12, 1}}, kSlow{{10, 1}, {40, 25}, {12, 1}}, kFirst{{50, 1}, {11, 1}, {12, 1}};

TEST(SlowRanks, NamesARankThatWasSlowInTwoWindowsInARow) {
  EXPECT_EQ(
      said_of({kSlow, kSlow, kSlow, kSlow}, 1.5, {"a1", "b2", "c3"}),
      "[rank0] warning: rank 1 on host b2 is slow, and the other ranks wait for it: by itself it needs 40.0 ms for "
      "a step (25.0 ms of them for its batches), and the median rank 12.0 ms\n");
}

TEST(SlowRanks, SaysNothingOfOneWindowNorOfASlowWindowNowAndThen) {
  EXPECT_EQ(said_of({kSlow, kSlow}), "");
  EXPECT_EQ(said_of({kSlow, kSlow, kEven, kEven, kSlow, kSlow}), "");
  EXPECT_EQ(said_of({kEven, kEven, kEven, kEven}), "");
  EXPECT_EQ(said_of({kSlow, kSlow, kFirst, kFirst}), "") << "another rank is slow in each";
}

TEST(SlowRanks, ComparesMeansOverAWindowWithTheFactor) {
  const Times slower{{10, 0}, {18, 0}, {10, 0}}, as_fast{{10, 0}, {11, 0}, {10, 0}};
  EXPECT_EQ(said_of({slower, as_fast, slower, as_fast}), "") << "1.45 times the median";
  EXPECT_NE(said_of({slower, as_fast, slower, as_fast}, 1.4), "");
}

TEST(SlowRanks, NamesARankOnceUntilItWasFastEnough) {
  const auto count = [](const std::string& text) {
    int found = 0;
    for (auto at = text.find("is slow"); at != std::string::npos; at = text.find("is slow", at + 1)) ++found;
    return found;
  };
  std::vector<Times> steps(12, kSlow);
  EXPECT_EQ(count(said_of(steps)), 1);
  steps.insert(steps.end(), 2, kEven);
  steps.insert(steps.end(), 4, kSlow);
  EXPECT_EQ(count(said_of(steps)), 2);
}

TEST(SlowRanks, ComparesTheSlowerOfTwoRanksWithTheOther) {
  const Times two{{10, 0}, {20, 0}};
  EXPECT_NE(said_of({two, two, two, two}).find("rank 1 is slow"), std::string::npos);
}

TEST(SlowRanks, SaysNothingOfARunThatDoesNotMeasureItsRanks) { EXPECT_EQ(said_of({{}, {}, {}, {}}), ""); }

TEST(SlowRanks, FindsTheSlowestRankAndTheMedian) {
  const auto spread = spread_of(kSlow);
  EXPECT_EQ(spread.slowest_rank, 1);
  EXPECT_EQ(spread.slowest_ms, 40);
  EXPECT_EQ(spread.median_ms, 12);
}

}  // namespace
}  // namespace ddpxx::slow_ranks_test
