#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <sched.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/rank_introduction.hpp>
#include <ddpxx/comm/thread_share.hpp>
#include <ddpxx/core/program_frame.hpp>

#include "../loopback_listener.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::thread_share_test {
namespace {

TEST(ThreadShare, IsAnEvenShareOfTheJobsCoresWithinThoseOfTheRank) {
  const struct {
    const char* what;
    Cores cores;
    int ranks, share;
  } cases[] = {
      {"nothing is bound", {.machine = 64, .job = 64, .own = 64}, 8, 8},
      {"a rest stays", {.machine = 64, .job = 64, .own = 64}, 3, 21},
      {"at least one", {.machine = 2, .job = 2, .own = 2}, 4, 1},
      {"as many ranks as cores", {.machine = 8, .job = 8, .own = 8}, 8, 1},
      {"a core is bound to each rank", {.machine = 8, .job = 8, .own = 1}, 8, 1},
      {"all share a part of the machine", {.machine = 128, .job = 8, .own = 8}, 8, 1},
      {"each is bound to its share", {.machine = 128, .job = 128, .own = 16}, 8, 16},
      {"each is bound to less", {.machine = 64, .job = 64, .own = 4}, 8, 4},
      {"each is bound to its share of a part", {.machine = 128, .job = 64, .own = 16}, 4, 16},
      {"four are bound to each half", {.machine = 128, .job = 128, .own = 64}, 8, 16},
      {"the job has a limit of time alone", {.machine = 128, .job = 8, .own = 128}, 8, 1},
  };
  for (const auto& [what, cores, ranks, share] : cases)
    EXPECT_EQ(thread_share(cores, LocalWorldSize{ranks}), share) << what;
}

TEST(ThreadShare, ReadsAControlGroupsLimitOfTime) {
  EXPECT_EQ(detail::cores_of_quota("800000 100000\n", 128), 8);
  EXPECT_EQ(detail::cores_of_quota("150000 100000\n", 128), 1);
  EXPECT_EQ(detail::cores_of_quota("5000 100000\n", 128), 1);
  EXPECT_EQ(detail::cores_of_quota("25600000 100000\n", 128), 128);
  for (const char* none : {"max 100000\n", "", "8\n", "-1\n 100000\n"})
    EXPECT_EQ(detail::cores_of_quota(none, 128), 128) << none;
}

TEST(ThreadShare, IsThatOfTheGroupWithTheLeastTime) {
  const TemporaryFolder root;
  root.file("proc/self/cgroup", "0::/slurm/job_7/step_0\n3:cpu,cpuacct:/docker/a1b2\n");
  EXPECT_EQ(detail::cores_of_groups(128, root.path()), 128);
  root.file("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n");
  root.file("sys/fs/cgroup/slurm/job_7/cpu.max", "800000 100000\n");
  root.file("sys/fs/cgroup/slurm/cpu.max", "1600000 100000\n");
  EXPECT_EQ(detail::cores_of_groups(128, root.path()), 8);
  root.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(detail::cores_of_groups(128, root.path()), 8);
  root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(detail::cores_of_groups(128, root.path()), 4);
}

TEST(ThreadShare, TellsTheCoresOfTheRankFromThoseOfItsLauncher) {
  const auto before = detail::count_cores();
  std::thread{[&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(detail::count_cores().own, 1);
    EXPECT_EQ(detail::count_cores().job, before.job);
  }}.join();
}

/// Sets OMP_NUM_THREADS to `threads`, or unsets it, and restores the environment at the end.
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

/// The number of threads that a rank computes with after it has joined a group of `ranks` on this machine. It runs in a
/// thread of its own, because LibTorch's number belongs to a thread. Nothing listens at rank 0's address, so connect()
/// throws after it has set the number.
int threads_of_rank(int ranks, int before, bool has_frame = true) {
  std::optional<ProgramFrame> frame;
  if (has_frame) frame.emplace();
  int after = 0;
  std::thread{[&] {
    at::set_num_threads(before);
    ConnectOptions options;
    options.join_timeout = std::chrono::milliseconds{1};
    const RankInfo rank_info{.rank = Rank{1},
                             .world_size = WorldSize{ranks},
                             .local_rank = LocalRank{1},
                             .local_world_size = LocalWorldSize{ranks}};
    try {
      connect("tcp://127.0.0.1:1", rank_info, options);
      ADD_FAILURE() << "connect() succeeded";
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
  EXPECT_EQ(threads_of_rank(2, all), std::min(all, thread_share(detail::count_cores(), LocalWorldSize{2})));
}

/// The number of threads of a rank that does not know how many ranks are on its host. It meets three other ranks, of
/// which `others_here` are on its host. The ranks meet as ranks of GPUs, so that connecting ends at once.
int threads_after_meeting(int others_here, int before) {
  const ProgramFrame frame;
  const auto [listener, port] = loopback_listener();
  std::vector<Descriptor> listeners;
  listeners.emplace_back(listener);
  const JobStoreServer server{std::move(listeners), {}};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  auto others = JobStoreConnection::open("127.0.0.1", port, {}, until);
  for (int other = 1; other < 4; ++other) {
    const RankIntroduction facts{.world_size = 4,
                                 .host = other <= others_here ? detail::network_host() : "another-host",
                                 .ipv4 = "10.0.0.7",
                                 .device = "cuda",
                                 .backend = "NCCL",
                                 .mark = std::to_string(other)};
    others.set("ddpxx/restart0/rank" + std::to_string(other), to_text(facts), until);
  }
  int after = 0;
  std::thread{[&, port = port] {
    at::set_num_threads(before);
    ConnectOptions options;
    options.store_host = StoreHost::ddpxx_run;
    options.local_world_known = false;
    options.device = at::Device{at::kCUDA, 0};
    const RankInfo rank_info{
        .rank = Rank{0}, .world_size = WorldSize{4}, .local_rank = LocalRank{0}, .local_world_size = LocalWorldSize{4}};
    try {
      detail::connect_ranks("tcp://127.0.0.1:" + std::to_string(port), rank_info, options, nullptr);
      ADD_FAILURE() << "connect_ranks() succeeded";
    } catch (const Error& error) {
      EXPECT_NE(std::string{error.what()}.find("needs NCCL"), std::string::npos) << error.what();
    }
    after = at::get_num_threads();
  }}.join();
  return after;
}

TEST(ThreadShare, CountsTheRanksOfTheHostWhenTheyMeetWhereItIsUnknown) {
  const Choice none{nullptr};
  const int all = at::intraop_default_num_threads();
  EXPECT_EQ(threads_after_meeting(0, all), all) << "this rank is alone on its host";
  EXPECT_EQ(threads_after_meeting(1, all), std::min(all, thread_share(detail::count_cores(), LocalWorldSize{2})));
  EXPECT_EQ(threads_after_meeting(3, all), std::min(all, thread_share(detail::count_cores(), LocalWorldSize{4})));
}

TEST(ThreadShare, IsNotTakenInAProcessWithoutAProgramFrame) {
  const Choice none{nullptr};
  const int all = at::intraop_default_num_threads();
  EXPECT_EQ(threads_of_rank(4096, all, /*has_frame=*/false), all);
}

TEST(ThreadShare, KeepsANumberThatTheUserHasSet) {
  {
    const Choice one{"7"};
    EXPECT_EQ(threads_of_rank(4096, 7), 7);
  }
  const Choice none{nullptr};
  const int chosen = 3 * at::intraop_default_num_threads();  // differs from LibTorch's default
  EXPECT_EQ(threads_of_rank(4096, chosen), chosen);
}

}  // namespace
}  // namespace ddpxx::thread_share_test
