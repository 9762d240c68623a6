// The predicted time of a step on any number of ranks: recorded steps are replayed with the time of their collectives.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/train/record_steps.hpp>
#include <ddpxx/train/time_plan.hpp>

namespace ddpxx::time_plan_test {
namespace {

using namespace std::chrono_literals;

Recording::Clock::time_point at_ms(std::int64_t ms) { return Recording::Clock::time_point{} + 1ms * ms; }

/// A barrier of two ranks takes two messages, so 2 ms over this link.
const LinkConfig kMillisecond{.latency = 1e-3, .bandwidth = 1e9};

/// Two steps of 10 ms. Each calls a barrier after 3 ms, in which it spends 1 ms, and waits for it 2 ms later.
RecordedSteps two_steps() {
  auto recording = std::make_shared<Recording>();
  for (const std::int64_t begin : {100, 110}) {
    recording->waits.push_back({recording->calls.size(), recording->calls.size() + 1, at_ms(begin + 6)});
    recording->calls.push_back({"barrier", 0, 2, at_ms(begin + 3), at_ms(begin + 4)});
  }
  return {recording, {at_ms(100), at_ms(110), at_ms(120)}};
}

TEST(Replay, ComputesWhileACollectiveRuns) {
  const auto time = replay(two_steps(), {.link = kMillisecond});
  EXPECT_NEAR(time.computing, 9e-3, 1e-9) << "the time inside of the recording group's call is not computing";
  EXPECT_NEAR(time.step, 9e-3, 1e-9) << "a collective of 2 ms ends before the rank waits for it";
}

TEST(Replay, WaitsForASlowCollective) {
  const auto time = replay(two_steps(), {.link = {.latency = 5e-3, .bandwidth = 1e9}});
  EXPECT_NEAR(time.computing, 9e-3, 1e-9);
  EXPECT_NEAR(time.step, 9e-3 + 8e-3, 1e-9) << "the rank computes 2 of the 10 ms";
}

TEST(Replay, AddsTheCollectivesThatTheCoreItselfCarries) {
  const auto time = replay(two_steps(), {.link = kMillisecond, .overlaps = false});
  EXPECT_NEAR(time.step, 9e-3 + 2e-3, 1e-9);
}

TEST(Replay, TakesLongerWhereRanksShareACore) {
  const auto time = replay(two_steps(), {.link = kMillisecond, .ranks_per_core = 3, .overlaps = false});
  EXPECT_NEAR(time.computing, 3 * 9e-3, 1e-9);
  EXPECT_NEAR(time.step, 3 * (9e-3 + 2e-3), 1e-9);
}

TEST(Replay, StartsACollectiveWhenTheOneBeforeHasEnded) {
  auto recording = std::make_shared<Recording>();
  for (int i = 0; i < 3; ++i) recording->calls.push_back({"barrier", 0, 2, at_ms(1), at_ms(1)});
  recording->waits.push_back({2, 3, at_ms(2)});
  const auto time = replay({recording, {at_ms(0), at_ms(4)}}, {.link = kMillisecond});
  EXPECT_NEAR(time.step, 1e-3 + 3 * 2e-3 + 2e-3, 1e-9);
}

TEST(Replay, CarriesACollectiveIntoLaterSteps) {
  // Called in the first step, awaited in the second.
  auto recording = std::make_shared<Recording>();
  recording->calls.push_back({"barrier", 0, 2, at_ms(5), at_ms(5)});
  recording->waits.push_back({0, 1, at_ms(15)});
  const RecordedSteps steps{recording, {at_ms(0), at_ms(10), at_ms(20)}};
  EXPECT_NEAR(replay(steps, {.link = {.latency = 4e-3, .bandwidth = 1e9}}).step, 10e-3, 1e-9);
  EXPECT_NEAR(replay(steps, {.link = {.latency = 8e-3, .bandwidth = 1e9}}).step, 16e-3, 1e-9) << "the longer of two";
}

template <class Strategy>
RecordedSteps steps_of(int world_size) {
  auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 17, 12);
  const auto ids = at::arange(24, at::kLong).view({2, 12}) % 17;
  const Batch batch{ids, ids, ids.numel()};
  return record_steps<GPT, AdamW, Float32, Strategy, Batch>(world_size, std::move(model), {}, std::span{&batch, 1});
}

TEST(TimePlan, OfRecordedStepsGrowsWithTheLatencyOfTheirCollectives) {
  for (const auto& steps : {steps_of<DDP>(64), steps_of<FSDP>(64)}) {
    ASSERT_GE(steps.ends.size(), 6u);
    const auto fast = replay(steps, {.link = {.latency = 0, .bandwidth = 1e18}});
    EXPECT_GT(fast.computing, 0);
    EXPECT_NEAR(fast.step, fast.computing, 1e-6);
    const auto slow = replay(steps, {.link = {.latency = 1, .bandwidth = 1e18}});
    EXPECT_DOUBLE_EQ(slow.computing, fast.computing);
    EXPECT_GE(slow.step, 126) << "an all-reduce of 64 ranks is 126 messages that follow each other, of 1 s each";
  }
}

TEST(TimePlan, OfOneRankHasNoCollectives) {
  const auto alone = replay(steps_of<DDP>(1), {.link = {.latency = 1, .bandwidth = 1}});
  EXPECT_DOUBLE_EQ(alone.step, alone.computing);
}

}  // namespace
}  // namespace ddpxx::time_plan_test
