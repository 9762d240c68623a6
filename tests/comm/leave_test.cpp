// How a group ends in a process that keeps running: in order, within a time limit, and with a backend that the program
// owns.
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::leave_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAtOnce{20};   // on a loaded machine
constexpr std::chrono::minutes kTimeout{30};  // a test that waits this long fails by its own time limit

/// Ranks that are threads and meet over `backend`.
SpawnOptions options(Backend backend) {
  return {.ranks = Ranks::threads, .deadline = kTimeout, .comm = {.backend = backend}};
}

class LeaveOver : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, LeaveOver, testing::Values(Backend::gloo, Backend::shared_memory),
                         [](const auto& backend) { return backend.param == Backend::gloo ? "gloo" : "shm"; });

TEST_P(LeaveOver, EndsTheGroupOfRanksThatAllComeWithinTheLimit) {
  spawn_ranks(
      2,
      [](Group& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(milliseconds{200});
        group.leave(kAtOnce);
        EXPECT_EQ(group.size(), 1);
      },
      options(GetParam()));
}

// Rank 1 does nothing until rank 0 has left, as if its process hung.
TEST_P(LeaveOver, EndsAtItsLimitWithWorkPendingWhereAPeerHangs) {
  std::barrier has_left{2};
  spawn_ranks(
      2,
      [&](Group& group) {
        if (group.rank() == 1) {
          has_left.arrive_and_wait();
          const auto start = Clock::now();
          EXPECT_THROW(group.leave(), Error) << "rank 0 has closed its connections";
          EXPECT_LT(Clock::now() - start, kAtOnce);
          return;
        }
        auto pending = start_all_reduce(at::ones({1 << 20}), group);
        const auto start = Clock::now();
        try {
          group.leave(milliseconds{200});
          ADD_FAILURE() << "leave() succeeded";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::peer);
          EXPECT_THAT(error.what(),
                      HasSubstr("leaving the group: a rank is gone, or did not come within 200 ms; rank=0"));
        }
        EXPECT_LT(Clock::now() - start, kAtOnce);
        EXPECT_EQ(group.size(), 1);
        EXPECT_THROW(pending.wait(), Error);
        has_left.arrive_and_wait();
      },
      options(GetParam()));
}

TEST_P(LeaveOver, AbandonsAPartToo) {
  std::barrier has_left{2};
  spawn_ranks(
      2,
      [&](Group& group) {
        auto part = group.split({.color = 0, .rank = group.rank(), .size = 2});
        if (group.rank() == 0) {
          EXPECT_THROW(group.leave(milliseconds{100}), Error);
        } else {
          EXPECT_THROW(barrier(part), Error);
        }
        has_left.arrive_and_wait();
        group.abandon();
      },
      options(GetParam()));
}

TEST(Group, ThatIsDroppedClosesItsConnections) {
  std::barrier all_done{2};
  spawn_ranks(2,
              [&](Group& group) {
                const auto start = Clock::now();
                if (group.rank() == 1)
                  const Group dropped{std::move(group)};
                else
                  EXPECT_THROW(barrier(group), Error);
                EXPECT_LT(Clock::now() - start, kAtOnce);
                group.abandon();
                all_done.arrive_and_wait();
              },
              {.ranks = Ranks::threads, .deadline = kTimeout});
}

/// A Gloo backend made by a program that does not use ddpxx's rendezvous.
c10::intrusive_ptr<c10d::Backend> own_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  auto options = c10d::ProcessGroupGloo::Options::create(kAtOnce);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, 2, options);
}

TEST(Group, OfAnExistingBackendLeavesItToTheProgram) {
  detail::disable_flight_recorder();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto rank = [&](int number) {
    const auto backend = own_backend(store, number);
    Group group{backend};
    EXPECT_EQ(group.rank(), number);
    EXPECT_EQ(group.size(), 2);
    auto sum = at::ones({3});
    all_reduce(sum, group);
    EXPECT_TRUE(at::equal(sum, at::full({3}, 2.0)));
    group.leave(kAtOnce);
    std::vector<at::Tensor> own{at::ones({1})};
    backend->allreduce(own)->wait();
    EXPECT_EQ(own[0].item<float>(), 2);
  };
  std::thread other{[&] { rank(1); }};
  rank(0);
  other.join();
}

}  // namespace
}  // namespace ddpxx::leave_test
