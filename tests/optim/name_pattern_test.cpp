// Patterns of parameter names, and the names that are nearest to matching one.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/optim/name_pattern.hpp>

namespace ddpxx::name_pattern_test {
namespace {

TEST(NamePattern, MatchesAcrossDots) {
  EXPECT_TRUE(matches_pattern("transformer.h.0.attn.c_attn.bias", "*.bias"));
  EXPECT_TRUE(matches_pattern("transformer.h.0.attn.c_attn.bias", "transformer.?.*"));
  EXPECT_TRUE(matches_pattern("transformer.h.0.attn", "transformer?h?0?attn"));
  EXPECT_TRUE(matches_pattern("h.3.bias", "h.[1-4].*"));
  EXPECT_TRUE(matches_pattern("weight", "*"));
  EXPECT_FALSE(matches_pattern("bias", "*.bias"));
  EXPECT_FALSE(matches_pattern("lm_head.weight", "lm_head"));
  EXPECT_FALSE(matches_pattern("lm_head.weight", "LM_head.*"));
}

TEST(NamePattern, HasADistanceOfZeroToWhatItMatches) {
  for (const char* pattern : {"*", "a.b", "a?b", "*b", "a*", "*.*", "a**b"}) {
    EXPECT_EQ(pattern_distance(pattern, "a.b"), 0U) << pattern;
    EXPECT_TRUE(matches_pattern("a.b", pattern)) << pattern;
  }
  EXPECT_EQ(pattern_distance("a.c*", "a.b"), 1U);
  EXPECT_EQ(pattern_distance("*.bais", "x.y.bias"), 2U);
  EXPECT_EQ(pattern_distance("wte*", ""), 3U);
  EXPECT_EQ(pattern_distance("", "ab"), 2U);
}

TEST(NamePattern, IsNearestToNamesThatDifferLittleFromAMatch) {
  const std::vector<std::string> names{"transformer.wpe.weight", "transformer.h.0.ln_1.bias", "lm_head.weight",
                                       "transformer.wte.weight"};
  EXPECT_EQ(nearest_names("transfomer.wte.*", names, 2),
            (std::vector<std::string>{"transformer.wte.weight", "transformer.wpe.weight"}));
  EXPECT_EQ(nearest_names("head.*", names, 1), (std::vector<std::string>{"lm_head.weight"}));
  EXPECT_EQ(nearest_names("x", names, 9).size(), 4U);
}

}  // namespace
}  // namespace ddpxx::name_pattern_test
