#include <atomic>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/log.hpp>

namespace ddpxx::log_test {
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

/// Sets a log sink, and restores the default one at the end.
struct WithSink {
  explicit WithSink(LogSink sink) { set_log_sink(std::move(sink)); }
  WithSink(const WithSink&) = delete;
  WithSink& operator=(const WithSink&) = delete;
  ~WithSink() { set_log_sink({}); }
};

/// The text that `body` writes to std::cerr.
template <class Body>
std::string stderr_of(const Body& body) {
  std::ostringstream text;
  auto* const former = std::cerr.rdbuf(text.rdbuf());
  body();
  std::cerr.rdbuf(former);
  return text.str();
}

TEST(LogSink, TakesTheLinesInsteadOfStderr) {
  std::vector<std::string> lines;
  const auto screen = stderr_of([&] {
    const WithSink sink{[&](const LogLine& line) {
      lines.push_back((line.level == LogLevel::info ? "info " : "warning ") + std::to_string(line.rank) + ' ' +
                      std::string{line.text});
    }};
    const Log first{0}, third{3};
    first.info("begun");
    third.info("only rank 0 informs");
    third.warn("disk\nfull");
  });
  EXPECT_EQ(lines, (std::vector<std::string>{"info 0 begun", "warning 3 disk\\nfull"}));
  EXPECT_EQ(screen, "");
  EXPECT_EQ(stderr_of([] { Log{1}.warn("disk full"); }), "[rank1] warning: disk full\n")
      << "the default sink was not restored";
}

TEST(LogSink, IsNotForALogWithAStreamOfItsOwn) {
  int lines = 0;
  const WithSink sink{[&](const LogLine&) { ++lines; }};
  std::ostringstream text;
  Log{0, text}.info("begun");
  EXPECT_EQ(text.str(), "begun\n");
  EXPECT_EQ(lines, 0);
}

TEST(Log, GoesOnAfterALineThatCouldNotBeWritten) {
  struct FullAtFirst : std::stringbuf {
    std::streamsize xsputn(const char* text, std::streamsize size) override {
      return std::exchange(is_full, false) ? 0 : std::stringbuf::xsputn(text, size);
    }
    bool is_full = true;
  } disk;
  std::ostream stream{&disk};
  Log{0, stream}.warn("lost");
  Log{0, stream}.warn("written");
  EXPECT_EQ(disk.str(), "[rank0] warning: written\n");
}

TEST(LogSink, ThatThrowsAnythingLosesNoLine) {
  const WithSink sink{[](const LogLine&) { throw 1; }};
  EXPECT_EQ(stderr_of([] { Log{0}.warn("disk full"); }), "[rank0] warning: disk full\n");
}

TEST(LogSink, ThatThrowsLosesNoLine) {
  const WithSink sink{[](const LogLine&) { throw std::runtime_error{"the host's log is closed"}; }};
  EXPECT_EQ(stderr_of([] { Log{0}.warn("disk full"); }), "[rank0] warning: disk full\n");
}

TEST(LogSink, MayWriteLogLinesItselfAndBeReplacedWhileOthersWrite) {
  std::atomic<int> lines = 0;
  const auto count = [&](const LogLine& line) {
    if (++lines % 2 == 1 && line.text != "again") Log{0}.info("again");
  };
  const WithSink sink{count};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([] {
      for (int line = 0; line < 1000; ++line) Log{0}.info("one");
    });
  for (int i = 0; i < 1000; ++i) set_log_sink(count);
  threads.clear();
  EXPECT_GE(lines, 2000);
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
  EXPECT_EQ(harmless("\xE2\x86"), "\\xe2\\x86") << "truncated sequence";
  EXPECT_EQ(harmless("\xC0\xAF"), "\\xc0\\xaf") << "overlong sequence";
  EXPECT_EQ(harmless("\xE0\x80\xAF"), "\\xe0\\x80\\xaf") << "overlong sequence";
  EXPECT_EQ(harmless("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(harmless("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

}  // namespace
}  // namespace ddpxx::log_test
