#include <sstream>

#include <gtest/gtest.h>

#include <ddpxx/core/log.hpp>

namespace ddpxx {
namespace {

TEST(Log, InformsFromRankZeroOnly) {
  std::ostringstream text;
  Log{1, text}.info("begun");
  EXPECT_EQ(text.str(), "");
  Log{0, text}.info("begun");
  EXPECT_EQ(text.str(), "begun\n");
}

TEST(Log, WarnsFromEveryRankByName) {
  std::ostringstream text;
  Log{0, text}.warn("disk full");
  Log{3, text}.warn("disk full");
  EXPECT_EQ(text.str(), "[rank0] warning: disk full\n[rank3] warning: disk full\n");
}

TEST(Log, KeepsAHostileTextOnItsLine) {
  std::ostringstream text;
  Log{0, text}.warn("key \"a\nb\x1b[2J\"");
  EXPECT_EQ(text.str(), "[rank0] warning: key \"a\\nb\\x1b[2J\"\n");
}

TEST(Harmless, LeavesOrdinaryTextAlone) {
  for (const char* text : {"", "a b\tc", "C:\\new", "größer", "→ 𝄞 ツ", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(harmless(text), text);
}

TEST(Harmless, WritesControlCharactersOut) {
  EXPECT_EQ(harmless("a\r\n\a\x7f"), "a\\r\\n\\x07\\x7f");
  EXPECT_EQ(harmless(std::string_view{"\0", 1}), "\\x00");
  EXPECT_EQ(harmless("\xC2\x9B"
                     "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins an escape sequence as well";
}

TEST(HarmlessLines, KeepLineEndsAndNothingElseThatATerminalObeys) {
  EXPECT_EQ(harmless_lines("a\n\x1b[2J\r\n\nb"), "a\n\\x1b[2J\\r\n\nb");
  EXPECT_EQ(harmless_lines("a\n"), "a\n");
  EXPECT_EQ(harmless_lines(""), "");
}

TEST(Harmless, WritesMalformedUtf8OutByteByByte) {
  EXPECT_EQ(harmless("\x9B"
                     "1"),
            "\\x9b1");
  EXPECT_EQ(harmless("\xE2\x86"), "\\xe2\\x86") << "cut";
  EXPECT_EQ(harmless("\xC0\xAF"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(harmless("\xE0\x80\xAF"), "\\xe0\\x80\\xaf") << "overlong";
  EXPECT_EQ(harmless("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(harmless("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

}  // namespace
}  // namespace ddpxx
