// Ranks meet in a store that torchrun's agent keeps over restarts, whatever earlier starts have left in it.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/torchrun_roll_call.hpp>

namespace ddpxx::torchrun_roll_call_test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong{30'000};

/// The store of an agent of torchrun.
class AgentStore {
 public:
  AgentStore() {
    c10d::TCPStoreOptions server;
    server.port = 0;  // the system chooses one
    server.isServer = true;
    server.waitWorkers = false;
    server_.emplace("127.0.0.1", server);
  }
  c10d::TCPStore open() const {
    c10d::TCPStoreOptions client;
    client.port = server_->getPort();
    client.waitWorkers = false;
    return c10d::TCPStore{"127.0.0.1", client};
  }
  bool has(const std::string& key) { return server_->check({key}); }

 private:
  std::optional<c10d::TCPStore> server_;
};

/// A store of this process in the place of the agent's. It serves many ranks that give up: for each of them c10d's
/// TCPStore writes a warning with the name of the peer's host, which takes seconds where no server answers for names.
class ThreadStore final : public c10d::HashStore {
 public:
  void setTimeout(const milliseconds&) override {}  // the threads would set it for each other
};

/// What one rank's roll call ends with.
struct Outcome {
  Roll roll = {};
  std::string error = {};
};

/// The roll call of `rank` of `size` that belongs to one start. After `patience` the rank gives up, as if it had ended.
Outcome call(c10d::Store& store, int rank, int size, const std::string& start, milliseconds patience) {
  try {
    return {.roll = call_roll_of_torchrun(store, {.number = rank,
                                                  .size = size,
                                                  .prefix = "ddpxx/",
                                                  .facts = start + " of " + std::to_string(rank),
                                                  .where = "HERE",
                                                  .limit = patience,
                                                  .deadline = Clock::now() + patience})};
  } catch (const Error& error) {
    return {.error = error.what()};
  }
}

/// The same by a client of an agent's store.
Outcome call(const AgentStore& agent, int rank, int size, const std::string& start, milliseconds patience) {
  auto store = agent.open();
  return call(store, rank, size, start, patience);
}

/// The outcomes of the given ranks, which come at the same time; `open()` opens a store for each of them.
template <class Open>
std::vector<Outcome> call_all(const Open& open, const std::vector<int>& ranks, int size, const std::string& start,
                              milliseconds patience) {
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      auto&& store = open();
      outcomes[i] = call(store, ranks[i], size, start, patience);
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

void expect_to_have_met(const std::vector<Outcome>& outcomes, const std::string& start) {
  std::vector<std::string> facts;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) facts.push_back(start + " of " + std::to_string(rank));
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.roll.facts, facts);
    EXPECT_EQ(outcome.roll.prefix, outcomes.front().roll.prefix);
  }
}

TEST(TorchrunRollCall, EachStartMeetsUnderAPrefixOfItsOwn) {
  const AgentStore agent;
  const auto open = [&] { return agent.open(); };
  const auto first = call_all(open, {0, 1, 2}, 3, "first", kLong);
  const auto second = call_all(open, {0, 1, 2}, 3, "second", kLong);
  expect_to_have_met(first, "first");
  expect_to_have_met(second, "second");
  EXPECT_NE(first[0].roll.prefix, second[0].roll.prefix);
}

// A file takes the place of the agent: c10d's TCPStore writes its warnings about each rank that gives up with the name
// of the peer's host, which takes seconds where no server answers for names.
TEST(TorchrunRollCall, AStartOfOtherRanksMeetsWhateverEarlierOnesHaveLeft) {
  std::mt19937 random{7};  // NOLINT(cert-msc51-cpp): the same starts in each run
  const auto below = [&](std::uint32_t limit) { return static_cast<int>(random() % limit); };
  for (int repeat = 0; repeat < 40; ++repeat) {
    ThreadStore agent;
    const auto open = [&]() -> c10d::Store& { return agent; };
    for (int start = 0; start < 4; ++start) {
      const int size = 1 + below(4);
      std::vector<int> some;
      for (int rank = 0; rank < size; ++rank)
        if (below(3) > 0) some.push_back(rank);
      call_all(open, some, size, "start " + std::to_string(start), milliseconds{5 + below(20)});
      if (below(2) == 0) continue;
      std::vector<int> all;
      for (int rank = 0; rank < size; ++rank) all.push_back(rank);
      const auto name = "complete start " + std::to_string(start);
      expect_to_have_met(call_all(open, all, size, name, kLong), name);
    }
  }
}

// Rank 1 finds its number free, and the claim of a rank 0 that has ended: all numbers are claimed, but not by this
// start.
TEST(TorchrunRollCall, AClaimOfARankThatHasEndedCompletesNothing) {
  AgentStore agent;
  EXPECT_THAT(call(agent, 0, 2, "first", milliseconds{20}).error,
              testing::StartsWith("rank 1 never came to HERE within 0 s"));
  std::vector<Outcome> outcomes(2);
  std::thread early{[&] { outcomes[1] = call(agent, 1, 2, "second", kLong); }};
  while (!agent.has("ddpxx/of2/turn0/here1")) std::this_thread::yield();
  outcomes[0] = call(agent, 0, 2, "second", kLong);
  early.join();
  expect_to_have_met(outcomes, "second");
}

TEST(TorchrunRollCall, NamesTheRanksThatNeverCame) {
  const AgentStore agent;
  EXPECT_THAT(call(agent, 1, 4, "first", milliseconds{20}).error,
              testing::StartsWith("rank 0, 2, 3 never came to HERE within 0 s"));
}

TEST(TorchrunRollCall, RefusesARankOfWhichTwoProcessesWait) {
  AgentStore agent;
  Outcome first;
  std::thread early{[&] { first = call(agent, 0, 2, "first", kLong); }};
  while (!agent.has("ddpxx/of2/turn0/rank0")) std::this_thread::yield();
  const auto second = call(agent, 0, 2, "second", milliseconds{20});
  early.join();
  EXPECT_THAT(first.error, testing::HasSubstr("two processes came to HERE as rank 0: each needs a RANK of its own"));
  EXPECT_THAT(second.error, testing::HasSubstr("rank 1 never came to HERE"));
}

}  // namespace
}  // namespace ddpxx::torchrun_roll_call_test
