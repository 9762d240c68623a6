#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/rank_environment.hpp>

namespace ddpxx::rank_environment_test {
namespace {

using namespace detail;

std::vector<std::string> environment_of(const LaunchPlan& plan, std::vector<std::string> inherited) {
  const Launch launch{.rank_info = rank_info_of(plan, plan.ranks_per_node - 1, 1),
                      .address = "127.0.0.1",
                      .port = 4711,
                      .store_host = StoreHost::rank_zero,
                      .run_id = "run7",
                      .round = 3};
  return rank_environment(inherited, plan, launch, "/logs/error.json");
}

bool has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

TEST(RankEnvironment, HoldsAllThatTorchrunSets) {
  const LaunchPlan plan{.num_nodes = 3, .node_rank = 1, .ranks_per_node = 4, .max_restarts = 2};
  const auto environment = environment_of(plan, {});
  for (const char* entry : {"RANK=7",
                            "WORLD_SIZE=12",
                            "LOCAL_RANK=3",
                            "LOCAL_WORLD_SIZE=4",
                            "GROUP_RANK=1",
                            "GROUP_WORLD_SIZE=3",
                            "ROLE_RANK=7",
                            "ROLE_WORLD_SIZE=12",
                            "ROLE_NAME=default",
                            "MASTER_ADDR=127.0.0.1",
                            "MASTER_PORT=4711",
                            "TORCHELASTIC_RESTART_COUNT=1",
                            "TORCHELASTIC_MAX_RESTARTS=2",
                            "TORCHELASTIC_RUN_ID=run7",
                            "TORCHELASTIC_USE_AGENT_STORE=False",
                            "TORCHELASTIC_ERROR_FILE=/logs/error.json",
                            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                            "OMP_NUM_THREADS=1",
                            "DDPXX_ROUND=3"})
    EXPECT_TRUE(has(environment, entry)) << entry;
}

TEST(RankEnvironment, OverridesAnOuterLauncherAndKeepsTheRest) {
  const auto environment = environment_of({.ranks_per_node = 2}, {"RANK=99", "CUDA_VISIBLE_DEVICES=1,2", "EMPTY="});
  EXPECT_TRUE(has(environment, "RANK=1"));
  EXPECT_FALSE(has(environment, "RANK=99"));
  EXPECT_TRUE(has(environment, "CUDA_VISIBLE_DEVICES=1,2"));
  EXPECT_TRUE(has(environment, "EMPTY="));
}

TEST(RankEnvironment, ShowsEachRankItsGPUAsTheOnlyOne) {
  const auto environment = environment_of({.ranks_per_node = 3, .virtual_local_rank = true}, {});
  EXPECT_TRUE(has(environment, "LOCAL_RANK=0"));
  EXPECT_TRUE(has(environment, "DDPXX_LOCAL_RANK=2"));
  EXPECT_TRUE(has(environment, "RANK=2"));
  EXPECT_EQ(visible_gpu(nullptr, 2), "2");
  EXPECT_EQ(visible_gpu("4,GPU-5,6", 1), "GPU-5");
  EXPECT_EQ(visible_gpu("4,GPU-5,6", 0), "4");
  EXPECT_THROW(visible_gpu("4,5", 2), Error);
}

TEST(RankEnvironment, HidesGPUsThatTheUserHasHidden) {
  const char* const before = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const auto environment = environment_of({.ranks_per_node = 3, .virtual_local_rank = true}, {});
  if (before != nullptr)
    ::setenv("CUDA_VISIBLE_DEVICES", kept.c_str(), 1);
  else
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(has(environment, "CUDA_VISIBLE_DEVICES="));
}

TEST(RankEnvironment, NamesTheInterfaceOfTheChosenAddress) {
  const auto environment = environment_of({.local_address = "127.0.0.1"}, {"NCCL_SOCKET_IFNAME=chosen", "UNRELATED=1"});
  EXPECT_TRUE(has(environment, "GLOO_SOCKET_IFNAME=lo"));
  EXPECT_TRUE(has(environment, "NCCL_SOCKET_IFNAME=chosen"));
  EXPECT_FALSE(has(environment_of({}, {}), "GLOO_SOCKET_IFNAME=lo"));
}

TEST(RankEnvironment, LeavesThreadsToTheUserAndToALoneRank) {
  const auto chosen = environment_of({.ranks_per_node = 2}, {"OMP_NUM_THREADS=8"});
  EXPECT_TRUE(has(chosen, "OMP_NUM_THREADS=8"));
  EXPECT_FALSE(has(chosen, "OMP_NUM_THREADS=1"));
  EXPECT_FALSE(has(environment_of({.ranks_per_node = 1}, {}), "OMP_NUM_THREADS=1"));
}

}  // namespace
}  // namespace ddpxx::rank_environment_test
