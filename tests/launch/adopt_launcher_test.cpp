// What programs learn from the variables of mpirun and srun.
#include <cstdlib>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/adopt_launcher.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::adopt_launcher_test {
namespace {

using namespace detail;
using Variables = std::map<std::string, std::string>;

class AdoptLauncher : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static AdoptedLaunch read(const Variables& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    return launch_to_adopt();
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
  static Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
  }
  static Variables without(Variables variables, const std::string& name) {
    variables.erase(name);
    return variables;
  }

  static inline const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                                           {"OMPI_COMM_WORLD_SIZE", "4"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                           {"PMIX_NAMESPACE", "773849089"}};
  static inline const Variables kSrun = {{"SLURM_JOB_ID", "12"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_PROCID", "3"},
                                         {"SLURM_LOCALID", "0"},
                                         {"SLURM_NTASKS", "4"},
                                         {"SLURM_STEP_NUM_TASKS", "4"},
                                         {"SLURM_NODEID", "1"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                                         {"SLURM_STEP_NODELIST", "node[1-2]"}};

 private:
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                             "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri", "DDPXX_STORE",
                             "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "PET_NNODES", "PET_NODE_RANK",
                             "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"})
      ::unsetenv(name);
    for (const auto* launcher : {&kMpirun, &kSrun})
      for (const auto& [name, value] : *launcher) ::unsetenv(name.c_str());
  }
};

TEST_F(AdoptLauncher, SetsNothingWithoutALauncher) {
  EXPECT_TRUE(read({}).variables.empty());
  EXPECT_TRUE(read({{"MASTER_ADDR", "a"}}).variables.empty());
}

TEST_F(AdoptLauncher, TorchrunsOwnVariablesComeFirst) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"})
    for (const auto& launcher : {kMpirun, kSrun})
      EXPECT_TRUE(read(with(launcher, {{name, "1"}, {"TORCHELASTIC_RUN_ID", "none"}})).variables.empty()) << name;
}

TEST_F(AdoptLauncher, ReadsMpirunsVariables) {
  const auto launch = read(kMpirun);
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.variables, (Variables{{"RANK", "3"},
                                         {"WORLD_SIZE", "4"},
                                         {"LOCAL_RANK", "3"},
                                         {"LOCAL_WORLD_SIZE", "4"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", port_of_job("773849089")},
                                         {"TORCHELASTIC_RUN_ID", "773849089"}}));
  EXPECT_EQ(read(with(kMpirun, kSrun)).launcher, "mpirun") << "mpirun inside of an allocation of Slurm";
}

TEST_F(AdoptLauncher, MpirunOnSeveralHostsNeedsTheMasterAddress) {
  const auto several = with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_THAT(error_of(several), testing::StartsWith("mpirun has started ranks on several hosts, but MASTER_ADDR is "
                                                     "not set, and rank 0 does not run on mpirun's host or "));
  const auto launch = read(with(several, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(launch.variables.at("MASTER_ADDR"), "node1");
  EXPECT_EQ(launch.variables.at("MASTER_PORT"), "29500");
}

TEST_F(AdoptLauncher, RanksOfSeveralHostsMeetAtMpirunsAddressIfRankZeroIsThere) {
  const std::string there = "773849088.0;tcp://10.0.0.1,172.17.0.1:43643;tcp6://[fdd5::2]:41773";
  const std::string elsewhere = "773849088.1;tcp://10.0.0.2:43643";
  const auto of_rank = [&](const std::string& rank, const std::string& daemon) {
    return with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"OMPI_COMM_WORLD_RANK", rank},
                          {"OMPI_MCA_orte_hnp_uri", there},
                          {"OMPI_MCA_orte_local_daemon_uri", daemon}});
  };
  EXPECT_EQ(read(of_rank("0", there)).variables.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(read(of_rank("3", elsewhere)).variables.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_THAT(error_of(of_rank("0", elsewhere)), testing::HasSubstr("pass the host of rank 0"));
}

TEST_F(AdoptLauncher, ReadsSrunsVariables) {
  const auto launch = read(kSrun);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.variables, (Variables{{"RANK", "3"},
                                         {"WORLD_SIZE", "4"},
                                         {"LOCAL_RANK", "0"},
                                         {"LOCAL_WORLD_SIZE", "1"},
                                         {"MASTER_ADDR", "node1"},
                                         {"MASTER_PORT", port_of_job("12.0")},
                                         {"TORCHELASTIC_RUN_ID", "12.0"}}));
}

TEST_F(AdoptLauncher, ABatchScriptOfSlurmIsAlone) {
  EXPECT_TRUE(read(without(kSrun, "SLURM_STEP_ID")).variables.empty());
  EXPECT_TRUE(read(without(kSrun, "SLURM_PROCID")).variables.empty());
}

TEST_F(AdoptLauncher, AnOnlyRankIsAlone) {
  EXPECT_TRUE(
      read(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})).variables.empty());
  EXPECT_TRUE(read(with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}})).variables.empty());
}

TEST_F(AdoptLauncher, AnOnlyRankIsAloneAlthoughItsScriptSaysWhereRanksMeet) {
  const auto by_mpirun = with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  const auto by_srun = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}});
  for (const auto& launcher : {by_mpirun, by_srun})
    for (const Variables& meeting : {Variables{{"MASTER_ADDR", "a"}}, Variables{{"MASTER_PORT", "1"}},
                                     Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}}) {
      read(with(launcher, meeting));
      adopt_launcher();
      EXPECT_FALSE(torchrun_environment());
    }
  read(with(by_srun, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  adopt_launcher();
  EXPECT_EQ(torchrun_environment().value().address, "a") << "a script has started several ranks in the only task";
}

TEST_F(AdoptLauncher, NamesTwoVariablesThatContradictEachOther) {
  EXPECT_EQ(
      error_of(with(kSrun, {{"RANK", "1"}})),
      "the environment variables RANK=1 and SLURM_PROCID=3, set by srun, contradict each other: unset RANK to use "
      "those of srun");
  EXPECT_EQ(error_of(with(kSrun, {{"WORLD_SIZE", "2"}})),
            "the environment variables WORLD_SIZE=2 and SLURM_STEP_NUM_TASKS=4, set by srun, contradict each other: "
            "unset WORLD_SIZE to use those of srun");
  EXPECT_NE(error_of(with(kMpirun, {{"RANK", "1"}})).find("RANK=1 and OMPI_COMM_WORLD_RANK=3, set by mpirun"),
            std::string::npos);
  EXPECT_EQ(error_of(with(kSrun, {{"RANK", "3"}, {"WORLD_SIZE", "4"}})), "no error");
  EXPECT_EQ(error_of(with(kSrun, {{"RANK", "1"}, {"DDPXX_STORE", "a:1"}})), "no error")
      << "srun has started ddpxx-run, and that has started this rank";
  EXPECT_EQ(error_of(with(kSrun, {{"RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}})), "no error")
      << "a script has started several ranks in the only task";
  EXPECT_EQ(error_of(with(without(kSrun, "SLURM_STEP_ID"), {{"RANK", "1"}})), "no error") << "a batch script";
}

TEST_F(AdoptLauncher, TakesAPodOfPyTorchJobForARank) {
  const Variables pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"RANK", "2"}, {"WORLD_SIZE", "3"}};
  const auto launch = read(pod);
  EXPECT_EQ(launch.launcher, "Kubernetes");
  EXPECT_EQ(launch.variables,
            (Variables{{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(read(with(pod, {{"LOCAL_RANK", "1"}})).variables.empty());
  EXPECT_TRUE(read(with(pod, {{"TORCHELASTIC_RUN_ID", "none"}})).variables.empty()) << "torchrun runs in the pod";
  EXPECT_TRUE(read(without(pod, "KUBERNETES_SERVICE_HOST")).variables.empty());
  const auto indexed = without(with(pod, {{"JOB_COMPLETION_INDEX", "1"}}), "RANK");
  EXPECT_EQ(read(indexed).variables.at("RANK"), "1");
}

TEST_F(AdoptLauncher, LeavesRanksThatMeetInsideOfAPodAlone) {
  const Variables pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (const char* host : {"127.0.0.1", "127.0.1.1", "localhost", "localhost.localdomain", "::1", "[::1]"})
    EXPECT_TRUE(read(with(pod, {{"MASTER_ADDR", host}})).variables.empty()) << host;
  for (const char* host : {"job-master-0", "10.0.0.7", "fd00::1", "localhost-0"})
    EXPECT_EQ(read(with(pod, {{"MASTER_ADDR", host}})).variables.at("LOCAL_WORLD_SIZE"), "1") << host;
  const auto first = with(pod, {{"RANK", "0"}, {"MASTER_ADDR", "localhost"}});
  EXPECT_TRUE(read(first).variables.empty());
  const Variables of_kubeflow = {{"PET_MASTER_ADDR", "localhost"}, {"PET_NNODES", "2"}};
  EXPECT_EQ(read(with(first, of_kubeflow)).variables.at("LOCAL_WORLD_SIZE"), "1") << "the master's pod of a PyTorchJob";
  EXPECT_TRUE(read(with(with(first, of_kubeflow), {{"PET_NNODES", "1"}})).variables.empty());
}

TEST_F(AdoptLauncher, TakesAPodOfTrainJobForARankWhereItHasOneOnly) {
  const Variables pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                         {"PET_NNODES", "2"},
                         {"PET_NPROC_PER_NODE", "1"},
                         {"PET_NODE_RANK", "1"},
                         {"PET_MASTER_ADDR", "job-node-0-0.job"},
                         {"PET_MASTER_PORT", "29400"}};
  EXPECT_EQ(read(pod).variables, (Variables{{"RANK", "1"},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_RANK", "0"},
                                            {"LOCAL_WORLD_SIZE", "1"},
                                            {"MASTER_ADDR", "job-node-0-0.job"},
                                            {"MASTER_PORT", "29400"}}));
  const auto indexed = without(with(pod, {{"JOB_COMPLETION_INDEX", "0"}}), "PET_NODE_RANK");
  EXPECT_EQ(read(indexed).variables.at("RANK"), "0");
  EXPECT_TRUE(read(with(pod, {{"PET_NNODES", "1"}})).variables.empty());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(read(with(pod, {{"PET_NPROC_PER_NODE", "4"}})).variables.empty());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("PET_NPROC_PER_NODE=4 are for a launcher"), std::string::npos);
}

TEST_F(AdoptLauncher, NamesAMissingVariable) {
  EXPECT_EQ(error_of(without(kSrun, "SLURM_LOCALID")),
            "this rank was started by srun, but SLURM_LOCALID is not set; set RANK, WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT to start ranks by hand");
  EXPECT_EQ(error_of(with(kSrun, {{"SLURM_NODEID", "2"}})),
            "environment variable SLURM_STEP_TASKS_PER_NODE=3,1 does not tell how many ranks run on node "
            "SLURM_NODEID=2");
}

TEST(TasksOnNode, ReadsSlurmsShortForm) {
  EXPECT_EQ(tasks_on_node("2(x2),1", 0), 2);
  EXPECT_EQ(tasks_on_node("2(x2),1", 1), 2);
  EXPECT_EQ(tasks_on_node("2(x2),1", 2), 1);
  EXPECT_EQ(tasks_on_node("16", 0), 16);
  for (const char* wrong : {"", "x", "2(", "2(x", "2(x)", "2(x2", "2y", "2(xx)"})
    EXPECT_EQ(tasks_on_node(wrong, 0), std::nullopt) << wrong;
}

TEST(FirstHost, ReadsSlurmsShortForm) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("login,node[1-2]"), "login");
  EXPECT_EQ(first_host("node[01-04,7],login"), "node01");
  EXPECT_EQ(first_host("node[3,5]-eth"), "node3-eth");
  EXPECT_EQ(first_host("node[7]"), "node7");
}

}  // namespace
}  // namespace ddpxx::adopt_launcher_test
