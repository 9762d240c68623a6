#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/rank_info.hpp>

namespace ddpxx::rank_info_test {
namespace {

TEST(RankInfo, IsAWorldOfOneByDefault) {
  const RankInfo rank_info;
  EXPECT_NO_THROW(check(rank_info));
  EXPECT_EQ(rank_info.rank, Rank{0});
  EXPECT_EQ(rank_info.world_size, WorldSize{1});
}

TEST(RankInfo, PrintsAndComparesItsNumbers) {
  std::ostringstream text;
  text << Rank{3} << '/' << WorldSize{4};
  EXPECT_EQ(text.str(), "3/4");
  EXPECT_LT(LocalRank{1}, LocalRank{2});
}

TEST(RankInfo, RefusesARankOutsideItsWorld) {
  const std::vector<RankInfo> impossible = {
      {.rank = Rank{2}, .world_size = WorldSize{2}},
      {.rank = Rank{-1}, .world_size = WorldSize{2}},
      {.rank = Rank{0}, .world_size = WorldSize{0}},
      {.rank = Rank{0}, .world_size = WorldSize{kMaxRanks + 1}},
      {.world_size = WorldSize{4}, .local_rank = LocalRank{2}, .local_world_size = LocalWorldSize{2}},
      {.world_size = WorldSize{2}, .local_world_size = LocalWorldSize{4}},
      {.restart = -1},
  };
  for (const RankInfo& rank_info : impossible) {
    try {
      check(rank_info);
      ADD_FAILURE() << "rank " << rank_info.rank << " of " << rank_info.world_size << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer);
    }
  }
}

}  // namespace
}  // namespace ddpxx::rank_info_test
