#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/place.hpp>

namespace ddpxx {
namespace {

TEST(Place, IsAWorldOfOneByDefault) {
  const Place place;
  EXPECT_NO_THROW(check(place));
  EXPECT_EQ(place.rank, Rank{0});
  EXPECT_EQ(place.world_size, WorldSize{1});
}

TEST(Place, PrintsAndComparesItsNumbers) {
  std::ostringstream text;
  text << Rank{3} << '/' << WorldSize{4};
  EXPECT_EQ(text.str(), "3/4");
  EXPECT_LT(LocalRank{1}, LocalRank{2});
}

TEST(Place, RefusesARankOutsideItsWorld) {
  const std::vector<Place> impossible = {
      {.rank = Rank{2}, .world_size = WorldSize{2}},
      {.rank = Rank{-1}, .world_size = WorldSize{2}},
      {.rank = Rank{0}, .world_size = WorldSize{0}},
      {.rank = Rank{0}, .world_size = WorldSize{kMaxRanks + 1}},
      {.world_size = WorldSize{4}, .local_rank = LocalRank{2}, .local_world_size = LocalWorldSize{2}},
      {.world_size = WorldSize{2}, .local_world_size = LocalWorldSize{4}},
      {.restart = -1},
  };
  for (const Place& place : impossible) {
    try {
      check(place);
      ADD_FAILURE() << "rank " << place.rank << " of " << place.world_size << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer);
    }
  }
}

}  // namespace
}  // namespace ddpxx
