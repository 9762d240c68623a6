#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/restart_rule.hpp>

namespace ddpxx::restart_rule_test {
namespace {

using namespace detail;
using std::chrono::milliseconds;
using std::chrono::minutes;

Exit failed(int code, milliseconds after = milliseconds{10}) { return {.code = code, .elapsed = after}; }
Exit without_trainer(milliseconds after = milliseconds{10}) { return {.code = 1, .elapsed = after, .is_ours = true}; }
Exit without_step() { return {.code = 1, .is_ours = true, .trains = true}; }
Exit with_step() { return {.code = 1, .is_ours = true, .trains = true, .stepped = true}; }

std::string refusal_after(const std::vector<Exit>& starts) {
  RestartRule rule;
  for (const auto& exit : starts) rule.note(std::vector{exit}, 0);
  return rule.refusal();
}
milliseconds pause_after(const std::vector<Exit>& starts) {
  RestartRule rule;
  for (const auto& exit : starts) rule.note(std::vector{exit}, 0);
  return rule.pause();
}

TEST(RestartRule, RefusesWhatWouldComeAgain) {
  for (const int code : {2, 3}) EXPECT_NE(refusal_after({failed(code)}), "") << code;
  for (const int code : {4, 6}) EXPECT_NE(refusal_after({{.code = code, .is_ours = true}}), "") << code;
  for (const int code : {1, 4, 5, 6, 7, -9}) EXPECT_EQ(refusal_after({failed(code)}), "") << code;
}

TEST(RestartRule, RefusesAfterThreeStartsInARowWithoutAStep) {
  EXPECT_EQ(refusal_after({without_step(), without_step()}), "");
  EXPECT_EQ(refusal_after({without_step(), without_step(), without_step()}),
            "3 starts in a row have ended before the result of a step was read; not started again");
  EXPECT_NE(refusal_after({without_trainer(), without_step(), without_trainer()}), "");
  EXPECT_EQ(refusal_after({without_trainer(), without_trainer(), without_trainer(minutes{1})}), "")
      << "a program without a trainer that ran for a minute has done work";
  EXPECT_EQ(refusal_after({without_step(), without_step(), with_step(), without_step()}), "");
  EXPECT_EQ(refusal_after({failed(1), failed(1), failed(1), failed(1)}), "")
      << "programs that do not use ddpxx report no steps";
}

TEST(RestartRule, CountsAStepOfAnyRank) {
  RestartRule rule;
  for (int i = 0; i < 5; ++i) rule.note(std::vector{without_step(), with_step()}, 0);
  EXPECT_EQ(rule.refusal(), "");
}

TEST(RestartRule, StartsToCountAgainAfterAnInterruptedStartThatHasProgressed) {
  const auto pause_with = [](const Exit& interrupted) {
    RestartRule rule;
    for (int i = 0; i < 3; ++i) rule.note(std::vector{failed(1)}, 0);
    rule.note_interruption(std::vector{interrupted});
    return rule.pause();
  };
  EXPECT_EQ(pause_with(without_step()), milliseconds{500});
  EXPECT_EQ(pause_with(with_step()), milliseconds{0});
  EXPECT_EQ(pause_with(failed(1, minutes{1})), milliseconds{0});
}

TEST(RestartRule, WaitsLongerAndLongerWithoutProgress) {
  std::vector<Exit> starts;
  for (const int expected : {0, 250, 500, 1'000, 2'000, 4'000, 4'000}) {
    starts.push_back(failed(1));
    EXPECT_EQ(pause_after(starts), milliseconds{expected}) << starts.size();
  }
  starts.push_back(failed(1, minutes{1}));
  EXPECT_EQ(pause_after(starts), milliseconds{0}) << "a start that ran for a minute resets the pause";
  EXPECT_EQ(pause_after({failed(1), failed(1), with_step()}), milliseconds{0});
}

}  // namespace
}  // namespace ddpxx::restart_rule_test
