#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/failure_report.hpp>

namespace ddpxx::failure_report_test {
namespace {

using namespace detail;
using std::chrono::milliseconds;

Exit ended(int rank, int code, int after_ms, std::optional<int> sent = {}) {
  return {.rank = rank,
          .local_rank = rank,
          .pid = 100 + rank,
          .code = code,
          .elapsed = milliseconds{after_ms},
          .signal_sent = sent};
}

TEST(FailureReport, NamesTheCauseAndTheOtherFailures) {
  std::vector<Exit> exits = {ended(0, 5, 250), ended(1, -SIGKILL, 200), ended(2, -SIGTERM, 2'200, SIGTERM),
                             ended(3, 0, 150), ended(4, 0, 300)};
  exits[1].last_lines = {"first", "out of luck\x1b[2J"};
  exits[1].error_file = "/logs/1/error.json";
  exits[1].message = "RuntimeError: no\nluck";
  exits[1].last_step = 12;
  exits[1].last_collective = "all_reduce of 8 bytes";
  const auto text = failure_report(exits, 1, "train.py", "node0", "/logs");
  for (const char* part :
       {"train.py FAILED\n", "Failures:\n", "Root Cause (first observed failure):\n", "  host      : node0\n",
        "  rank      : 1 (local_rank: 1)\n", "  exitcode  : -9 (pid: 101)\n", "  error_file: /logs/1/error.json\n",
        "  logs      : /logs\n", "  last step : 12\n", "  collective: all_reduce of 8 bytes\n",
        "  error     : RuntimeError: no\\nluck\n", "Signal 9 (SIGKILL) received by PID 101\n",
        "    first\n    out of luck\\x1b[2J\n", "rank 0 (local_rank: 0, pid: 100): exit code 5, 0.05 s after\n",
        "rank 2 (local_rank: 2, pid: 102): ended by ddpxx-run with SIGTERM, 2.00 s after\n",
        "rank 3 (local_rank: 3, pid: 103): exit code 0, 0.05 s before\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "in\n" << text;
  EXPECT_EQ(text.find("rank 4"), std::string::npos) << "a rank that succeeded after the failure must not be listed";
  EXPECT_TRUE(text.ends_with("=\n"));
  EXPECT_EQ(failure_report(exits, 1, "train.py", "node0").find("/logs"), std::string::npos)
      << "the folder of the files is gone at the end of the run";
}

TEST(FailureReport, SaysThatNoOtherRankFailed) {
  const auto text = failure_report(std::vector{ended(0, 3, 10)}, 0, "train", "node0");
  EXPECT_NE(text.find("<NO_OTHER_FAILURES>"), std::string::npos);
  EXPECT_NE(text.find("exit code 3"), std::string::npos);
}

TEST(FailureReport, IsOneLineWhereAllThatHappenedIsAWrongConfiguration) {
  const auto wrong = ended(1, 2, 200);
  EXPECT_TRUE(
      only_repeats(std::vector{ended(0, -SIGTERM, 210, SIGTERM), wrong, ended(2, 5, 190), ended(3, 2, 220)}, 1));
  EXPECT_FALSE(only_repeats(std::vector{ended(0, 4, 210), wrong}, 1)) << "another rank failed with another code";
  EXPECT_FALSE(only_repeats(std::vector{ended(0, -SIGSEGV, 210), wrong}, 1));
  EXPECT_FALSE(only_repeats(std::vector{ended(0, 4, 210)}, 0));
  EXPECT_EQ(repeat_line(wrong, false), "rank 1: exit code 2 (in ddpxx programs: a wrong configuration)");
  EXPECT_FALSE(only_repeats(std::vector{ended(0, 6, 0)}, 0)) << "the rank's message may be far above in the log";
  EXPECT_EQ(
      repeat_line(ended(2, 4, 0), true),
      "rank 2: exit code 4 (in ddpxx programs: a snapshot or another file cannot be written or read); not started "
      "again");
  EXPECT_EQ(repeat_line(ended(2, 6, 0), true),
            "rank 2: exit code 6 (in ddpxx programs: the loss is NaN or infinite); not started again");
  EXPECT_EQ(repeat_line(ended(0, 3, 0), true),
            "rank 0: exit code 3 (in ddpxx programs: wrong data); not started again");
}

TEST(FailureReport, HasOneLineForRanksThatEndedInTheSameWay) {
  std::vector<Exit> exits = {ended(0, 4, 100)};
  for (int rank = 1; rank < 64; ++rank) exits.push_back(ended(rank, -SIGTERM, 100 + 10 * rank, SIGTERM));
  exits[5] = ended(5, 5, 150);
  exits[7] = ended(7, 5, 170);
  exits[9] = ended(9, 5, 50);
  const auto text = failure_report(exits, 0, "train", "node0");
  for (const char* part : {"  ranks 1-4, 6, 8, 10-63: ended by ddpxx-run with SIGTERM, 0.01 to 0.63 s after\n",
                           "  ranks 5, 7: exit code 5, 0.05 to 0.07 s after\n",
                           "  rank 9 (local_rank: 9, pid: 109): exit code 5, 0.05 s before\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "in\n" << text;
}

TEST(FailureReport, KnowsWhetherTheMessageOfTheRankIsOnTheConsole) {
  const auto at = [](int rank) { return Exit{.local_rank = rank}; };
  EXPECT_TRUE(shows_errors({}, at(0)));
  EXPECT_FALSE(shows_errors({.redirects = {.of_all = Streams::both}}, at(0)));
  EXPECT_TRUE(shows_errors({.redirects = {.of_all = Streams::out}}, at(0)));
  EXPECT_TRUE(shows_errors({.redirects = {.of_all = Streams::both}, .tee = {.of_all = Streams::err}}, at(0)));
  EXPECT_TRUE(shows_errors({.redirects = {.of_one = {{1, Streams::err}}}}, at(0)));
  EXPECT_FALSE(shows_errors({.shown_ranks = {1}}, at(0)));
}

TEST(FailureReport, SaysThatARankWasStoppedAndWhatMayHaveKilledAnother) {
  std::vector<Exit> exits = {ended(0, 5, 250), ended(1, -SIGTERM, 2'200, SIGTERM)};
  exits[1].is_silent = exits[1].was_stopped = true;
  EXPECT_NE(failure_report(exits, 1, "train", "node0")
                .find("message   : was still running when all other ranks had lost a peer; ended by ddpxx-run; it was "
                      "stopped (state T), as by SIGSTOP\n"),
            std::string::npos);
  auto killed = ended(0, -SIGKILL, 10);
  killed.hint = "memory ran out";
  EXPECT_NE(failure_report(std::vector{killed}, 0, "train", "node0").find("  hint      : memory ran out\n"),
            std::string::npos);
}

}  // namespace
}  // namespace ddpxx::failure_report_test
