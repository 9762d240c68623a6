#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/line_splitter.hpp>

namespace ddpxx::line_splitter_test {
namespace {

using namespace detail;
using Lines = std::vector<std::string>;

Lines lines_of(const std::vector<std::string>& pieces) {
  Lines lines;
  const auto keep = [&](std::string_view line, LineEnd end) {
    lines.emplace_back(std::string{line} + (end == LineEnd::carriage_return ? "<CR>" : ""));
  };
  LineSplitter splitter;
  for (const auto& piece : pieces) splitter.feed(piece, keep);
  splitter.flush(keep);
  return lines;
}

TEST(LineSplitter, JoinsAndSplitsAtLineEndsOnly) {
  EXPECT_EQ(lines_of({"one\ntwo\n"}), (Lines{"one", "two"}));
  EXPECT_EQ(lines_of({"o", "ne", "\n", "two\nth", "ree\n"}), (Lines{"one", "two", "three"}));
  EXPECT_EQ(lines_of({"\n\na\r\n"}), (Lines{"", "", "a\r"}));
}

TEST(LineSplitter, EndsAPieceAtACarriageReturnThatNoNewlineFollows) {
  EXPECT_EQ(lines_of({"\r10%\r20%\n"}), (Lines{"<CR>", "10%<CR>", "20%"}));
  EXPECT_EQ(lines_of({"1", "0%\r", "20", "%\r", "\nend\n"}), (Lines{"10%<CR>", "20%\r", "end"}));
  EXPECT_EQ(lines_of({"a\r\r\n", "b\r"}), (Lines{"a<CR>", "\r", "b\r"}));
}

TEST(LineSplitter, FlushesAnUnfinishedLineOnce) {
  EXPECT_EQ(lines_of({"one\ntw"}), (Lines{"one", "tw"}));
  EXPECT_EQ(lines_of({"one\n"}), (Lines{"one"}));
  EXPECT_EQ(lines_of({}), Lines{});
}

TEST(LineSplitter, BreaksUpALineThatNeverEnds) {
  const std::string longest(LineSplitter::kMaxLine, 'x');
  EXPECT_EQ(lines_of({longest + "yz\n"}), (Lines{longest, "yz"}));
  EXPECT_EQ(lines_of({longest.substr(1), "xy", "\n"}), (Lines{longest, "y"}));
  EXPECT_EQ(lines_of({longest + '\r' + longest + "x\r\n"}), (Lines{longest + "<CR>", longest, "x\r"}));
}

}  // namespace
}  // namespace ddpxx::line_splitter_test
