#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/number_list.hpp>

namespace ddpxx::number_list_test {
namespace {

TEST(NumberList, JoinsRunsAndCutsALongList) {
  EXPECT_EQ(number_list({3}), "3");
  EXPECT_EQ(number_list({1, 2}), "1, 2");
  EXPECT_EQ(number_list({0, 2, 3, 4, 7}), "0, 2-4, 7");
  std::vector<int> odd;
  for (int i = 0; i < 1000; ++i) odd.push_back(2 * i + 1);
  EXPECT_THAT(number_list(odd), testing::EndsWith(", 39 and 980 more"));
}

}  // namespace
}  // namespace ddpxx::number_list_test
