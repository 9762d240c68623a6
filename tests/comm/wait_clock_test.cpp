// How long a rank waits for its collectives.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/pending.hpp>
#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"

namespace ddpxx::wait_clock_test {
namespace {

constexpr std::chrono::milliseconds kPause{30};

/// A collective whose result comes after kPause.
class LateWork : public c10d::Work {
 public:
  explicit LateWork(bool fails) : fails_{fails} {}
  bool wait(std::chrono::milliseconds) override {
    std::this_thread::sleep_for(kPause);
    if (fails_) throw std::runtime_error{"connection closed by peer"};
    return true;
  }

 private:
  bool fails_;
};

Pending late(const std::shared_ptr<WaitClock>& clock, bool fails = false) {
  return {c10::make_intrusive<LateWork>(fails), CollectiveCall{"all_reduce", 4, 0, 2}, {}, clock};
}

TEST(WaitClock, AddsUpTheTimeOfTheWaits) {
  const auto clock = std::make_shared<WaitClock>(at::kCPU);
  clock->start();
  EXPECT_EQ(clock->milliseconds(), 0);
  for (int waits = 1; waits <= 2; ++waits) {
    auto pending = late(clock);
    std::this_thread::sleep_for(kPause);  // the rank computes meanwhile, which is no wait
    const auto begin = std::chrono::steady_clock::now();
    const auto before = clock->milliseconds();
    pending.wait();
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(clock->milliseconds() - before, kPause.count());
    EXPECT_LE(clock->milliseconds() - before, passed.count());
  }
}

TEST(WaitClock, CountsNothingBeforeItsStartAndNoWaitThatFails) {
  const auto clock = std::make_shared<WaitClock>(at::kCPU);
  late(clock).wait();
  clock->start();
  auto failing = late(clock, true);
  EXPECT_NE(error_of([&] { failing.wait(); }), "");
  EXPECT_EQ(clock->milliseconds(), 0);
}

/// Each collective once, in a group of two.
std::vector<std::pair<std::string, std::function<void(const Group&)>>> collectives() {
  const auto numbers = [](std::int64_t count) { return at::ones({count}); };
  return {{"all_reduce", [=](const Group& group) { all_reduce(numbers(4), group); }},
          {"reduce_scatter", [=](const Group& group) { reduce_scatter(numbers(2), numbers(4), group); }},
          {"all_gather", [=](const Group& group) { all_gather(numbers(4), numbers(2), group); }},
          {"all_to_all",
           [=](const Group& group) {
             all_to_all(numbers(4), numbers(4), {2, 2}, {2, 2}, group);
           }},
          {"broadcast", [=](const Group& group) { broadcast(numbers(4), group); }},
          {"barrier", [](const Group& group) { barrier(group); }}};
}

TEST(WaitClock, CountsEachCollectiveOfAGroupAndOfItsParts) {
  for (const auto backend : {Backend::gloo, Backend::shared_memory})
    spawn_ranks(2,
                [&](Group& group) {
                  auto part = group.split({.rank = group.rank(), .size = 2});
                  const auto alone = group.split({.color = group.rank()});
                  EXPECT_EQ(alone.wait_clock(), group.wait_clock());
                  group.wait_clock()->start();
                  for (const auto* each : {&group, &part})
                    for (const auto& [name, call] : collectives()) {
                      const auto before = group.wait_clock()->milliseconds();
                      call(*each);
                      EXPECT_GT(group.wait_clock()->milliseconds(), before)
                          << name << (each == &part ? " of a part" : "");
                    }
                  part.leave();
                },
                {.comm = {.backend = backend}});
}

}  // namespace
}  // namespace ddpxx::wait_clock_test
