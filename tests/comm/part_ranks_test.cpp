#include <chrono>
#include <future>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gtest/gtest.h>

#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/part_ranks.hpp>

namespace ddpxx::part_ranks_test {
namespace {

TEST(PartRanks, AreNumbersOfTheRunInTheOrderOfThePart) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::seconds{20});
  auto last = std::async(std::launch::async, [&] { return detail::part_ranks(*store, 6, 2, 3); });
  auto middle = std::async(std::launch::async, [&] { return detail::part_ranks(*store, 4, 1, 3); });
  const std::vector<int> expected{2, 4, 6};
  EXPECT_EQ(detail::part_ranks(*store, 2, 0, 3), expected);
  EXPECT_EQ(middle.get(), expected);
  EXPECT_EQ(last.get(), expected);
}

TEST(Meeting, APartOfAPartKeepsTheNumberInTheRun) {
  const Meeting whole{.host = "127.0.0.1", .rank = 6, .world_size = 8};
  EXPECT_FALSE(whole.number.has_value());
  const auto part = whole.part({}, 3, 4);
  EXPECT_EQ(part.rank, 3);
  EXPECT_EQ(part.number, 6);
  EXPECT_EQ(part.part({}, 1, 2).number, 6);
}

// Ranks that have met late still get time to connect, but never more than the time to join.
TEST(Meeting, GivesTheBackendWhatIsLeftOfTheTime) {
  using namespace std::chrono_literals;
  Meeting meeting{.join_timeout = 300s};
  EXPECT_EQ(meeting.time_to_connect(), 300s);
  meeting.deadline = std::chrono::steady_clock::now() + 100s;
  EXPECT_LE(meeting.time_to_connect(), 100s);
  EXPECT_GT(meeting.time_to_connect(), 90s);
  meeting.deadline = std::chrono::steady_clock::now() - 1s;
  EXPECT_EQ(meeting.time_to_connect(), 10s);
  meeting.join_timeout = 5s;
  EXPECT_EQ(meeting.time_to_connect(), 5s);
}

}  // namespace
}  // namespace ddpxx::part_ranks_test
