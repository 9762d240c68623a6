#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/thread_share.hpp>

namespace ddpxx {
namespace {

TEST(ThreadShare, IsAnEvenShareOfTheMachine) {
  EXPECT_EQ(thread_share({.machine = 64, .allowed = 64}, LocalWorldSize{8}), 8);
  EXPECT_EQ(thread_share({.machine = 64, .allowed = 64}, LocalWorldSize{3}), 21);
  EXPECT_EQ(thread_share({.machine = 2, .allowed = 2}, LocalWorldSize{4}), 1) << "at least one";
}

TEST(ThreadShare, IsNotDividedAgainWhereTheLauncherHasBoundTheRank) {
  EXPECT_EQ(thread_share({.machine = 64, .allowed = 8}, LocalWorldSize{8}), 8);
  EXPECT_EQ(thread_share({.machine = 64, .allowed = 4}, LocalWorldSize{8}), 4);
}

/// The environment without, or with, a choice of threads; as it was afterwards.
class Choice {
 public:
  explicit Choice(const char* threads) {
    ::unsetenv("MKL_NUM_THREADS");
    if (threads == nullptr)
      ::unsetenv("OMP_NUM_THREADS");
    else
      ::setenv("OMP_NUM_THREADS", threads, 1);
  }
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;
  ~Choice() {
    restore("OMP_NUM_THREADS", omp_);
    restore("MKL_NUM_THREADS", mkl_);
  }

 private:
  static void restore(const char* name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name, value->c_str(), 1);
    else
      ::unsetenv(name);
  }
  std::optional<std::string> omp_ = environment("OMP_NUM_THREADS"), mkl_ = environment("MKL_NUM_THREADS");
};

/// The threads that a rank computes with once it has come to a group of `ranks` on this machine, in a thread of its own
/// because the number belongs to a thread. An error ends connect() after it has chosen: rank 0 is nowhere.
int threads_of_rank(int ranks, int before) {
  int after = 0;
  std::thread{[&] {
    at::set_num_threads(before);
    ConnectOptions options;
    options.join_timeout = std::chrono::milliseconds{1};
    const Place place{.rank = Rank{1},
                      .world_size = WorldSize{ranks},
                      .local_rank = LocalRank{1},
                      .local_world_size = LocalWorldSize{ranks}};
    try {
      connect("tcp://127.0.0.1:1", place, options);
      ADD_FAILURE() << "met someone";
    } catch (const Error&) {
    }
    after = at::get_num_threads();
  }}.join();
  return after;
}

TEST(ThreadShare, IsTakenByARankThatConnects) {
  const Choice none{nullptr};
  const int all = at::intraop_default_num_threads();
  EXPECT_EQ(threads_of_rank(4096, all), 1);
  EXPECT_EQ(threads_of_rank(2, all), std::max(1, all / 2));
}

TEST(ThreadShare, LeavesAChoiceOfTheUsersAlone) {
  {
    const Choice one{"7"};
    EXPECT_EQ(threads_of_rank(4096, 7), 7);
  }
  const Choice none{nullptr};
  const int chosen = 3 * at::intraop_default_num_threads();  // no default that LibTorch would begin with
  EXPECT_EQ(threads_of_rank(4096, chosen), chosen);
}

}  // namespace
}  // namespace ddpxx
