// ranks_test.cpp — a user's own unit tests, on ranks that really communicate.
#include <gtest/gtest.h>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/testing.hpp>

TEST(Ranks, KnowTheSizeOfTheirWorld) {
  ddpxx::spawn_ranks(2, [](ddpxx::Group& group) { EXPECT_EQ(group.size(), 2); });
}
