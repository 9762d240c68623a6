#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <ddpxx/data/utf8.hpp>

namespace ddpxx::utf8_test {
namespace {

std::u32string decoded(std::string_view text) {
  std::u32string characters;
  for_each_code_point(text, [&](char32_t character) { characters += character; });
  return characters;
}

TEST(Utf8, ReadsBackEveryCodePointThatItWrites) {
  for (char32_t character = 0; character < kNumCodePoints; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;  // surrogates are not characters
    std::string text;
    append_utf8(text, character);
    const auto [value, num_bytes] = decode_utf8(text);
    ASSERT_EQ(value, character);
    ASSERT_EQ(num_bytes, text.size());
  }
}

TEST(Utf8, ReplacesWhatIsNoTextAsPythonDoes) {
  EXPECT_EQ(decoded("a\x80z"), U"a\uFFFDz");                            // a continuation byte without a lead byte
  EXPECT_EQ(decoded("\xC0\xAF"), U"\uFFFD\uFFFD");                      // overlong sequence
  EXPECT_EQ(decoded("\xE0\x80\xAF"), U"\uFFFD\uFFFD\uFFFD");            // overlong sequence
  EXPECT_EQ(decoded("\xED\xA0\x80"), U"\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(decoded("\xF4\x90\x80\x80"), U"\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(decoded("\xF5\xFF"), U"\uFFFD\uFFFD");
  EXPECT_EQ(decoded("\xE2\x82"
                    "A"),
            U"\uFFFDA");  // a truncated sequence becomes one replacement character
  EXPECT_EQ(decoded("\xF0\x9F\x98\xC3\xA9"), U"\uFFFD\u00E9");
  EXPECT_EQ(decoded("\xF0\x9F\x98"), U"\uFFFD");
}

TEST(Utf8, CountsCharactersNotBytes) {
  EXPECT_EQ(first_code_points("h\xC3\xA9llo", 2), "h\xC3\xA9");
  EXPECT_EQ(first_code_points("abc", 0), "");
  EXPECT_EQ(first_code_points("abc", 9), "abc");
}

TEST(Utf8, DropsOnlyACharacterThatWasCut) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  const std::size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(without_torn_end(text.substr(0, cut)).size(), kept[cut]) << cut;
  EXPECT_EQ(without_torn_end("a\xE0"), "a");
  for (const auto* whole : {"a\xEF\xBF\xBD", "a\x80\x80\x80\x80", "a\xFF", "a\xF0\x80"})
    EXPECT_EQ(without_torn_end(whole), whole);
}

}  // namespace
}  // namespace ddpxx::utf8_test
