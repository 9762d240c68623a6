// Ranks of several hosts, which share memory within a host and communicate over Gloo between hosts. The hosts are made
// up: the ranks are told that they are on several.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/mount.h>
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
#include <ddpxx/comm/hosts.hpp>
#include <ddpxx/comm/hosts_backend.hpp>
#include <ddpxx/comm/rank_introduction.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"
#include "../loopback_listener.hpp"

namespace ddpxx::hosts_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAtOnce{20};  // on a loaded machine

struct Hosts {
  int hosts;
  int ranks_of_host;
  int size() const { return hosts * ranks_of_host; }
};

/// Runs `body(group)` in a process or thread for each rank of the hosts.
void on_hosts(const Hosts& hosts, const std::function<void(Group&)>& body, Ranks ranks = Ranks::threads) {
  const auto [listener, port] = loopback_listener();
  spawn_ranks(hosts.size(),
              [&, at = port, socket = listener](Group& all) {
                ConnectOptions options;
                options.backend = Backend::gloo;
                options.join_timeout = std::chrono::minutes{1};
                options.listening_socket = all.rank() == 0 ? socket : -1;
                options.credentials.token = "secret";
                auto meeting = meet("127.0.0.1", at,
                                    {.rank = Rank{all.rank()},
                                     .world_size = WorldSize{all.size()},
                                     .local_rank = LocalRank{all.rank()},
                                     .local_world_size = LocalWorldSize{all.size()}},
                                    options);
                all.leave();
                meeting.ranks_of_host = hosts.ranks_of_host;
                auto group = connect_hosts(meeting);
                EXPECT_EQ(group.backend()->getBackendName(), "shm+gloo");
                body(group);
                if (group.size() > 1) group.leave();
              },
              {.ranks = ranks, .comm = {.backend = Backend::gloo}});
}

class OnHosts : public testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Sizes, OnHosts, testing::Values(Hosts{2, 2}, Hosts{2, 3}, Hosts{3, 2}), [](const auto& hosts) {
  return std::to_string(hosts.param.hosts) + "_hosts_of_" + std::to_string(hosts.param.ranks_of_host);
});

TEST_P(OnHosts, AllReduceSumsMinimizesAndMaximizesTensorsOfAnySize) {
  on_hosts(GetParam(), [](Group& group) {
    const auto W = group.size(), r = group.rank();
    for (const std::int64_t size : {0, 1, 5, 4096, 4097, 10'007, 700'001})
      for (const auto type : {at::kFloat, at::kBFloat16, at::kLong, at::kDouble}) {
        const auto values = at::arange(size, at::kLong).remainder(7);
        auto sum = (values + r).to(type), least = (values + r).to(type), most = (values - r).to(type);
        all_reduce(sum, group);
        all_reduce(least, group, Reduce::min);
        all_reduce(most, group, Reduce::max);
        EXPECT_TRUE(at::equal(sum, (values * W + W * (W - 1) / 2).to(type))) << size << ' ' << type;
        EXPECT_TRUE(at::equal(least, values.to(type))) << size << ' ' << type;
        EXPECT_TRUE(at::equal(most, values.to(type))) << size << ' ' << type;
      }
    auto columns = at::full({300, 50}, r + 1.0).t();  // dense, and not contiguous
    all_reduce(columns, group);
    EXPECT_TRUE(at::equal(columns, at::full({50, 300}, W * (W + 1) / 2.0)));
    EXPECT_THROW(all_reduce(at::zeros({3}, at::kShort), group), Error) << "a type that Gloo does not add";
  });
}

TEST_P(OnHosts, ReduceScatterAndAllGatherKeepTheOrderOfTheRanks) {
  on_hosts(GetParam(), [](Group& group) {
    const auto W = group.size(), r = group.rank();
    for (const std::int64_t count : {0, 1, 1000, 300'000}) {
      const auto all = at::arange(count * W, at::kFloat).remainder(1000);
      auto piece = at::zeros({count});
      reduce_scatter(piece, all * (r + 1), group);
      EXPECT_TRUE(at::equal(piece, all.narrow(0, r * count, count) * (W * (W + 1) / 2))) << count;
      auto whole = at::zeros({count * W});
      all_gather(whole, all.narrow(0, r * count, count), group);
      EXPECT_TRUE(at::equal(whole, all)) << count;
      auto in_place = at::zeros({count * W});
      in_place.narrow(0, r * count, count).copy_(all.narrow(0, r * count, count));
      all_gather(in_place, in_place.narrow(0, r * count, count), group);
      EXPECT_TRUE(at::equal(in_place, all)) << count;
      auto in_float = at::zeros({count});
      reduce_scatter(in_float, at::full({count * W}, 1.0, at::kBFloat16), group);
      EXPECT_TRUE(at::equal(in_float, at::full({count}, static_cast<float>(W)))) << count;
    }
  });
}

TEST_P(OnHosts, BroadcastComesFromEachRank) {
  on_hosts(GetParam(), [](Group& group) {
    for (int root = 0; root < group.size(); ++root)
      for (const std::int64_t size : {1, 400'000}) {
        auto tensor = at::full({size}, group.rank(), at::kInt);
        broadcast(tensor, group, root);
        EXPECT_TRUE(tensor.eq(root).all().item<bool>()) << root;
      }
  });
}

TEST_P(OnHosts, AllToAllExchangesTheElementsOfAllRanks) {
  on_hosts(GetParam(), [](Group& group) {
    const auto W = group.size();
    auto received = at::zeros({W}, at::kLong);
    all_to_all(received, at::arange(W, at::kLong) + 100 * group.rank(), {}, {}, group);
    EXPECT_TRUE(at::equal(received, at::arange(W, at::kLong) * 100 + group.rank()));
    barrier(group);
  });
}

TEST_P(OnHosts, RanksWaitInAnyOrderForWhatTheyHaveStarted) {
  on_hosts(GetParam(), [](Group& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Pending> pending;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({30'000 + i}, static_cast<double>(i), at::kFloat));
      pending.push_back(start_all_reduce(tensors.back(), group));
    }
    for (int i = 0; i < 8; ++i) pending[static_cast<std::size_t>(group.rank() % 2 == 0 ? i : 7 - i)].wait();
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(tensors[static_cast<std::size_t>(i)].eq(static_cast<double>(i * group.size())).all().item<bool>())
          << i;
  });
}

TEST_P(OnHosts, SumsHaveEqualBitsOnAllRanks) {
  on_hosts(GetParam(), [](Group& group) {
    for (const std::int64_t size : {100, 100'003}) {
      at::manual_seed(static_cast<std::uint64_t>(group.rank()));
      auto sum = at::randn({size});
      all_reduce(sum, group);
      auto of_rank_zero = sum.clone();
      broadcast(of_rank_zero, group);
      EXPECT_TRUE(at::equal(sum, of_rank_zero));
    }
  });
}

TEST_P(OnHosts, TensorsThatCannotBeSentAreRefusedAndTheOthersArrive) {
  on_hosts(GetParam(), [](Group& group) {
    const auto W = group.size(), r = group.rank();
    const auto memory = at::arange(2 * W, at::kLong);
    const auto column = memory.view({W, 2}).select(1, 0);
    auto received = at::zeros({W}, at::kLong);
    EXPECT_EQ(code_of([&] { all_to_all(received, column, {}, {}, group); }), Errc::config);
    EXPECT_EQ(code_of([&] { all_to_all(column, received, {}, {}, group); }), Errc::config);
    EXPECT_TRUE(at::equal(memory, at::arange(2 * W, at::kLong)));
    auto complex = at::zeros({1}, at::kComplexFloat);
    EXPECT_EQ(code_of([&] { reduce_scatter(complex, at::zeros({W}, at::kComplexFloat), group); }), Errc::config);

    auto shorts = at::full({1000}, r, at::kShort);
    EXPECT_EQ(code_of([&] { all_reduce(shorts, group); }), Errc::config);
    auto received_shorts = at::zeros({W}, at::kShort);
    EXPECT_EQ(code_of([&] { all_to_all(received_shorts, at::zeros({W}, at::kShort), {}, {}, group); }), Errc::config);
    broadcast(shorts, group, W - 1);
    EXPECT_TRUE(at::equal(shorts, at::full({1000}, W - 1, at::kShort)));
    auto whole = at::zeros({W, 2}, at::kShort);
    all_gather(whole, at::full({2}, r, at::kShort), group);
    EXPECT_TRUE(at::equal(whole, at::arange(W).to(at::kShort).unsqueeze(1).expand({W, 2})));
    auto sum = at::zeros({2}, at::kShort);
    reduce_scatter(sum, at::arange(2 * W).to(at::kShort), group);
    EXPECT_TRUE(at::equal(sum, (at::tensor({2 * r, 2 * r + 1}) * W).to(at::kShort)));
    auto flags = at::full({3}, true, at::kBool);
    all_reduce(flags, group);
    EXPECT_TRUE(at::equal(flags.view(at::kByte), at::ones({3}, at::kByte))) << flags.view(at::kByte);
  });
}

TEST(Hosts, LeavingWaitsForCollectivesThatHaveStarted) {
  on_hosts({2, 2}, [](Group& group) {
    std::vector<at::Tensor> sums;
    std::vector<Pending> pending;
    for (int i = 0; i < 4; ++i) {
      sums.push_back(at::ones({300'000}));
      pending.push_back(start_all_reduce(sums.back(), group));
    }
    group.leave();
    for (auto& one : pending) one.wait();
    for (const auto& sum : sums) EXPECT_TRUE(sum.eq(4).all().item<bool>());
  });
}

TEST(Hosts, LeavingEndsAtItsLimitWhereARankHangs) {
  std::latch have_left{3};
  on_hosts({2, 2}, [&](Group& group) {
    if (group.rank() == 3) {
      have_left.wait();
      return group.abandon();
    }
    const auto begin = Clock::now();
    EXPECT_THROW(group.leave(std::chrono::milliseconds{300}), Error);
    EXPECT_LT(Clock::now() - begin, kAtOnce);
    EXPECT_EQ(group.size(), 1);
    have_left.count_down();
  });
}

/// The connection of a rank with the one of another host, over which an all-reduce takes a `time`.
class SlowBetweenHosts : public detail::RecordingBackend {
 public:
  explicit SlowBetweenHosts(std::chrono::milliseconds time)
      : RecordingBackend{0, 2, std::make_shared<Recording>()}, time_{time} {}
  WorkRef allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    std::this_thread::sleep_for(time_);
    return RecordingBackend::allreduce(tensors, options);
  }

 private:
  std::chrono::milliseconds time_;
};

// The ranks of a host have two seconds for each other, and each comes within it after its own exchange with the other
// host.
TEST(Hosts, TheTimeBetweenHostsIsNotCountedAsADelayOfARankOfTheHost) {
  const auto bytes = detail::SharedCollectives::memory_bytes(2);
  const auto segment = detail::SharedSegment::make(bytes);
  std::latch have_ended{2};
  const auto run_rank = [&](int rank) {
    auto queue = detail::CollectiveQueue::make(detail::SharedSegment::open(::getpid(), segment.fd(), bytes), rank, 2,
                                               detail::PeerProcesses{}, std::chrono::nanoseconds{0});
    queue->set_timeout(std::chrono::seconds{2});
    const auto backend = c10::make_intrusive<detail::HostsBackend>(
        rank, 4, queue, c10::make_intrusive<SlowBetweenHosts>(std::chrono::milliseconds{rank == 0 ? 2200 : 2400}),
        c10::make_intrusive<SlowBetweenHosts>(std::chrono::milliseconds{0}));
    std::vector<at::Tensor> sum{at::ones({100'000})};
    try {
      backend->allreduce(sum, c10d::AllreduceOptions{})->wait();
      EXPECT_TRUE(sum[0].eq(4).all().item<bool>());
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
    have_ended.arrive_and_wait();
  };
  std::thread other{[&] { run_rank(1); }};
  run_rank(0);
  other.join();
}

TEST(Hosts, PartsOfTheRanksAreGroupsOfTheirOwn) {
  on_hosts({2, 2}, [](Group& group) {
    for (const bool of_host : {true, false}) {
      const auto r = group.rank();
      auto part = group.split({.color = of_host ? r / 2 : r % 2, .rank = of_host ? r % 2 : r / 2, .size = 2});
      auto sum = at::full({1}, r);
      all_reduce(sum, part);
      EXPECT_EQ(sum.item<int>(), of_host ? 4 * (r / 2) + 1 : 2 * (r % 2) + 2);
      part.leave();
    }
  });
}

TEST(Hosts, AKilledRankIsAnErrorOnAllOthersAtOnce) {
  const auto text = error_of([] {
    on_hosts(
        {2, 2},
        [](Group& group) {
          auto sum = at::ones({100'000});
          all_reduce(sum, group);
          if (group.rank() == 3) ::raise(SIGKILL);
          const auto begin = Clock::now();
          try {
            while (Clock::now() - begin < 2 * kAtOnce) all_reduce(sum, group);
            ADD_FAILURE() << "the collectives go on without rank 3";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::peer);
            EXPECT_THAT(error.what(), testing::HasSubstr("a rank is gone"));
          }
          EXPECT_LT(Clock::now() - begin, kAtOnce);
          group.abandon();
        },
        Ranks::processes);
  });
  EXPECT_EQ(text, "rank 3: ended by signal 9");
}

TEST(Hosts, ARankThatAbandonsTheGroupIsAnErrorOnAllOthersAtOnce) {
  on_hosts({2, 2}, [](Group& group) {
    auto sum = at::ones({100'000});
    all_reduce(sum, group);
    const auto begin = Clock::now();
    if (group.rank() == 1) return group.abandon();
    EXPECT_THROW(
        {
          while (Clock::now() - begin < 2 * kAtOnce) all_reduce(sum, group);
        },
        Error);
    EXPECT_LT(Clock::now() - begin, kAtOnce);
    group.abandon();
  });
}

TEST(Hosts, AForkedChildThatEndsItsCopyOfAGroupLeavesThatOfItsParent) {
  on_hosts(
      {2, 2},
      [](Group& group) {
        if (group.rank() % 3 == 0) {
          const auto child = ::fork();
          if (child == 0) {
            {
              const Group copy{std::move(group)};
            }
            std::_Exit(0);
          }
          int status = -1;
          ::waitpid(child, &status, 0);
          EXPECT_EQ(status, 0);
        }
        auto sum = at::ones({100'000});
        all_reduce(sum, group);
        EXPECT_TRUE(sum.eq(4).all().item<bool>());
        auto received = at::zeros({4}, at::kLong);
        all_to_all(received, at::full({4}, group.rank(), at::kLong), {}, {}, group);
        EXPECT_TRUE(at::equal(received, at::arange(4, at::kLong)));
      },
      Ranks::processes);
}

TEST(Hosts, RanksOfAHostThatCallDifferentCollectivesAreToldEvenIfATensorIsEmpty) {
  on_hosts({2, 2}, [](Group& group) {
    auto own = at::ones({group.rank() == 0 ? 0 : 5});
    if (group.rank() < 2)
      EXPECT_THAT(error_of([&] { all_reduce(own, group); }), testing::HasSubstr("calls all_reduce"));
    else
      EXPECT_THROW(all_reduce(own, group), Error) << "the other host has not summed";
    group.abandon();
  });
}

// --- ranks that find out by themselves --------------------------------------------------------------------------

constexpr int kSkipped = 77;

/// How ranks in two containers connect, and what is expected of them.
struct InContainers {
  Backend backend;
  std::string expected;         ///< The name of the backend of the group.
  std::string of_host, across;  ///< Those of parts of the group: the ranks of a container, and one rank of each.
  bool other_user = false;      ///< Whether rank 3 belongs to another user.
};

/// Ends this process with the status of a rank of four: 0 if its groups are as expected.
[[noreturn]] void be_rank(int rank, int socket, std::uint16_t port, const InContainers& all) {
  const auto& [backend, expected, of_host, across, other_user] = all;
  int status = 1;
  try {
    at::set_num_threads(1);
    if (other_user && rank == 3 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) std::_Exit(kSkipped);
    ConnectOptions options{{.join_timeout = 60, .backend = backend}};
    options.listening_socket = rank == 0 ? socket : -1;
    options.credentials.token = "secret";
    options.local_world_known = false;  // or addresses of loopback would not count
    auto group = connect("tcp://127.0.0.1:" + std::to_string(port),
                         {.rank = Rank{rank},
                          .world_size = WorldSize{4},
                          .local_rank = LocalRank{rank % 2},
                          .local_world_size = LocalWorldSize{2}},
                         options);
    auto sum = at::full({50'000}, rank + 1);
    all_reduce(sum, group);
    const auto name = group.backend()->getBackendName();
    if (name == expected && sum.eq(10).all().item<bool>()) status = 0;
    if (status != 0) std::cerr << "rank " << rank << " has " << sum[0].item<int>() << " over " << name << std::endl;
    for (const bool is_of_host : {true, false}) {
      auto part =
          group.split({.color = is_of_host ? rank / 2 : rank % 2, .rank = is_of_host ? rank % 2 : rank / 2, .size = 2});
      barrier(part);
      const auto part_name = part.backend()->getBackendName();
      if (part_name == (is_of_host ? of_host : across)) continue;
      std::cerr << "rank " << rank << " has a part over " << part_name << std::endl;
      status = 1;
    }
    group.leave();
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << std::endl;
    status = 1;
  }
  std::_Exit(status);
}

/// The exit status of a child.
int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// The status of a failure if one of the two is that, else that of a skipped test if one is that.
int worst_of(int a, int b) {
  if (a != 0 && a != kSkipped) return a;
  return b == 0 ? a : b;
}

/// Ends this process with the status of ranks `first` and `first` + 1, which see each other's processes and no others.
template <class Rank>
[[noreturn]] void be_container(int first, const Rank& rank) {
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) std::_Exit(kSkipped);
  const auto init = ::fork();
  if (init != 0) std::_Exit(status_of(init));
  const bool is_mounted = ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                          ::mount("proc", "/proc", "proc", 0, nullptr) == 0;
  if (!is_mounted) std::_Exit(kSkipped);
  std::array<pid_t, 2> ranks{};
  for (int i = 0; i < 2; ++i)
    if ((ranks[static_cast<std::size_t>(i)] = ::fork()) == 0) rank(first + i);
  std::_Exit(worst_of(status_of(ranks[0]), status_of(ranks[1])));
}

/// The worst exit status of two containers with two ranks each.
int in_two_containers(const InContainers& all) {
  const auto [listener, port] = loopback_listener();
  std::array<pid_t, 2> containers{};
  for (int i = 0; i < 2; ++i)
    if ((containers[static_cast<std::size_t>(i)] = ::fork()) == 0)
      be_container(2 * i, [&, at = port, socket = listener](int rank) { be_rank(rank, socket, at, all); });
  ::close(listener);
  return worst_of(status_of(containers[0]), status_of(containers[1]));
}

TEST(Hosts, AreFoundByTheRanksThemselves) {
  const auto status = in_two_containers({Backend::automatic, "shm+gloo", "shm", "gloo"});
  if (status == kSkipped) GTEST_SKIP() << "this user may not make namespaces of processes and mounts";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(in_two_containers({Backend::gloo, "gloo", "gloo", "gloo"}), 0) << "where the ranks are told to use Gloo";
}

TEST(Hosts, UseGlooAloneWhereTheRanksOfOneHostCannotShareMemory) {
  const auto status = in_two_containers({Backend::automatic, "gloo", "gloo", "gloo", /*other_user=*/true});
  if (status == kSkipped) GTEST_SKIP() << "only root may make namespaces and become another user";
  EXPECT_EQ(status, 0);
}

int ranks_of_each_host_in(const std::vector<std::string>& memories) {
  std::vector<RankIntroduction> ranks(memories.size());
  for (std::size_t i = 0; i < memories.size(); ++i) ranks[i].memory = memories[i];
  return ranks_of_each_host(ranks);
}

TEST(RanksOfEachHost, AreCountedWhereEachHostHasEquallyManyInARow) {
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "b", "b"}), 2);
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "a", "b", "b", "b"}), 3);
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "b", "b", "c", "c"}), 2);
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "a", "a"}), 0) << "one host";
  EXPECT_EQ(ranks_of_each_host_in({"a", "b"}), 0) << "one rank on each";
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "b"}), 0) << "unequal numbers";
  EXPECT_EQ(ranks_of_each_host_in({"a", "b", "a", "b"}), 0) << "not in a row";
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "b", "b", "a", "a"}), 0) << "a host that comes again";
  EXPECT_EQ(ranks_of_each_host_in({"a", "a", "", ""}), 0) << "ranks that use another backend";
  EXPECT_EQ(ranks_of_each_host_in({"", "", "", ""}), 0);
}

}  // namespace
}  // namespace ddpxx::hosts_test
