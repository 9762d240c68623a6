#include <string>

#include <gtest/gtest.h>

#include <ddpxx/core/utf8.hpp>

namespace ddpxx::utf8_test {
namespace {

TEST(Utf8, TakesEveryLengthOfCharacter) {
  EXPECT_EQ(find_malformed_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), std::string::npos);
  EXPECT_EQ(count_characters("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 4U);
  EXPECT_EQ(find_malformed_utf8(""), std::string::npos);
}

TEST(Utf8, FindsTheFirstByteThatBelongsToNoCharacter) {
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xE2\x82", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_EQ(find_malformed_utf8("ab" + std::string{bad} + "c"), 2U) << testing::PrintToString(bad);
}

TEST(Utf8, CountsAMalformedByteAsOneCharacter) { EXPECT_EQ(count_characters("a\xFF\xFEz"), 4U); }

}  // namespace
}  // namespace ddpxx::utf8_test
