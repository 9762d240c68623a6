#include <csignal>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/root_cause.hpp>

namespace ddpxx::root_cause_test {
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

TEST(RootCause, IsAbsentWhenAllEndWell) {
  const std::vector<Exit> exits = {ended(0, 0, 10), ended(1, 0, 20)};
  EXPECT_FALSE(root_cause(exits, {}));
  EXPECT_EQ(exit_code(exits, {}), 0);
}

TEST(RootCause, IsTheFirstFailureInTime) {
  const std::vector<Exit> exits = {ended(0, 1, 300), ended(1, 3, 200), ended(2, 0, 100)};
  EXPECT_EQ(root_cause(exits, {}), 1U);
  EXPECT_EQ(exit_code(exits, {}), 3);
}

TEST(RootCause, IsNotALostPeerWhileAnotherFailedOtherwiseAtAboutThatTime) {
  EXPECT_EQ(root_cause(std::vector{ended(0, 5, 100), ended(1, -SIGKILL, 900)}, {}), 1U);
  EXPECT_EQ(root_cause(std::vector{ended(0, 5, 100), ended(1, 4, 1'100)}, {}), 1U);
  EXPECT_EQ(root_cause(std::vector{ended(0, 5, 100), ended(1, 4, 1'101)}, {}), 0U)
      << "a failure more than 1 s later cannot be the cause";
  EXPECT_EQ(root_cause(std::vector{ended(0, 5, 100), ended(1, 5, 50)}, {}), 1U)
      << "if all ranks lost a peer, the first one is the cause";
  EXPECT_EQ(root_cause(std::vector{ended(0, 5, 100), ended(1, 1, 50)}, {}), 1U);
}

TEST(RootCause, IsTheEndThatExplainsItselfAmongThoseThatWereSeenAtTheSameMoment) {
  EXPECT_EQ(root_cause(std::vector{ended(0, 1, 100), ended(1, -SIGKILL, 100)}, {}), 1U);
  EXPECT_EQ(root_cause(std::vector{ended(0, 1, 100), ended(1, 7, 100)}, {}), 1U);
  EXPECT_EQ(root_cause(std::vector{ended(0, 1, 100), ended(1, 1, 100)}, {}), 0U);
  EXPECT_EQ(root_cause(std::vector{ended(0, 4, 100, SIGTERM), ended(1, 1, 100)}, {}), 1U)
      << "the agent ended rank 0 because rank 1 had failed";
}

TEST(RootCause, KnowsWhichEndsExplainThemselves) {
  for (const int code : {-SIGKILL, -SIGSEGV, 2, 3, 4, 6, 7}) EXPECT_TRUE(explains_itself(ended(0, code, 1))) << code;
  for (const int code : {0, 1, 5, 75, 137}) EXPECT_FALSE(explains_itself(ended(0, code, 1))) << code;
  EXPECT_FALSE(explains_itself(ended(0, -SIGTERM, 1, SIGTERM))) << "the launcher ended this rank";
}

TEST(RootCause, IsNotARankThatWeEnded) {
  const std::vector<Exit> exits = {ended(0, -SIGTERM, 2'100, SIGTERM), ended(1, 6, 2'050),
                                   ended(2, 143, 2'060, SIGTERM)};
  EXPECT_EQ(root_cause(exits, {}), 1U);
  EXPECT_EQ(exit_code(exits, {}), 6);
}

TEST(RootCause, IsTheOneRankThatSaidNothingWhenAllOthersLostAPeer) {
  std::vector exits = {ended(0, 5, 100), ended(1, -SIGTERM, 2'200, SIGTERM), ended(2, 5, 120)};
  EXPECT_EQ(silent_rank(exits), 1U);
  exits[1].is_silent = true;
  EXPECT_EQ(root_cause(exits, {}), 1U);
  EXPECT_EQ(exit_code(exits, {}), 5) << "expected the peers' exit code, not the signal of the launcher";
  EXPECT_FALSE(silent_rank(std::vector{ended(0, 5, 1), ended(1, -15, 9, SIGTERM), ended(2, -15, 9, SIGTERM)}))
      << "either of two silent ranks may be the cause";
  EXPECT_FALSE(silent_rank(std::vector{ended(0, 5, 1), ended(1, -15, 9, SIGTERM), ended(2, 4, 9)}));
  EXPECT_FALSE(silent_rank(std::vector{ended(0, 5, 1), ended(1, 0, 9)}));
  EXPECT_FALSE(silent_rank(std::vector{ended(0, -15, 9, SIGTERM)}));
}

TEST(RootCause, KnowsWhichEndsWouldComeAgain) {
  for (const int code : {2, 3, 4, 6}) {
    auto exit = ended(0, code, 1);
    EXPECT_EQ(would_repeat(exit), code < 4) << code << ", from a program that is not known to use ddpxx";
    exit.is_ours = true;
    EXPECT_TRUE(would_repeat(exit)) << code;
  }
  for (const int code : {0, 1, 5, 7, 75, -SIGKILL}) EXPECT_FALSE(would_repeat(ended(0, code, 1))) << code;
  for (const int code : {4, 6}) EXPECT_FALSE(is_refusal(ended(0, code, 1))) << code;
}

TEST(RootCause, MakesASignalsExitCodeAsAShellDoes) {
  EXPECT_EQ(exit_code(std::vector{ended(0, -SIGKILL, 1)}, {}), 137);
  EXPECT_EQ(exit_code(std::vector{ended(0, -SIGSEGV, 1)}, {}), 139);
}

TEST(RootCause, LetsRanksStopWithTheirWorkSaved) {
  EXPECT_EQ(exit_code(std::vector{ended(0, 75, 1), ended(1, 75, 900)}, {}), 75);
  EXPECT_EQ(exit_code(std::vector{ended(0, 75, 1), ended(1, 75, 900)}, SIGTERM), 75);
  EXPECT_EQ(exit_code(std::vector{ended(0, 75, 1), ended(1, 0, 900)}, SIGTERM), 75);
}

TEST(RootCause, BlamesARankThatDidNotFollowTheOthersWhenTheyStopped) {
  const std::vector<Exit> exits = {ended(0, 75, 1), ended(1, -SIGKILL, 900, SIGKILL)};
  EXPECT_EQ(root_cause(exits, {}), 1U);
  EXPECT_EQ(exit_code(exits, {}), 137);
}

TEST(RootCause, TakesAnEndThatFollowsFromARequestForNoFailure) {
  const std::vector<Exit> exits = {ended(0, -SIGINT, 1, SIGINT), ended(1, 130, 5, SIGINT), ended(2, 5, 3, SIGINT),
                                   ended(3, -SIGKILL, 900, SIGKILL)};
  EXPECT_FALSE(root_cause(std::vector{ended(0, -SIGINT, 1)}, SIGINT))
      << "srun may have sent the signal to the rank directly";
  EXPECT_FALSE(root_cause(exits, SIGINT));
  EXPECT_EQ(exit_code(exits, SIGINT), 130);
}

TEST(RootCause, FindsAFailureInTheMidstOfARequest) {
  const std::vector<Exit> exits = {ended(0, 4, 50, SIGTERM), ended(1, 5, 30, SIGTERM), ended(2, -SIGTERM, 3, SIGTERM)};
  EXPECT_EQ(root_cause(exits, SIGTERM), 0U);
  EXPECT_EQ(exit_code(exits, SIGTERM), 4);
}

}  // namespace
}  // namespace ddpxx::root_cause_test
