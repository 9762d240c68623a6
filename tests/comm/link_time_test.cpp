// The time of collectives over links of a given speed, and the speed that explains measured times.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/link_time.hpp>
#include <ddpxx/comm/recording.hpp>

namespace ddpxx::link_time_test {
namespace {

constexpr LinkConfig kLink{.latency = 1e-3, .bandwidth = 1e6};

TEST(LinkTime, IsThatOfPiecesWhichGoAroundARing) {
  EXPECT_DOUBLE_EQ(seconds_of({"all_reduce", 4000, 4}, kLink), 6e-3 + 6e-3);
  EXPECT_DOUBLE_EQ(seconds_of({"reduce_scatter", 4000, 4}, kLink), 3e-3 + 3e-3);
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", 4000, 4}, kLink), 3e-3 + 3e-3);
  EXPECT_DOUBLE_EQ(seconds_of({"barrier", 0, 4}, kLink), 6e-3);
}

TEST(LinkTime, OfABroadcastGrowsWithTheLogarithmOfTheRanks) {
  EXPECT_DOUBLE_EQ(seconds_of({"broadcast", 4000, 8}, kLink), 3e-3 + 4e-3);
  EXPECT_DOUBLE_EQ(seconds_of({"broadcast", 4000, 5}, kLink), 3e-3 + 4e-3);
}

TEST(LinkTime, OfOneRankIsZero) { EXPECT_EQ(seconds_of({"all_reduce", 4000, 1}, kLink), 0); }

TEST(FitLink, FindsTheLinkBehindTheTimes) {
  std::vector<MeasuredAllReduce> times;
  for (const std::int64_t bytes : {4, 4'000, 400'000, 40'000'000})
    times.push_back({bytes, seconds_of({"all_reduce", bytes, 8}, kLink)});
  const auto link = fit_link(times, 8).value();
  EXPECT_NEAR(link.latency, kLink.latency, 1e-9);
  EXPECT_NEAR(link.bandwidth, kLink.bandwidth, 1.0);
}

TEST(FitLink, CountsSmallMessagesAsMuchAsLargeOnes) {
  // The errors of the large times are thousands of times the latency, and move it by a hundredth.
  std::vector<MeasuredAllReduce> times{{4, 2e-3}, {40, 2e-3}, {400'000'000, 1.01 * 400}, {800'000'000, 0.99 * 800}};
  const auto link = fit_link(times, 2).value();
  EXPECT_NEAR(link.latency, 1e-3, 0.02e-3);
  EXPECT_NEAR(link.bandwidth, 1e6, 0.01e6);
}

TEST(FitLink, HasNoLatencyBelowZero) {
  const auto link = fit_link(std::vector<MeasuredAllReduce>{{1'000, 0.5e-3}, {1'000'000, 1.0}}, 2).value();
  EXPECT_EQ(link.latency, 0);
  // The rates are 2e6 and 1e6 bytes per second; the sum of their squares by their sum lies between them.
  EXPECT_NEAR(link.bandwidth, 5e6 / 3, 1.0);
}

TEST(FitLink, IsUnknownWhereTheTimesTellNoBandwidth) {
  EXPECT_FALSE(fit_link(std::vector<MeasuredAllReduce>{{4, 1e-3}, {4, 1e-3}}, 2)) << "one size";
  EXPECT_FALSE(fit_link(std::vector<MeasuredAllReduce>{{4, 2e-3}, {1'000, 1e-3}}, 2)) << "a larger one was faster";
}

}  // namespace
}  // namespace ddpxx::link_time_test
