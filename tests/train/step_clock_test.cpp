// The time of a step that a rank does not wait for others in.
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/train/step_clock.hpp>

namespace ddpxx::step_clock_test {
namespace {

void sleep() { std::this_thread::sleep_for(std::chrono::milliseconds{20}); }

class StepClockTest : public testing::Test {
 protected:
  std::shared_ptr<WaitClock> waits = std::make_shared<WaitClock>(at::kCPU);
};

TEST_F(StepClockTest, LeavesTheWaitsOfALapOutOfItsOwnTime) {
  StepClock clock{waits};
  sleep();
  waits->count(sleep);
  const auto lap = clock.take();
  EXPECT_GE(lap.step_ms, 40);
  EXPECT_GE(lap.own_ms, 20);
  EXPECT_LE(lap.own_ms, lap.step_ms - 20);
  const auto next = clock.take();
  EXPECT_NEAR(next.own_ms, next.step_ms, 1e-6) << "the wait counts once";
}

TEST_F(StepClockTest, ForgetsWhatCameBeforeARestart) {
  StepClock clock{waits};
  sleep();
  waits->count(sleep);
  clock.restart();
  const auto lap = clock.take();
  EXPECT_NEAR(lap.own_ms, lap.step_ms, 1e-6);
}

TEST_F(StepClockTest, CountsNoWaitsBeforeItsLifeAndNoneWithoutAClockThatCounts) {
  {
    const StepClock former{waits};
    waits->count(sleep);
  }
  const auto before = waits->milliseconds();
  EXPECT_GE(before, 20);
  {
    StepClock without{nullptr};
    waits->count(sleep);
    const auto lap = without.take();
    EXPECT_EQ(lap.own_ms, lap.step_ms);
    EXPECT_EQ(waits->milliseconds(), before) << "the clock that counted has ended";
  }
  StepClock clock{waits};
  sleep();
  const auto lap = clock.take();
  EXPECT_NEAR(lap.own_ms, lap.step_ms, 1e-6) << "the waits of the former clock";
}

TEST_F(StepClockTest, SubtractsWaitsThatAreLongerThanALapFromTheNextOne) {
  // Several threads that wait at a time stand for a GPU, whose waits become known late.
  StepClock clock{waits};
  {
    const std::jthread one{[&] { waits->count(sleep); }}, two{[&] { waits->count(sleep); }},
        three{[&] { waits->count(sleep); }}, four{[&] { waits->count(sleep); }};
  }
  const auto first = clock.take();
  const auto waited = waits->milliseconds();
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>{waited});  // longer than the excess
  const auto second = clock.take();
  EXPECT_NEAR(first.own_ms + second.own_ms, first.step_ms + second.step_ms - waited, 1e-6);
}

}  // namespace
}  // namespace ddpxx::step_clock_test
