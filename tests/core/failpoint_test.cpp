#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/failpoint.hpp>

namespace ddpxx::failpoint_test {
namespace {

static_assert(kFailpoints, "the tests are compiled with DDPXX_FAILPOINTS");

class Failpoint : public testing::Test {
 protected:
  static void order(const char* text) { ::setenv("DDPXX_FAILPOINT", text, 1); }
  void TearDown() override {
    ::unsetenv("DDPXX_FAILPOINT");
    ::unsetenv("RANK");
  }
};

TEST_F(Failpoint, DoesNothingUnlessItIsNamed) {
  failpoint("here");
  order("there:throw");
  EXPECT_NO_THROW(failpoint("here"));
  EXPECT_NO_THROW(failpoint("there.too"));
  EXPECT_THROW(failpoint("there"), Error);
}

TEST_F(Failpoint, ThrowsAtTheHitThatWasAskedForAndAtNoOther) {
  order("here:throw@3");
  EXPECT_NO_THROW(failpoint("here"));
  EXPECT_NO_THROW(failpoint("elsewhere"));
  EXPECT_NO_THROW(failpoint("here"));
  EXPECT_THROW(failpoint("here"), Error);
  EXPECT_NO_THROW(failpoint("here"));
}

TEST_F(Failpoint, FailsForLackOfMemory) {
  order("here:bad_alloc");
  EXPECT_THROW(failpoint("here"), std::bad_alloc);
}

TEST_F(Failpoint, StrikesOneRankOnly) {
  order("here:throw,rank=1");
  EXPECT_NO_THROW(failpoint("here"));  // without RANK in the environment, the rank is 0
  ::setenv("RANK", "1", 1);
  EXPECT_THROW(failpoint("here"), Error);
  ::setenv("RANK", "2", 1);
  EXPECT_NO_THROW(failpoint("here"));
}

TEST_F(Failpoint, KillsTheProcess) {
  const auto child = ::fork();
  if (child == 0) {
    order("here:kill");
    failpoint("here");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(Failpoint, SleepsAtLeastAsLongAsAsked) {
  order("here:sleep:20");
  const auto before = std::chrono::steady_clock::now();
  failpoint("here");
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds{20});
}

TEST_F(Failpoint, ReadsEveryPartOfAnOrder) {
  const auto order = parse_failpoint("a.b:sleep:250@2,rank=7");
  EXPECT_EQ(order.name, "a.b");
  EXPECT_EQ(order.action, FailpointOrder::Action::sleep);
  EXPECT_EQ(order.pause, std::chrono::milliseconds{250});
  EXPECT_EQ(order.hit, 2);
  EXPECT_EQ(order.rank, 7);
}

TEST_F(Failpoint, RefusesAnOrderThatItCannotReadAndQuotesIt) {
  for (const auto* text :
       {"here", "here:", ":kill", "here:explode", "here:sleep", "here:sleep:", "here:sleep:2s", "here:kill:1",
        "here:bad_alloc:1", "here:kill@", "here:kill@0", "here:kill@x", "here:kill,rank=", "here:kill,rank=-1"}) {
    try {
      parse_failpoint(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config) << text;
      EXPECT_NE(std::string{error.what()}.find(text), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ddpxx::failpoint_test
