#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx {
namespace {

LaunchPlan plan_of(const std::vector<std::string>& arguments) { return parse_launch(arguments).value(); }

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parse_launch(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "no error";
}

TEST(LaunchPlan, TakesTheFirstNonFlagAsTheProgramAndTheRestVerbatim) {
  const auto plan = plan_of({"--standalone", "--nproc-per-node", "4", "train", "--nnodes=7", "--", "-x", "a b"});
  EXPECT_EQ(plan.program, "train");
  EXPECT_EQ(plan.arguments, (std::vector<std::string>{"--nnodes=7", "--", "-x", "a b"}));
  EXPECT_EQ(plan.ranks_per_node, 4);
  EXPECT_EQ(plan.num_nodes, 1);
}

TEST(LaunchPlan, UnderstandsBothSpellingsAndBothForms) {
  for (const std::vector<std::string>& flag : std::vector<std::vector<std::string>>{
           {"--nproc-per-node", "3"}, {"--nproc_per_node", "3"}, {"--nproc-per-node=3"}, {"--nproc_per_node=3"}}) {
    auto arguments = flag;
    arguments.push_back("train");
    EXPECT_EQ(plan_of(arguments).ranks_per_node, 3) << flag[0];
  }
}

TEST(LaunchPlan, StartsOneRankUnlessToldOtherwise) {
  const auto plan = plan_of({"train"});
  EXPECT_EQ(plan.ranks_per_node, 1);
  EXPECT_EQ(plan.max_restarts, 0);
  EXPECT_EQ(plan.grace, std::chrono::seconds{30});
  EXPECT_FALSE(plan.master_port) << "without --master-port, a free port is chosen later";
}

TEST(LaunchPlan, CountsRanksOverSeveralMachines) {
  const auto plan = plan_of({"--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=node0", "train"});
  EXPECT_EQ(plan.master_port, 29500);
  const RankInfo rank_info = rank_info_of(plan, 3, 0);
  EXPECT_EQ(rank_info.rank, Rank{7});
  EXPECT_EQ(rank_info.world_size, WorldSize{8});
  EXPECT_EQ(rank_info.local_rank, LocalRank{3});
}

TEST(LaunchPlan, LetsStandaloneOverrideTheMaster) {
  const auto plan = plan_of({"--master-addr=node7", "--standalone", "--master-port=1234", "train"});
  EXPECT_EQ(plan.master_address, "127.0.0.1");
  EXPECT_FALSE(plan.master_port);
}

TEST(LaunchPlan, ReadsGraceRestartsAndLogDirectory) {
  const auto plan = plan_of({"--grace=0.25", "--max-restarts=3", "--log-dir", "logs", "--no-python", "--", "train"});
  EXPECT_EQ(plan.grace, std::chrono::milliseconds{250});
  EXPECT_EQ(plan.max_restarts, 3);
  EXPECT_EQ(plan.log_dir, "logs");
  EXPECT_EQ(plan.program, "train");
}

TEST(LaunchPlan, ReadsTheIdOfTheRunAndHowLongMachinesWait) {
  EXPECT_FALSE(plan_of({"train"}).run_id);
  const auto plan = plan_of({"--rdzv_id=job-7.a", "--rdzv-conf", "join_timeout=2.5", "train"});
  EXPECT_EQ(plan.run_id, "job-7.a");
  EXPECT_EQ(plan.join_timeout, std::chrono::milliseconds{2'500});
}

TEST(LaunchPlan, GivesHelpInsteadOfAPlan) {
  EXPECT_FALSE(parse_launch(std::vector<std::string>{"--help"}));
  EXPECT_FALSE(parse_launch(std::vector<std::string>{"--nproc-per-node=2", "-h", "train"}));
  EXPECT_TRUE(parse_launch(std::vector<std::string>{"train", "--help"}))
      << "--help behind the program belongs to the program";
  EXPECT_NE(launch_help().find("--max-restarts K"), std::string::npos);
}

TEST(LaunchPlan, RefusesWhatItCannotDoByName) {
  EXPECT_NE(error_of({"--rdzv_backend=c10d", "train"}).find("--rdzv_backend"), std::string::npos);
  EXPECT_NE(error_of({"-r", "3", "train"}).find("-r"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=1:4", "train"}).find("--nnodes: \"1:4\""), std::string::npos);
  EXPECT_NE(error_of({"--nproc-per-node=gpu", "train"}).find("--nproc-per-node: \"gpu\""), std::string::npos);
}

TEST(LaunchPlan, RefusesValuesThatMakeNoSense) {
  for (const char* flag : {"--nproc-per-node=0", "--nproc-per-node=-1", "--nproc-per-node=2x",
                           "--nproc-per-node=", "--nproc-per-node=99999999999", "--grace=-1", "--grace=nan",
                           "--grace=inf", "--master-port=0", "--master-port=65536", "--rdzv-id=", "--rdzv-id=../x",
                           "--rdzv-id=a b", "--rdzv-conf=timeout=3", "--rdzv-conf=join_timeout=x",
                           "--rdzv-conf=join_timeout=0", "--max-restarts=-1", "--log-dir=", "--standalone=yes"}) {
    const std::string text{flag};
    EXPECT_EQ(error_of({flag, "train"}).rfind(text.substr(0, text.find('=')), 0), 0U) << flag;
  }
  EXPECT_NE(error_of({"--nproc-per-node"}).find("needs a value"), std::string::npos);
  EXPECT_NE(error_of({}).find("no PROGRAM"), std::string::npos);
  EXPECT_NE(error_of({"--standalone"}).find("no PROGRAM"), std::string::npos);
}

TEST(LaunchPlan, RefusesFlagsThatContradictEachOther) {
  EXPECT_NE(error_of({"--node-rank=1", "train"}).find("--node-rank 1"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=2", "--standalone", "train"}).find("--standalone"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=2", "--master-addr=a", "--max-restarts=1", "train"}).find("--max-restarts"),
            std::string::npos);
  EXPECT_NE(error_of({"--nnodes=2", "train"}).find("--master-addr"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=40000", "--nproc-per-node=4", "--master-addr=a", "train"}).find("131072 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace ddpxx
