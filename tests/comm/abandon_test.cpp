// A rank fails while its process stays alive. The ranks are threads in most tests, so no connection is closed by the
// end of a process.
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/testing.hpp>

#include "../loopback_listener.hpp"

namespace ddpxx::abandon_test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAtOnce{20};   // on a loaded machine
constexpr std::chrono::minutes kTimeout{30};  // a test that waits this long fails by its own time limit

/// Ranks that are threads and meet over `backend`.
SpawnOptions options(Backend backend) {
  return {.ranks = Ranks::threads, .deadline = kTimeout, .comm = {.backend = backend}};
}

class AbandonOver : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, AbandonOver, testing::Values(Backend::gloo, Backend::shared_memory),
                         [](const auto& backend) { return backend.param == Backend::gloo ? "gloo" : "shm"; });

/// Rank 1 of three calls `fail` and keeps running: each peer must get an error with the code `peer` within kAtOnce.
void expect_peers_learn_of(
    Backend backend, const std::function<void(Group&)>& fail,
    const std::function<void(Group&)>& collective = [](Group& group) { barrier(group); }) {
  // A rank that fails while others are still connecting would end them before their body has begun.
  std::barrier all_connected{3}, all_done{3};
  spawn_ranks(
      3,
      [&](Group& group) {
        all_connected.arrive_and_wait();
        const auto start = Clock::now();
        try {
          if (group.rank() == 1) {
            fail(group);
          } else {
            collective(group);
            ADD_FAILURE() << "the collective succeeded";
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::peer);
          EXPECT_THAT(error.what(), HasSubstr("a rank is gone"));
        }
        EXPECT_LT(Clock::now() - start, kAtOnce);
        group.abandon();
        all_done.arrive_and_wait();
        EXPECT_EQ(group.size(), 1);
      },
      options(backend));
}

TEST_P(AbandonOver, TellsThePeersAtOnce) {
  expect_peers_learn_of(GetParam(), [](Group& group) { group.abandon(); });
}

TEST_P(AbandonOver, TellsPeersThatWaitAlready) {
  expect_peers_learn_of(GetParam(), [](Group& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    group.abandon();
  });
}

TEST_P(AbandonOver, HappensWhereAnExceptionUnwindsAGroup) {
  expect_peers_learn_of(GetParam(), [](Group& group) {
    try {
      const Group mine{std::move(group)};
      throw std::runtime_error{"out of ideas"};
    } catch (const std::runtime_error&) {
    }
  });
}

TEST_P(AbandonOver, EndsItsOwnWorkThatIsUnderWay) {
  expect_peers_learn_of(GetParam(), [](Group& group) {
    auto sum = at::ones({1 << 20});
    auto first = start_all_reduce(sum, group), second = start_all_reduce(at::ones({3}), group);
    group.abandon();
    EXPECT_THROW(first.wait(), Error);
    EXPECT_THROW(second.wait(), Error);
  });
}

// All ranks throw at once. Each must keep the shared error, also when another rank has closed its connections already.
TEST_P(AbandonOver, DoesNotReplaceAnErrorThatAllRanksShare) {
  for (int i = 0; i < 10; ++i)
    spawn_ranks(
        4,
        [](Group& group) {
          const int rank = group.rank();
          try {
            const Group mine{std::move(group)};
            on_rank_zero(mine, Errc::storage, [] { throw Error{Errc::config, "no such folder"}; });
            ADD_FAILURE() << "no error";
          } catch (const Error& error) {
            EXPECT_STREQ(error.what(), "no such folder");
            EXPECT_EQ(error.code(), Errc::config);
            EXPECT_EQ(error.origin(), rank == 0 ? std::nullopt : std::optional{0});
          }
        },
        options(GetParam()));
}

TEST(OnEveryRank, ReturnsWhatEachRankHasOrThrowsTheFirstError) {
  spawn_ranks(4,
              [](Group& group) {
                const int rank = group.rank();
                EXPECT_EQ(on_every_rank(group, Errc::data, [&] { return 10 * rank; }), 10 * rank);
                try {
                  on_every_rank(group, Errc::data, [&] {
                    if (rank == 1 || rank == 2) throw Error{Errc::data, "no such file"};
                    if (rank == 3) throw std::runtime_error{"a sector is bad"};
                    return 0;
                  });
                  ADD_FAILURE() << "no error";
                } catch (const Error& error) {
                  EXPECT_EQ(error.code(), Errc::data);
                  EXPECT_STREQ(error.what(), rank == 3 ? "a sector is bad" : "no such file");
                  EXPECT_EQ(error.origin(), rank == 0 || rank == 2 ? std::optional{1} : std::nullopt);
                }
                EXPECT_EQ(on_every_rank(group, Errc::data, [&] { return rank; }), rank)
                    << "the group can be used after an error";
              },
              {.ranks = Ranks::threads});
}

TEST_P(AbandonOver, TellsPeersThatWaitInAPart) {
  std::barrier all_done{2};
  spawn_ranks(
      2,
      [&](Group& group) {
        auto part = group.split({.color = 0, .rank = group.rank(), .size = 2});
        const auto start = Clock::now();
        if (group.rank() == 1)
          group.abandon();
        else
          EXPECT_THROW(barrier(part), Error);
        EXPECT_LT(Clock::now() - start, kAtOnce);
        group.abandon();
        all_done.arrive_and_wait();
      },
      options(GetParam()));
}

// Each rank in turn has such a child; rank 0 also serves the store.
TEST_P(AbandonOver, AForkedChildThatEndsItsCopyOfAGroupLeavesThatOfItsParent) {
  spawn_ranks(2,
              [](Group& group) {
                const int rank = group.rank();
                auto part = group.split({.color = 0, .rank = rank, .size = 2});
                for (int parent = 0; parent < 2; ++parent) {
                  if (rank == parent) {
                    const auto child = ::fork();
                    if (child == 0) {
                      part.abandon();
                      { const Group copy{std::move(group)}; }
                      std::_Exit(part.size() == 1 ? 0 : 1);
                    }
                    int status = -1;
                    ::waitpid(child, &status, 0);
                    EXPECT_EQ(status, 0);
                  }
                  for (const auto* members : {&group, &part}) {
                    auto sum = at::ones({100'000});
                    all_reduce(sum, *members);
                    EXPECT_TRUE(at::equal(sum, at::full({100'000}, 2.0)));
                  }
                }
                auto later = group.split({.color = 0, .rank = rank, .size = 2});
                barrier(later);
                later.leave();
                part.leave();
              },
              {.ranks = Ranks::processes, .comm = {.backend = GetParam()}});
}

// Rank 1's connection to rank 2, its neighbour, is closed by then; rank 1 must still close its connection to rank 0.
// The test owns the part, so that no destructor closes it.
TEST(Abandon, TellsAPeerWhereTheNextRankHasGoneBefore) {
  std::barrier next_has_gone{2}, all_done{3};
  spawn_ranks(
      3,
      [&](Group& group) {
        const int rank = group.rank();
        const auto part = group.split({.color = 0, .rank = rank, .size = 3});
        if (rank == 2) group.abandon();
        if (rank != 0) next_has_gone.arrive_and_wait();
        if (rank == 0) {
          std::vector<at::Tensor> message{at::empty({1})};
          const auto start = Clock::now();
          EXPECT_ANY_THROW(part.backend()->recv(message, 1, 0)->wait(kAtOnce));
          EXPECT_LT(Clock::now() - start, kAtOnce);
        } else if (rank == 1) {
          std::vector<at::Tensor> message{at::empty({1})};
          EXPECT_ANY_THROW(part.backend()->recv(message, 2, 0)->wait(kTimeout));  // fails because rank 2 has left
          group.abandon();
        }
        group.abandon();
        all_done.arrive_and_wait();
      },
      {.ranks = Ranks::threads, .deadline = kTimeout});
}

// The port of the store can be used again, too.
TEST(Abandon, LeavesRoomForANewGroupAtTheSamePort) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  ::close(listener);
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  std::barrier both{2};
  const auto rank = [&](int number) {
    const RankInfo rank_info{.rank = Rank{number},
                             .world_size = WorldSize{2},
                             .local_rank = LocalRank{number},
                             .local_world_size = LocalWorldSize{2}};
    for (int attempt = 0; attempt < 2; ++attempt) {
      auto group = connect(at, rank_info);
      auto sum = at::ones({1});
      all_reduce(sum, group);
      EXPECT_EQ(sum.item<float>(), 2);
      both.arrive_and_wait();
      group.abandon();
      both.arrive_and_wait();
    }
  };
  std::thread other{[&] { rank(1); }};
  rank(0);
  other.join();
}

TEST_P(AbandonOver, DoesNothingInAWorldOfOneAndOnASecondCall) {
  Group alone;
  alone.abandon();
  spawn_ranks(
      2,
      [](Group& group) {
        group.abandon();
        group.abandon();
        group.leave();
      },
      options(GetParam()));
}

TEST(Part, SaysWhatAGroupOfOnesOwnBackendLacks) {
  Group group{c10::make_intrusive<detail::RecordingBackend>(0, 4, std::make_shared<Recording>()),
              c10::make_intrusive<c10d::HashStore>()};
  EXPECT_EQ(group.split({.color = 0, .rank = 0, .size = 1}).size(), 1);
  try {
    group.split({.color = 0, .rank = 0, .size = 2});
    ADD_FAILURE() << "made a part";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), HasSubstr("as its fourth argument, a function (store, rank, size)"));
  }
}

}  // namespace
}  // namespace ddpxx::abandon_test
