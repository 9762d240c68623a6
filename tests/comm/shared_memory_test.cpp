// Groups over shared memory: what they share with other groups is in collectives_test, abandon_test and leave_test.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
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
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/shared_rounds.hpp>
#include <ddpxx/comm/shared_segment.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"
#include "../loopback_listener.hpp"

namespace ddpxx::shared_memory_test {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::Eq;
using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAtOnce{20};   // on a loaded machine
constexpr std::chrono::minutes kTimeout{30};  // a test that waits this long fails by its own time limit
const ConnectConfig kShared{.backend = Backend::shared_memory};

SpawnOptions processes() { return {.ranks = Ranks::processes, .deadline = kTimeout, .comm = kShared}; }
SpawnOptions threads() { return {.ranks = Ranks::threads, .deadline = kTimeout, .comm = kShared}; }

std::string text_of_file(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// A value that forked processes share.
template <class T>
class SharedValue {
 public:
  SharedValue()
      : value_{new(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}} {}
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;
  ~SharedValue() { ::munmap(value_, sizeof(T)); }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

TEST(SharedMemory, HasNoNameThatAKilledProcessCouldLeave) {
  spawn_ranks(
      2,
      [](Group& group) {
        EXPECT_EQ(group.backend()->getBackendName(), "shm");
        barrier(group);
        const auto maps = text_of_file("/proc/self/maps");
        EXPECT_THAT(maps, HasSubstr("/memfd:ddpxx (deleted)"));
        EXPECT_THAT(maps, testing::Not(HasSubstr("/dev/shm/")));
      },
      processes());
}

TEST(SharedSegment, TakesMemoryBeforeItsFirstUseOrSaysThatItCannot) {
  constexpr std::size_t kBytes = 1 << 20;
  const auto segment = detail::SharedSegment::make(kBytes);
  const auto taken = [&] {
    struct ::stat facts {};
    EXPECT_EQ(::fstat(segment.fd(), &facts), 0);
    return static_cast<std::size_t>(facts.st_blocks) * 512;
  };
  EXPECT_EQ(taken(), 0U);
  segment.reserve(kBytes / 2, kBytes / 2);
  EXPECT_GE(taken(), kBytes / 2);
  EXPECT_EQ(segment.data()[kBytes - 1], std::byte{0});
  EXPECT_EQ(code_of([&] { segment.reserve(kBytes, 1); }), Errc::memory) << "the segment does not grow";
}

TEST(SharedSegment, SaysWhichStepTheSystemRefuses) {
  const auto expect_refused = [](const std::string& expected, const std::function<void()>& body) {
    EXPECT_EQ(code_of(body), Errc::memory);
    EXPECT_EQ(error_of(body), expected);
  };
  expect_refused("shared memory cannot be made: Invalid argument",  // a size below 0
                 [] { detail::SharedSegment::make(std::numeric_limits<std::size_t>::max()); });
  expect_refused("shared memory cannot be mapped: Cannot allocate memory",  // more than processes can have
                 [] { detail::SharedSegment::make(std::size_t{1} << 60); });
  const auto segment = detail::SharedSegment::make(4096);
  expect_refused("shared memory has 4096 bytes instead of 8192: all ranks need one version",
                 [&] { detail::SharedSegment::open(::getpid(), segment.fd(), 8192); });
  expect_refused("shared memory cannot be opened: No such file or directory",
                 [] { detail::SharedSegment::open(::getpid(), 1'000'000, 8192); });
}

TEST(SharedMemory, GivesBackItsMemoryAndItsThread) {
  const auto count_threads = [] {
    const auto status = text_of_file("/proc/self/status");
    return status.substr(status.find("Threads:"), 12);
  };
  const auto run = [] {
    spawn_ranks(
        3, [](Group& group) { barrier(group); }, threads());
  };
  run();  // a sanitizer may start a thread of its own
  const auto before = count_threads();
  run();
  // The system may count a thread for a moment after it has been joined.
  for (const auto until = Clock::now() + kAtOnce; count_threads() != before && Clock::now() < until;)
    std::this_thread::sleep_for(milliseconds{1});
  EXPECT_EQ(count_threads(), before);
  EXPECT_THAT(text_of_file("/proc/self/maps"), testing::Not(HasSubstr("memfd:ddpxx")));
}

TEST(SharedMemory, LetsWorkGoOnThatNoThreadWaitsFor) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto sum = at::ones({1 << 20});
        auto pending = start_all_reduce(sum, group);
        const auto until = Clock::now() + std::chrono::minutes{1};
        while (sum[(1 << 20) - 1].item<float>() != 2 && Clock::now() < until)
          std::this_thread::sleep_for(milliseconds{1});
        EXPECT_LT(Clock::now(), until);
        pending.wait();
        EXPECT_EQ(sum.sum().item<double>(), 2 << 20);
      },
      threads());
}

// Each rank first waits for the collective that the other one has started last.
TEST(SharedMemory, RanksMayWaitInDifferentOrdersOverSeveralGroups) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto part = group.split({.color = 0, .rank = group.rank(), .size = 2});
        EXPECT_EQ(part.backend()->getBackendName(), "shm");
        for (int i = 0; i < 5; ++i) {
          auto one = at::full({100}, 1.0), other = at::full({300'000}, 2.0);
          auto first = start_all_reduce(one, group), second = start_all_reduce(other, part);
          if (group.rank() == 1) std::swap(first, second);
          first.wait();
          second.wait();
          EXPECT_EQ(one[99].item<double>(), 2);
          EXPECT_EQ(other[299'999].item<double>(), 4);
        }
      },
      threads());
}

TEST(SharedMemory, EndsManyStartedCollectivesInTheirOrder) {
  spawn_ranks(
      3,
      [](Group& group) {
        auto value = at::full({1000}, 1.0, at::kDouble);
        std::vector<Pending> all;
        for (int i = 0; i < 20; ++i) all.push_back(start_all_reduce(value, group));
        if (group.rank() == 0) std::reverse(all.begin(), all.end());
        for (auto& pending : all) pending.wait();
        EXPECT_EQ(value[999].item<double>(), std::pow(3.0, 20));
      },
      processes());
}

TEST(SharedMemory, ConnectsPartsOfAGroup) {
  spawn_ranks(
      4,
      [](Group& group) {
        const int color = group.rank() % 2;
        auto part = group.split({.color = color, .rank = group.rank() / 2, .size = 2});
        auto sum = at::full({3}, group.rank());
        all_reduce(sum, part);
        EXPECT_EQ(sum[0].item<int>(), color == 0 ? 2 : 4);
      },
      processes());
}

TEST(SharedMemory, SumsEqualGloosForTwoRanks) {
  const auto sum_over = [](Backend backend) {
    SharedValue<std::array<float, 1000>> result;
    spawn_ranks(2,
                [&](Group& group) {
                  at::manual_seed(static_cast<std::uint64_t>(group.rank()));
                  auto value = at::randn({1000});
                  all_reduce(value, group);
                  if (group.rank() == 0) std::copy_n(value.data_ptr<float>(), 1000, (*result).begin());
                },
                {.comm = {.backend = backend}});
    return *result;
  };
  EXPECT_EQ(sum_over(Backend::shared_memory), sum_over(Backend::gloo));
}

TEST(SharedMemory, ReducesScattersAndExchangesByTheCollectivesOfAGroup) {
  spawn_ranks(
      3,
      [](Group& group) {
        const int rank = group.rank();
        auto sums = at::zeros({2});
        reduce_scatter(sums, at::arange(6).to(at::kBFloat16), group);
        EXPECT_TRUE(at::equal(sums, 3.0 * at::arange(2 * rank, 2 * rank + 2)));
        auto output = at::zeros({3, 2});
        all_to_all(output, at::full({3, 2}, 1.0 * rank), {1, 1, 1}, {1, 1, 1}, group);
        EXPECT_TRUE(at::equal(output, at::arange(3).unsqueeze(1).expand({3, 2}).to(at::kFloat)));
      },
      processes());
}

TEST(SharedMemory, RefusesTensorsThatItCannotSend) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto whole = at::zeros({4});
        EXPECT_EQ(code_of([&] { all_gather(whole, at::zeros({2}, at::kLong), group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_gather(whole, at::zeros({3}), group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_reduce(at::zeros({4, 4}).t()[0], group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_reduce(at::zeros({4}, at::kComplexFloat), group); }), Errc::config);
        EXPECT_EQ(code_of([&] { broadcast(whole, group, 2); }), Errc::config);
        EXPECT_EQ(code_of([&] { reduce_scatter(whole, at::zeros({9}), group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(whole, at::zeros({4}), {2, 2}, {-1, 5}, group); }), Errc::config);
        barrier(group);  // the group can be used after a refused tensor
      },
      processes());
}

TEST(SharedMemory, NamesTheCollectivesOfRanksThatDisagree) {
  const auto text = error_of([] {
    spawn_ranks(
        2,
        [](Group& group) {
          if (group.rank() == 0)
            barrier(group);
          else
            all_reduce(at::zeros({4}), group);
        },
        processes());
  });
  EXPECT_THAT(text, HasSubstr("rank 0: barrier failed: the ranks call different collectives"));
  EXPECT_THAT(text, HasSubstr("rank 1 calls all_reduce (4 elements"));
}

TEST(SharedMemory, EndsACollectiveAtItsTimeoutAndNamesTheRankThatIsLate) {
  auto options = processes();
  options.comm.collective_timeout = 0.3;
  const auto text = error_of([&] {
    spawn_ranks(
        3,
        [](Group& group) {
          if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds{2});
          all_reduce(at::zeros({4}), group);
        },
        options);
  });
  EXPECT_THAT(text, HasSubstr("all_reduce failed: a rank is gone or did not answer in time"));
  // A loaded machine may delay another rank, too.
  EXPECT_THAT(text, testing::ContainsRegex("cause=(rank 0, )?rank 1(, rank 2)? did not come in time"));
}

// --- ranks that are killed --------------------------------------------------------------------------------------

struct Kill {
  const char* name;
  std::function<void(Group&)> collective;
};

const std::vector<Kill> kCollectives{
    {"a barrier", [](Group& group) { barrier(group); }},
    {"a small all_reduce", [](Group& group) { all_reduce(at::zeros({5}), group); }},
    {"a large all_reduce", [](Group& group) { all_reduce(at::zeros({1 << 20}), group); }},
    {"a reduce_scatter",
     [](Group& group) {
       auto output = at::zeros({400'000});
       reduce_scatter(output, at::zeros({400'000 * group.size()}), group);
     }},
    {"an all_gather",
     [](Group& group) {
       auto output = at::zeros({400'000 * group.size()});
       all_gather(output, at::zeros({400'000}), group);
     }},
    {"an all_to_all",
     [](Group& group) {
       std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()), 400'000);
       auto output = at::zeros({400'000 * group.size()});
       all_to_all(output, at::zeros_like(output), sizes, sizes, group);
     }},
    {"a broadcast", [](Group& group) { broadcast(at::zeros({1 << 20}), group, 1); }},
};

/// Rank 1 of `size` ends itself by SIGKILL at `place`. The others repeat `collective` until it fails; returns how long
/// the last one took on the rank for which it took longest.
Clock::duration time_to_notice(int size, const Kill& kill, const std::string& place) {
  SharedValue<std::atomic<Clock::rep>> longest;
  const auto text = error_of([&] {
    spawn_ranks(
        size,
        [&](Group& group) {
          barrier(group);
          if (group.rank() == 1) ::setenv("DDPXX_FAILPOINT", place.c_str(), 1);
          for (int i = 0; i < 100; ++i) {
            const auto start = Clock::now();
            try {
              kill.collective(group);
            } catch (const Error& error) {
              const auto took = (Clock::now() - start).count();
              EXPECT_EQ(error.code(), Errc::peer);
              EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("the process of rank 1 has ended"),
                                                       HasSubstr("has abandoned the group")));
              for (auto before = (*longest).load(); before < took;)
                if ((*longest).compare_exchange_weak(before, took)) break;
              group.abandon();
              return;
            }
          }
          ADD_FAILURE() << "no error on rank " << group.rank();
        },
        processes());
  });
  EXPECT_EQ(text, "rank 1: ended by signal 9") << kill.name << " at " << place;
  return Clock::duration{(*longest).load()};
}

TEST(SharedMemory, ARankThatIsKilledAtAnyPlaceIsAnErrorOnTheOthers) {
  for (const auto& kill : kCollectives)
    for (const char* place : {"shared_rounds.before_arrival:kill@1", "shared_rounds.in_arrival:kill@1",
                              "shared_rounds.after_arrival:kill@1", "shared_rounds.before_arrival:kill@4"})
      EXPECT_LT(time_to_notice(3, kill, place), kAtOnce) << kill.name << " at " << place;
}

TEST(SharedMemory, AKilledRankIsAnErrorInWorldsOfAnySize) {
  for (const int size : {2, 4, 8})
    for (const char* place : {"shared_rounds.before_arrival:kill@2", "shared_rounds.in_arrival:kill@2",
                              "shared_rounds.after_arrival:kill@2"})
      EXPECT_LT(time_to_notice(size, kCollectives[2], place), kAtOnce) << size << " at " << place;
}

/// The error on rank 2 when rank 3, the other rank of its part, ends itself by SIGKILL: while they connect the part, or
/// in a collective of it.
std::string error_in_part(bool while_connecting) {
  SharedValue<std::array<char, 500>> error;
  SharedValue<std::atomic<bool>> has_error;
  const auto text = error_of([&] {
    spawn_ranks(
        4,
        [&](Group& group) {
          const auto end_at_next_arrival = [&] {
            if (group.rank() == 3) ::setenv("DDPXX_FAILPOINT", "shared_rounds.before_arrival:kill@1", 1);
          };
          barrier(group);
          if (while_connecting) end_at_next_arrival();
          try {
            auto part = group.split({.color = group.rank() / 2, .rank = group.rank() % 2, .size = 2});
            end_at_next_arrival();
            barrier(part);
          } catch (const Error& failure) {
            EXPECT_EQ(group.rank(), 2);
            std::string{failure.what()}.copy((*error).data(), (*error).size() - 1);
            *has_error = true;
          }
          while (!*has_error) std::this_thread::sleep_for(milliseconds{1});  // rank 0 serves the store
          group.abandon();
        },
        processes());
  });
  EXPECT_EQ(text, "rank 3: ended by signal 9");
  return (*error).data();
}

TEST(SharedMemory, NamesARankOfAPartByItsNumberInTheWholeGroup) {
  EXPECT_THAT(error_in_part(/*while_connecting=*/true), HasSubstr("; rank=2; cause=the process of rank 3 has ended"));
  EXPECT_THAT(error_in_part(/*while_connecting=*/false), HasSubstr("cause=the process of rank 3 has ended"));
}

TEST(SharedMemory, NamesTheRanksOfAPartThatDisagreeAboutSizesByTheirNumbersInTheWholeGroup) {
  spawn_ranks(
      4,
      [](Group& group) {
        auto part = group.split({.color = group.rank() / 2, .rank = group.rank() % 2, .size = 2});
        auto received = at::zeros({4});
        const auto text = error_of([&] { all_to_all(received, at::zeros({2}), {2, 2}, {1, 1}, part); });
        EXPECT_THAT(text, HasSubstr("cause=rank " + std::to_string(group.rank() / 2 * 2) + " sends 4 bytes to rank " +
                                    std::to_string(group.rank()) + ", which expects 8"));
        EXPECT_THAT(text, HasSubstr("all_to_all failed: the ranks call different collectives"));
        part.abandon();
        barrier(group);
      },
      threads());
}

TEST(SharedMemory, WaitsForTheLongestTimesThatExist) {
  spawn_ranks(
      2,
      [](Group& group) {
        group.backend()->setTimeout(milliseconds::max());
        const auto sleep = [&] {
          if (group.rank() == 1) std::this_thread::sleep_for(milliseconds{100});
        };
        sleep();
        all_reduce(at::ones({4}), group);
        sleep();
        EXPECT_TRUE(group.backend()->barrier()->wait(milliseconds::max()));
        sleep();
        group.leave(milliseconds::max());
      },
      threads());
}

// A busy machine gets several tries. Without a busy machine it takes SharedRounds::kSlice.
TEST(SharedMemory, AKilledRankIsNoticedWithin100Milliseconds) {
  // A loaded machine may delay both ranks: the shortest of many times tells how often a rank looks.
  auto shortest = Clock::duration::max();
  for (int i = 0; i < 50 && shortest >= milliseconds{100}; ++i)
    shortest = std::min(shortest, time_to_notice(2, kCollectives[0], "shared_rounds.before_arrival:kill@5"));
  EXPECT_LT(shortest, milliseconds{100});
}

TEST(SharedMemory, AChildThatEndsItsCopyOfAGroupLeavesThatOfItsParent) {
  spawn_ranks(
      2,
      [](Group& group) {
        barrier(group);
        if (group.rank() == 1) {
          const auto child = ::fork();
          if (child == 0) {
            group.abandon();
            std::_Exit(0);
          }
          int status = -1;
          ::waitpid(child, &status, 0);
          EXPECT_EQ(status, 0);
        }
        barrier(group);
      },
      processes());
}

// The end of a process is noticed although a descendant of it still has all its descriptors and its memory.
TEST(SharedMemory, AKilledRankIsNoticedWhileItsChildLives) {
  SharedValue<std::atomic<pid_t>> child;
  const auto text = error_of([&] {
    spawn_ranks(
        2,
        [&](Group& group) {
          barrier(group);
          if (group.rank() == 1) {
            const auto forked = ::fork();
            if (forked == 0) {
              ::pause();
              std::_Exit(0);
            }
            *child = forked;
            ::raise(SIGKILL);
          }
          EXPECT_THROW(barrier(group), Error);
          ASSERT_GT((*child).load(), 0);
          ::kill(*child, SIGKILL);  // it also has the pipe by which rank 1 reports
          group.abandon();
        },
        processes());
  });
  EXPECT_EQ(text, "rank 1: ended by signal 9");
}

// --- ranks that cannot share memory -----------------------------------------------------------------------------

/// What each of two ranks leaves.
struct TwoRanks {
  std::array<std::string, 2> results;  ///< The sum of their numbers and the backend, or the exit code and the error.
  std::array<std::string, 2> logs;     ///< What the rank has logged while it connected.
  bool are_skipped = false;
};

/// Connects two ranks, in processes of their own; rank 1 calls `separate` before, and `backends` are their settings.
TwoRanks with_separate_rank(const std::function<bool()>& separate, const std::array<Backend, 2>& backends,
                            double join_timeout = 60) {
  constexpr int kSkipped = 77;
  const auto [listener, port] = loopback_listener();
  SharedValue<std::array<std::array<char, 1000>, 2>> results, logs;
  const auto run = [&, at = "tcp://127.0.0.1:" + std::to_string(port), socket = listener](int rank) {
    at::set_num_threads(1);
    ConnectOptions options{{.join_timeout = join_timeout, .backend = backends.at(static_cast<std::size_t>(rank))}};
    options.listening_socket = rank == 0 ? socket : -1;
    options.credentials.token = "secret";
    std::string text, log;
    set_log_sink([&log](const LogLine& line) { (log += line.text) += '\n'; });
    try {
      auto group = connect(at,
                           {.rank = Rank{rank},
                            .world_size = WorldSize{2},
                            .local_rank = LocalRank{rank},
                            .local_world_size = LocalWorldSize{2}},
                           options);
      auto sum = at::full({1}, rank + 1);
      all_reduce(sum, group);
      text = std::to_string(sum.item<int>()) + " over " + group.backend()->getBackendName();
      group.leave();
    } catch (const Error& error) {
      text = std::to_string(static_cast<int>(error.code())) + ' ' + error.what();
    }
    text.copy((*results).at(static_cast<std::size_t>(rank)).data(), 999);
    log.copy((*logs).at(static_cast<std::size_t>(rank)).data(), 999);
    std::_Exit(0);
  };
  const auto separated = ::fork();
  if (separated == 0) {
    ::close(listener);
    if (!separate()) std::_Exit(kSkipped);
    // Only the children of a process are in the namespace of processes that it has made.
    const auto rank = ::fork();
    if (rank == 0) run(1);
    ::waitpid(rank, nullptr, 0);
    std::_Exit(0);
  }
  const auto other = ::fork();
  if (other == 0) run(0);
  ::close(listener);
  int status = 0;
  ::waitpid(separated, &status, 0);
  const bool is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == kSkipped;
  if (is_skipped) ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  return {.results = {(*results)[0].data(), (*results)[1].data()},
          .logs = {(*logs)[0].data(), (*logs)[1].data()},
          .are_skipped = is_skipped};
}

bool stay() { return true; }
bool enter_container() { return ::unshare(CLONE_NEWPID) == 0; }
bool have_no_memory() { return ::setenv("DDPXX_FAILPOINT", "shared_segment.reserve:errno:28", 1) == 0; }
bool be_killed_without_memory() { return ::setenv("DDPXX_FAILPOINT", "shared_segment.reserve:kill", 1) == 0; }
bool become_another_user() { return ::setgid(65534) == 0 && ::setuid(65534) == 0; }

constexpr std::array kBothShared{Backend::shared_memory, Backend::shared_memory};
constexpr std::array kBothAutomatic{Backend::automatic, Backend::automatic};

TEST(SharedMemory, IsChosenWhereAllRanksCanUseItAndNoneIsToUseGloo) {
  EXPECT_THAT(with_separate_rank(stay, kBothAutomatic).results, Each(Eq("3 over shm")));
  EXPECT_THAT(with_separate_rank(stay, {Backend::automatic, Backend::gloo}).results, Each(Eq("3 over gloo")));
  EXPECT_THAT(with_separate_rank(stay, {Backend::automatic, Backend::shared_memory}).results,
              Each(HasSubstr("device cpu over Gloo, but rank 1")));
}

void expect_told(const std::array<std::string, 2>& texts, const std::string& reason) {
  EXPECT_THAT(texts, Each(StartsWith("2 the ranks cannot share memory, as comm.backend=shm asks: " + reason)));
}

TEST(SharedMemory, IsNotForRanksInDifferentContainers) {
  const auto ranks = with_separate_rank(enter_container, kBothShared);
  if (ranks.are_skipped) GTEST_SKIP() << "this user may not make a namespace of processes";
  expect_told(ranks.results, "rank 1 does not see the processes of rank 0");
  const auto automatic = with_separate_rank(enter_container, kBothAutomatic);
  EXPECT_THAT(automatic.results, Each(Eq("3 over gloo")));
  EXPECT_EQ(automatic.logs[0],
            "the ranks communicate over Gloo, since they cannot share memory: some are on one machine, but in "
            "containers that do not see each other's processes\n");
  EXPECT_EQ(automatic.logs[1], "") << "one rank logs the reason";
  EXPECT_EQ(with_separate_rank(enter_container, {Backend::gloo, Backend::automatic}).logs[0], "")
      << "a rank is told to use Gloo";
}

// Without memory the first collective would end the process by SIGBUS.
TEST(SharedMemory, IsNotForRanksOfASystemWithoutMemory) {
  const std::string reason = "rank 1: shared memory cannot be reserved: No space left on device";
  expect_told(with_separate_rank(have_no_memory, kBothShared).results, reason);
  const auto automatic = with_separate_rank(have_no_memory, kBothAutomatic);
  EXPECT_THAT(automatic.results, Each(Eq("3 over gloo")));
  EXPECT_THAT(automatic.logs[0],
              StartsWith("the ranks communicate over Gloo, since they cannot share memory: " + reason));
}

// The system may also kill a process that asks for memory when there is none.
TEST(SharedMemory, IsNotWaitedForBeyondTheJoinTimeoutWhereARankIsKilledWhileItReservesMemory) {
  const auto ranks = with_separate_rank(be_killed_without_memory, kBothAutomatic, 5);
  EXPECT_THAT(ranks.results[0], StartsWith("5 "));
  EXPECT_EQ(ranks.results[1], "") << "rank 1 was not killed";
}

TEST(SharedMemory, IsNotForRanksOfDifferentUsers) {
  const auto ranks = with_separate_rank(become_another_user, kBothShared);
  if (ranks.are_skipped) GTEST_SKIP() << "only root may become another user";
  const std::string reason = "rank 1: shared memory cannot be opened: Permission denied";
  expect_told(ranks.results, reason);
  const auto automatic = with_separate_rank(become_another_user, kBothAutomatic);
  EXPECT_THAT(automatic.results, Each(Eq("3 over gloo")));
  EXPECT_THAT(automatic.logs[0],
              StartsWith("the ranks communicate over Gloo, since they cannot share memory: " + reason));
  EXPECT_EQ(automatic.logs[1], "") << "one rank logs the reason";
}

}  // namespace
}  // namespace ddpxx::shared_memory_test
