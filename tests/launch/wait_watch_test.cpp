#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/rank_progress.hpp>
#include <ddpxx/launch/agent/wait_watch.hpp>

namespace ddpxx::wait_watch_test {
namespace {

using detail::WaitWatch;

class Waits : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& rank : ranks_) rank.note_start("all_reduce", 4'096);
  }
  std::optional<std::string> at(int seconds) {
    return watch_.look(WaitWatch::Clock::time_point{std::chrono::seconds{seconds}}, watched_);
  }
  RankProgress& rank(std::size_t i) { return ranks_[i]; }

  std::vector<RankProgress> ranks_ = std::vector<RankProgress>(3);
  std::vector<WaitWatch::Watched> watched_{{4, &ranks_[0]}, {5, &ranks_[1]}, {6, &ranks_[2]}};
  WaitWatch watch_;
};

TEST_F(Waits, AreToldOfFromHalfAMinuteOnAndEachTimeTheyHaveDoubled) {
  at(0);
  rank(0).note_start("all_reduce", 80);
  rank(0).note_wait("all_reduce", 4'096, 1);
  EXPECT_EQ(at(10), std::nullopt);
  rank(2).note_wait("all_reduce", 4'096, 1);
  EXPECT_EQ(at(35), std::nullopt) << "the wait was seen at second 10";
  EXPECT_EQ(at(40),
            "a collective has not ended for 30 s: ranks 4, 6 wait for all_reduce of 4096 bytes (collective 1); rank 5 "
            "does not wait for it, the last that it has started is all_reduce of 4096 bytes (collective 1)");
  EXPECT_EQ(at(45), std::nullopt);
  EXPECT_THAT(at(70).value_or(""), testing::HasSubstr("not ended for 60 s"));
}

TEST_F(Waits, ThatFollowEachOtherAreShort) {
  std::uint64_t number = 1;
  for (int second = 0; second < 300; second += 5) {
    rank(0).note_wait("all_reduce", 4'096, number++);  // of collectives that were started together
    EXPECT_EQ(at(second), std::nullopt);
    rank(0).note_end();
  }
}

TEST_F(Waits, OfOneCollectiveByManyRanksAreOnePart) {
  for (auto& rank : ranks_) rank.note_wait("barrier", 0, 1);
  at(0);
  EXPECT_EQ(at(30), "a collective has not ended for 30 s: ranks 4-6 wait for barrier of 0 bytes (collective 1)");
}

TEST_F(Waits, OfARankThatHasStartedNoCollectiveAreThoseOfTheOthers) {
  RankProgress fresh;
  watched_ = {{0, &ranks_[0]}, {1, &fresh}};
  rank(0).note_wait("broadcast", 8, 1);
  at(0);
  EXPECT_EQ(at(30),
            "a collective has not ended for 30 s: rank 0 waits for broadcast of 8 bytes (collective 1); "
            "rank 1 does not wait for it");
}

}  // namespace
}  // namespace ddpxx::wait_watch_test
