#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/rank_environment.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::torchrun_environment_test {
namespace {

using namespace detail;
using Variables = std::map<std::string, std::string>;

class TorchrunEnvironment : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static std::optional<Launch> read(const Variables& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    return torchrun_environment();
  }

  static std::string error_of(const Variables& variables) {
    try {
      read(variables);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer);
      return error.what();
    }
    return "no error";
  }

  static inline const Variables kComplete = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

  static Variables with(const std::string& name, const std::string& value) {
    Variables variables = kComplete;
    variables[name] = value;
    return variables;
  }

 private:
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID",
                             "DDPXX_STORE", "DDPXX_TOKEN", "SLURM_JOB_ID"})
      ::unsetenv(name);
  }
};

TEST_F(TorchrunEnvironment, IsAbsentWhenNoVariableIsSet) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"LOCAL_WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "x"}}))
      << "these variables alone do not describe a launch";
}

TEST_F(TorchrunEnvironment, NeedsOnlyWhatPythonsEnvRendezvousNeeds) {
  const auto launch = read(kComplete);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank_info, (RankInfo{.rank = Rank{1},
                                         .world_size = WorldSize{2},
                                         .local_rank = LocalRank{1},
                                         .local_world_size = LocalWorldSize{2}}));
  EXPECT_EQ(launch->address, "node0");
  EXPECT_EQ(launch->port, 29500);
  EXPECT_EQ(launch->store_host, StoreHost::rank_zero);
  EXPECT_FALSE(launch->local_world_known);
  EXPECT_TRUE(read(with("LOCAL_WORLD_SIZE", "2"))->local_world_known);
}

TEST_F(TorchrunEnvironment, TakesSlurmsJobForTheRunWhereNothingElseNamesIt) {
  auto variables = with("SLURM_JOB_ID", "4711");
  EXPECT_EQ(read(variables)->run_id, "4711");
  variables["TORCHELASTIC_RUN_ID"] = "run7";
  EXPECT_EQ(read(variables)->run_id, "run7");
}

TEST_F(TorchrunEnvironment, NamesEveryMissingVariable) {
  const auto text = error_of({{"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  EXPECT_NE(text.find("incomplete: RANK, MASTER_ADDR not set, but WORLD_SIZE=2, MASTER_PORT=29500; "),
            std::string::npos)
      << text;
  const auto alone = error_of({{"LOCAL_RANK", "0"}});
  EXPECT_NE(alone.find("RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set, but LOCAL_RANK=0; "), std::string::npos)
      << alone;
  EXPECT_NE(error_of(with("RANK", "")).find("incomplete: RANK not set"), std::string::npos)
      << "an empty variable counts as not set";
}

TEST_F(TorchrunEnvironment, FollowsTheRuleForTheAgentsStore) {
  EXPECT_EQ(read(with("TORCHELASTIC_USE_AGENT_STORE", "True"))->store_host, StoreHost::torchrun);
  EXPECT_EQ(read(with("TORCHELASTIC_USE_AGENT_STORE", "False"))->store_host, StoreHost::rank_zero);
  EXPECT_EQ(read(with("TORCHELASTIC_USE_AGENT_STORE", "1"))->store_host, StoreHost::rank_zero)
      << "Python accepts only True";
}

// torchrun passes its environment on to the ranks, including variables of ddpxx-run that it does not know.
TEST_F(TorchrunEnvironment, TakesTheNearerLauncherWhereOneStartedTheOther) {
  auto variables = with("DDPXX_STORE", "127.0.0.1:1234");
  EXPECT_EQ(read(variables)->store_host, StoreHost::ddpxx_run);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables)->store_host, StoreHost::torchrun);
}

TEST_F(TorchrunEnvironment, CountsRestarts) {
  EXPECT_EQ(read(with("TORCHELASTIC_RESTART_COUNT", "2"))->rank_info.restart, 2);
}

TEST_F(TorchrunEnvironment, TakesTheBracketsOffAnIpv6Address) {
  EXPECT_EQ(read(with("MASTER_ADDR", "[fe80::1]"))->address, "fe80::1");
  EXPECT_EQ(read(with("MASTER_ADDR", "::1"))->address, "::1");
  EXPECT_NE(error_of(with("MASTER_ADDR", "[::1")).find("MASTER_ADDR=[::1"), std::string::npos);
}

TEST_F(TorchrunEnvironment, RefusesImpossibleValuesByName) {
  EXPECT_NE(error_of(with("RANK", "two")).find("RANK=two"), std::string::npos);
  for (const char* store : {"node0", ":1", "node0:", "node0:0", "node0:99999", "node0:1x"})
    EXPECT_NE(error_of(with("DDPXX_STORE", store)).find("DDPXX_STORE=" + std::string{store}), std::string::npos);
  EXPECT_EQ(error_of(with("RANK", "5")),
            "the environment variables RANK=5 and WORLD_SIZE=2 contradict each other: RANK must be 0 to 1");
  EXPECT_NE(error_of(with("RANK", "-1")).find("RANK=-1 and WORLD_SIZE=2"), std::string::npos);
  auto local = with("LOCAL_RANK", "2");
  local["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_NE(error_of(local).find("LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2 contradict"), std::string::npos);
  EXPECT_NE(error_of(with("WORLD_SIZE", "0")).find("world size is 0"), std::string::npos);
  EXPECT_NE(error_of(with("WORLD_SIZE", "99999999999")).find("WORLD_SIZE=99999999999"), std::string::npos);
  for (const char* port : {"0", "-1", "65536"})
    EXPECT_NE(error_of(with("MASTER_PORT", port)).find("MASTER_PORT=" + std::string{port}), std::string::npos);
}

TEST_F(TorchrunEnvironment, ReadsBackWhatALauncherWrites) {
  const LaunchPlan plan{.num_nodes = 2, .node_rank = 1, .ranks_per_node = 4, .max_restarts = 3};
  const Launch launch{.rank_info = rank_info_of(plan, 2, 1),
                      .address = "node0",
                      .port = 4711,
                      .store_host = StoreHost::torchrun,
                      .run_id = "run7"};
  EXPECT_EQ(launch.rank_info.rank, Rank{6});
  EXPECT_EQ(read(launch_variables(plan, launch, "")), launch);
  auto ours = launch;
  ours.store_host = StoreHost::ddpxx_run;
  ours.store = "node0:29500";
  ours.token = "secret";
  EXPECT_EQ(read(launch_variables(plan, ours, "")), ours);
}

}  // namespace
}  // namespace ddpxx::torchrun_environment_test
