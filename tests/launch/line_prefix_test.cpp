#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/line_prefix.hpp>

namespace ddpxx::line_prefix_test {
namespace {

using namespace detail;

// The expected texts are what Python's string.Template gives.
TEST(LinePrefix, FillsATemplateAsPythonDoes) {
  const std::map<std::string, std::string, std::less<>> values = {{"rank", "3"}, {"role_name", "trainer"}};
  for (const auto& [form, text] :
       std::map<std::string, std::string>{{"[$rank]", "[3]"},
                                          {"${role_name}$rank:", "trainer3:"},
                                          {"$$rank", "$rank"},
                                          {"$ranks ${rank ${other} $", "$ranks ${rank ${other} $"},
                                          {"$$$rank", "$3"},
                                          {"", ""}})
    EXPECT_EQ(fill_template(form, values), text) << form;
}

TEST(LinePrefix, NamesTheRankUnlessItIsAlone) {
  const RankInfo info{.rank = Rank{5}, .world_size = WorldSize{8}, .local_rank = LocalRank{1}};
  EXPECT_EQ(line_prefix({.ranks_per_node = 4}, info, false), "[rank5]: ");
  EXPECT_EQ(line_prefix({.ranks_per_node = 1}, info, false), "");
  EXPECT_EQ(line_prefix({.ranks_per_node = 1, .role = "trainer"}, info, true), "[trainer1]:");
}

}  // namespace
}  // namespace ddpxx::line_prefix_test
