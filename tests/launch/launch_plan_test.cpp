#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/table/launcher_flag.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/parse_launch.hpp>
#include <ddpxx/launch/plan/processors.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::launch_plan_test {
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

TEST(LaunchPlan, SuggestsTheFlagThatAnUnknownOneMayMean) {
  EXPECT_EQ(error_of({"--nproc_per_nod=2", "train"}),
            "unknown flag --nproc_per_nod (did you mean --nproc-per-node?); `ddpxx-run --help` lists the flags");
  EXPECT_EQ(error_of({"-standalone", "train"}),
            "unknown flag -standalone (did you mean --standalone?); `ddpxx-run --help` lists the flags");
  EXPECT_EQ(error_of({"--x", "train"}), "unknown flag --x; `ddpxx-run --help` lists the flags");
}

TEST(LaunchPlan, KnowsTheFlagsThatAProgramRefusesAmongItsArguments) {
  for (const auto name : detail::kLauncherFlags) EXPECT_NO_THROW(detail::launch_flag("--" + std::string{name})) << name;
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
  EXPECT_EQ(plan_of({"--standalone", "--node-rank=5", "train"}).node_rank, 0) << "torchrun ignores --node-rank here";
}

TEST(LaunchPlan, ReadsGraceRestartsAndLogDirectory) {
  const auto plan = plan_of({"--grace=0.25", "--max-restarts=3", "--log-dir", "logs", "--no-python", "--", "train"});
  EXPECT_EQ(plan.grace, std::chrono::milliseconds{250});
  EXPECT_EQ(plan.max_restarts, 3);
  EXPECT_EQ(plan.outputs.log_dir, "logs");
  EXPECT_EQ(plan.program, "train");
}

TEST(LaunchPlan, ReadsTheIdOfTheRunAndHowLongMachinesWait) {
  EXPECT_FALSE(plan_of({"train"}).run_id);
  const auto plan = plan_of({"--rdzv_id=job-7.a", "--rdzv-conf", "join_timeout=2.5", "train"});
  EXPECT_EQ(plan.run_id, "job-7.a");
  EXPECT_EQ(plan.join_timeout, std::chrono::milliseconds{2'500});
}

TEST(LaunchPlan, NumbersTheMachinesOfC10dByTheirArrival) {
  const auto plan = plan_of({"--nnodes=2:2", "--rdzv_backend=c10d", "--rdzv-endpoint=node0:4000", "--node-rank=1",
                             "--master-addr=other", "train"});
  EXPECT_EQ(plan.node_numbers, NodeNumbers::by_arrival);
  EXPECT_EQ(plan.node_rank, 0) << "torchrun ignores --node-rank here";
  EXPECT_EQ(plan.num_nodes, 2);
  EXPECT_EQ(plan.master_address, "node0");
  EXPECT_EQ(plan.master_port, 4000);
  EXPECT_FALSE(plan.serves_meeting);
  const auto ipv6 = plan_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]",
                             "--rdzv-conf=join_timeout=9,is_host=true,read_timeout=60", "train"});
  EXPECT_EQ(ipv6.master_address, "[fd00::1]");
  EXPECT_EQ(ipv6.master_port, 29400) << "torch's default port";
  EXPECT_EQ(ipv6.serves_meeting, true);
  EXPECT_EQ(ipv6.join_timeout, std::chrono::seconds{9});
}

TEST(LaunchPlan, ReadsTheRendezvousSettingsAsTorchrunDoes) {
  const auto plan_with = [](const std::string& settings) {
    return plan_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--rdzv-conf=" + settings, "train"});
  };
  const auto plan = plan_with(" join_timeout = 9 , is_host=True ,\tread_timeout=60 ");
  EXPECT_EQ(plan.join_timeout, std::chrono::seconds{9});
  EXPECT_EQ(plan.serves_meeting, true);
  for (const char* yes : {"1", "true", "TRUE", "t", "Yes", "y"})
    EXPECT_EQ(plan_with("is_host=" + std::string{yes}).serves_meeting, true) << yes;
  for (const char* no : {"0", "false", "False", "F", "no", "N"})
    EXPECT_EQ(plan_with("is_host=" + std::string{no}).serves_meeting, false) << no;
  EXPECT_FALSE(plan_with("  ").serves_meeting);
}

TEST(LaunchPlan, LetsTheMachinesOfC10dComeAndGo) {
  const auto plan =
      plan_of({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--max-restarts=3", "train"});
  EXPECT_EQ(plan.min_nodes, 1);
  EXPECT_EQ(plan.num_nodes, 4);
  EXPECT_EQ(plan.max_restarts, 3);
  EXPECT_EQ(plan.last_call, std::chrono::seconds{30}) << "torchelastic's default";
  EXPECT_EQ(plan.keep_alive.interval, std::chrono::seconds{5}) << "torchelastic's default";
  const auto timed =
      plan_of({"--nnodes=2:3", "--rdzv-backend=c10d", "--rdzv-endpoint=node0",
               "--rdzv-conf=last_call_timeout=0.5,keep_alive_interval=2,keep_alive_max_attempt=5", "train"});
  EXPECT_EQ(timed.min_nodes, 2);
  EXPECT_EQ(timed.last_call, std::chrono::milliseconds{500});
  EXPECT_EQ(timed.keep_alive.interval, std::chrono::seconds{2});
  EXPECT_EQ(timed.keep_alive.attempts, 5);
  EXPECT_EQ(plan_of({"--nnodes=3", "--master-addr=a", "train"}).min_nodes, 3);
}

TEST(LaunchPlan, NeedsNoMeetingPlaceOfC10dForOneMachine) {
  const auto plan = plan_of({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "train"});
  EXPECT_EQ(plan.node_numbers, NodeNumbers::given);
  EXPECT_EQ(plan.master_address, "127.0.0.1");
  EXPECT_FALSE(plan.master_port);
  EXPECT_FALSE(plan_of({"--rdzv-endpoint=localhost:0", "train"}).master_port);
}

TEST(LaunchPlan, TakesTheEndpointForTheMasterOfTheStaticBackend) {
  const auto plan = plan_of({"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=node0:4000", "train"});
  EXPECT_EQ(plan.node_numbers, NodeNumbers::given);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.master_address, "node0");
  EXPECT_EQ(plan.master_port, 4000);
}

TEST(LaunchPlan, RunsModulesAndScriptsByPython) {
  const auto module = plan_of({"-m", "package.train", "--lr", "1"});
  EXPECT_EQ(module.program, "python3");
  EXPECT_EQ(module.arguments, (std::vector<std::string>{"-u", "-mpackage.train", "--lr", "1"}));
  EXPECT_EQ(module.num_added_arguments, 2U);
  const auto script = plan_of({"train.py", "50"});
  EXPECT_EQ(script.program, "python3");
  EXPECT_EQ(script.arguments, (std::vector<std::string>{"-u", "train.py", "50"}));
  EXPECT_EQ(script.num_added_arguments, 2U);
  EXPECT_EQ(plan_of({"--no-python", "train.py"}).program, "train.py");
  EXPECT_EQ(plan_of({"--no-python", "train.py", "50"}).num_added_arguments, 0U);
  EXPECT_EQ(plan_of({"train"}).program, "train");
}

TEST(LaunchPlan, ReadsWhereOutputsGo) {
  for (const std::vector<std::string>& flag :
       std::vector<std::vector<std::string>>{{"-r", "3"}, {"-r3"}, {"-r=3"}, {"--redirects=3"}, {"--redirects", "3"}}) {
    auto arguments = flag;
    arguments.push_back("train");
    EXPECT_EQ(plan_of(arguments).outputs.redirects.of(7), Streams::both) << flag[0];
    EXPECT_EQ(plan_of(arguments).program, "train") << flag[0];
  }
  const auto plan = plan_of({"--tee=0:1,12:2", "--local_ranks_filter=0,2", "--duplicate-stdout-filters=a,,b,c",
                             "--duplicate_stderr_filters=x", "train"});
  EXPECT_EQ(plan.outputs.tee.of(0), Streams::out);
  EXPECT_EQ(plan.outputs.tee.of(1), Streams::none);
  EXPECT_EQ(plan.outputs.tee.of(12), Streams::err);
  EXPECT_EQ(plan.outputs.redirects.of(0), Streams::none);
  EXPECT_TRUE(plan.outputs.shows(2));
  EXPECT_FALSE(plan.outputs.shows(1));
  EXPECT_EQ(plan.outputs.stdout_filters, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(plan.outputs.stderr_filters, (std::vector<std::string>{"x"}));
  EXPECT_EQ(detail::text_of(plan.outputs.tee), "0:1,12:2");
  EXPECT_EQ(detail::text_of(plan.outputs.stdout_filters), "a,,b,c");
}

TEST(LaunchPlan, ReadsSignalsBindingAndAddress) {
  const auto plan = plan_of({"--signals-to-handle=SIGTERM, SIGUSR1", "--numa-binding=core-complex",
                             "--local-addr=127.0.0.1", "--virtual-local-rank", "train"});
  EXPECT_EQ(plan.signals, "SIGTERM, SIGUSR1");
  EXPECT_EQ(plan.ending_signals, std::vector<int>{SIGUSR1});
  EXPECT_EQ(plan.binding, CpuBinding::core_complex);
  EXPECT_EQ(plan.local_address, "127.0.0.1");
  EXPECT_TRUE(plan.virtual_local_rank);
  EXPECT_EQ(plan_of({"--standalone", "--local-addr=localhost", "train"}).master_address, "localhost");
  EXPECT_FALSE(plan_of({"train"}).binding);
}

TEST(LaunchPlan, RunsAScriptByRunpy) {
  const auto plan = plan_of({"--run-path", "--no-python", "script", "a"});
  EXPECT_EQ(plan.program, "python3");
  ASSERT_EQ(plan.arguments.size(), 4U);
  EXPECT_EQ(plan.arguments[0], "-c");
  EXPECT_EQ(plan.arguments[2], "script");
  EXPECT_EQ(plan.arguments[3], "a");
  EXPECT_EQ(plan.num_added_arguments, 3U);
}

TEST(LaunchPlan, CountsOneRankForEachCoreOrGPU) {
  EXPECT_EQ(plan_of({"--nproc-per-node=cpu", "train"}).ranks_per_node, detail::count_processors());
  const int gpus = detail::count_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(plan_of({"--nproc-per-node=auto", "train"}).ranks_per_node, gpus > 0 ? gpus : detail::count_processors());
  if (gpus > 0) EXPECT_EQ(plan_of({"--nproc-per-node=gpu", "train"}).ranks_per_node, gpus);
  if (gpus == 0)
    EXPECT_NE(error_of({"--nproc-per-node=gpu", "train"}).find("this machine shows none"), std::string::npos);
}

TEST(Processors, CountsTheGPUsThatAProgramMayUse) {
  const TemporaryFolder folder;
  EXPECT_EQ(detail::count_gpus(nullptr, folder / "no such folder"), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"})
    std::ofstream{folder / name};
  EXPECT_EQ(detail::count_gpus(nullptr, folder / ""), 3);
  const std::map<std::string, int> counts = {{"0,1", 2},
                                             {"GPU-8932f937,1,2", 3},
                                             {"", 0},
                                             {"-1", 0},
                                             {"1,-1,0", 1},
                                             {"2,", 1},
                                             {"0,7,1", 1},
                                             {"7", 0},
                                             {"99999999999", 0},
                                             {"none", 0},
                                             {"NoDevFiles", 0},
                                             {"1,none,0", 1},
                                             {"0, 1", 2},
                                             {"MIG-GPU-1/0/0,1", 2},
                                             {"GPU-a,GPU-b,GPU-c,GPU-d", 3}};
  for (const auto& [visible, count] : counts)
    EXPECT_EQ(detail::count_gpus(visible.c_str(), folder / ""), count) << '"' << visible << '"';
}

/// Sets variables of the environment for its lifetime.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> variables) : variables_{std::move(variables)} {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> variables_;
};

TEST(LaunchPlan, TakesFlagsFromTheVariablesOfTorchrun) {
  const Variables variables{{{"PET_NNODES", "2"},
                             {"PET_NPROC_PER_NODE", "4"},
                             {"PET_NODE_RANK", "1"},
                             {"PET_MASTER_ADDR", "node0"},
                             {"PET_MASTER_PORT", "4000"},
                             {"PET_ROLE", "trainer"},
                             {"PET_MODULE", "1"},
                             {"PET_STANDALONE", "0"}}};
  const auto plan = plan_of({"--nproc-per-node=3", "package"});
  EXPECT_EQ(plan.num_nodes, 2);
  EXPECT_EQ(plan.ranks_per_node, 3) << "the command line is stronger";
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.master_address, "node0");
  EXPECT_EQ(plan.master_port, 4000);
  EXPECT_EQ(plan.role, "trainer");
  EXPECT_EQ(plan.program, "python3");
}

TEST(LaunchPlan, DoesNotReadTheVariableOfAFlagThatIsGiven) {
  const Variables variables{{{"PET_NPROC_PER_NODE", "many"}, {"PET_STANDALONE", "yes"}, {"PET_ROLE", "trainer"}}};
  const auto plan = plan_of({"--nproc_per_node=3", "--standalone", "train"});
  EXPECT_EQ(plan.ranks_per_node, 3);
  EXPECT_EQ(plan.role, "trainer");
  EXPECT_FALSE(parse_launch(std::vector<std::string>{"--help"}));
  EXPECT_EQ(error_of({"--standalone", "train"}).rfind("PET_NPROC_PER_NODE: \"many\" is not", 0), 0U);
}

TEST(LaunchPlan, ReplacesTheRendezvousSettingsOfTheVariable) {
  const Variables variable{{{"PET_RDZV_CONF", "join_timeout=5,last_call_timeout=1,is_host=true"}}};
  EXPECT_EQ(plan_of({"train"}).join_timeout, std::chrono::seconds{5});
  const auto plan = plan_of({"--rdzv-conf=keep_alive_interval=2", "train"});
  EXPECT_EQ(plan.join_timeout, LaunchPlan{}.join_timeout);
  EXPECT_EQ(plan.last_call, LaunchPlan{}.last_call);
  EXPECT_FALSE(plan.serves_meeting);
  EXPECT_EQ(plan.keep_alive.interval, std::chrono::seconds{2});
  EXPECT_EQ(plan_of({"--rdzv-conf=keep_alive_max_attempt=9", "--rdzv-conf=", "train"}).keep_alive.attempts,
            LaunchPlan{}.keep_alive.attempts);
}

TEST(LaunchPlan, TakesTheNumberOfAnIndexedJobsPod) {
  const Variables pod{{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"JOB_COMPLETION_INDEX", "1"}}};
  const auto plan = plan_of({"--nnodes=2", "--master-addr=node0", "train"});
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.facts_from, "JOB_COMPLETION_INDEX=1");
  EXPECT_EQ(plan_of({"--nnodes=2", "--node-rank=0", "--master-addr=node0", "train"}).node_rank, 0);
  EXPECT_EQ(plan_of({"train"}).node_rank, 0) << "each pod of the job has a run of its own";
  EXPECT_EQ(plan_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "train"}).facts_from, "");
  const Variables given{{{"PET_NODE_RANK", "0"}}};
  EXPECT_EQ(plan_of({"--nnodes=2", "--master-addr=node0", "train"}).node_rank, 0);
  const Variables wrong{{{"JOB_COMPLETION_INDEX", "x"}}};
  ::unsetenv("PET_NODE_RANK");
  EXPECT_EQ(error_of({"--nnodes=2", "--master-addr=node0", "train"}).rfind("JOB_COMPLETION_INDEX: \"x\" is not", 0),
            0U);
}

TEST(LaunchPlan, TakesTheCountsOfPodsOfPyTorchJob) {
  const Variables pod{{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                       {"RANK", "1"},
                       {"WORLD_SIZE", "3"},
                       {"MASTER_ADDR", "job-master-0"},
                       {"MASTER_PORT", "23456"}}};
  const auto plan = plan_of({"--nproc-per-node=4", "train"});
  EXPECT_EQ(plan.num_nodes, 3);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.master_address, "job-master-0");
  EXPECT_EQ(plan.master_port, 23456);
  EXPECT_EQ(plan.facts_from, "WORLD_SIZE=3, RANK=1, MASTER_ADDR=job-master-0, MASTER_PORT=23456");
  EXPECT_EQ(plan_of({"--standalone", "train"}).num_nodes, 1);
  EXPECT_EQ(plan_of({"--nnodes=1", "train"}).num_nodes, 1);
  const Variables rank{{{"LOCAL_RANK", "0"}}};
  EXPECT_EQ(plan_of({"train"}).num_nodes, 1) << "a rank of torchrun in the pod";
}

TEST(LaunchPlan, NamesTheVariableThatItRefuses) {
  const Variables variable{{{"PET_NNODES", "many"}}};
  EXPECT_EQ(error_of({"train"}).rfind("PET_NNODES: \"many\" is not", 0), 0U) << error_of({"train"});
  const Variables flag{{{"PET_NNODES", "1"}, {"PET_STANDALONE", "yes"}}};
  EXPECT_EQ(error_of({"train"}).rfind("PET_STANDALONE: \"yes\" is not 0 or 1", 0), 0U) << error_of({"train"});
}

TEST(LaunchPlan, GivesHelpInsteadOfAPlan) {
  EXPECT_FALSE(parse_launch(std::vector<std::string>{"--help"}));
  EXPECT_FALSE(parse_launch(std::vector<std::string>{"--nproc-per-node=2", "-h", "train"}));
  EXPECT_TRUE(parse_launch(std::vector<std::string>{"train", "--help"}))
      << "--help behind the program belongs to the program";
  EXPECT_NE(launch_help().find("--max-restarts K"), std::string::npos);
  EXPECT_EQ(detail::beside("  --flag", "a b"), "  --flag" + std::string(22, ' ') + "a b\n");
  EXPECT_EQ(
      detail::beside(std::string(30, '-'), std::string(90, 'x') + " y"),
      std::string(30, '-') + '\n' + std::string(30, ' ') + std::string(90, 'x') + '\n' + std::string(30, ' ') + "y\n");
  std::istringstream lines{launch_help()};
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

TEST(LaunchPlan, RefusesWhatItCannotDoByName) {
  EXPECT_NE(error_of({"--rdzv_backend=etcd", "train"}).find("--rdzv-backend: \"etcd\""), std::string::npos);
  for (const char* flag : {"--logs-specs=x", "--event-log-handler=null"})
    EXPECT_NE(error_of({flag, "train"}).find(std::string{flag}.substr(0, 8)), std::string::npos) << flag;
  EXPECT_NE(error_of({"--nproc-per-node=xpu", "train"}).find("--nproc-per-node: \"xpu\""), std::string::npos);
}

TEST(LaunchPlan, RefusesValuesThatMakeNoSense) {
  for (const char* flag : {"--nproc-per-node=0",
                           "--nproc-per-node=-1",
                           "--nproc-per-node=2x",
                           "--nproc-per-node=",
                           "--nproc-per-node=99999999999",
                           "--grace=-1",
                           "--grace=nan",
                           "--grace=inf",
                           "--master-addr=",
                           "--master-addr=[fe80::1",
                           "--master-addr=fe80::1]",
                           "--master-port=0",
                           "--master-port=65536",
                           "--rdzv-id=",
                           "--rdzv-id=../x",
                           "--rdzv-id=a b",
                           "--rdzv-conf=patience=3",
                           "--rdzv-conf=join_timeout=x",
                           "--rdzv-conf=join_timeout=0",
                           "--rdzv-conf=is_host=maybe",
                           "--rdzv-conf=read_timeout",
                           "--rdzv-endpoint=",
                           "--rdzv-endpoint=::1:29400",
                           "--rdzv-endpoint=[::1",
                           "--rdzv-endpoint=[fd00::1]29400",
                           "--rdzv-endpoint=[::1]x:80",
                           "--rdzv-endpoint=a:b",
                           "--rdzv-endpoint=a:65536",
                           "--nnodes=2:",
                           "--nnodes=0:2",
                           "--nnodes=3:2",
                           "--rdzv-conf=last_call_timeout=x",
                           "--rdzv-conf=keep_alive_interval=0",
                           "--rdzv-conf=keep_alive_max_attempt=0",
                           "--role=",
                           "--monitor-interval=x",
                           "--start-method=thread",
                           "--max-restarts=-1",
                           "--log-dir=",
                           "--redirects=4",
                           "--redirects=",
                           "--redirects=0:1,",
                           "--tee=0:4",
                           "--tee=x:1",
                           "--tee=1:33",
                           "--local-ranks-filter=0,x",
                           "--local-ranks-filter=-1",
                           "--numa-binding=core",
                           "--signals-to-handle=SIGKILL",
                           "--signals-to-handle=",
                           "--local-addr=",
                           "--local-addr=192.0.2.1",
                           "--virtual-local-rank=1",
                           "--standalone=yes"}) {
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
  EXPECT_NE(error_of({"--nnodes=1:4", "--master-addr=a", "train"}).find("--nnodes MIN:MAX needs --rdzv-backend c10d"),
            std::string::npos);
  EXPECT_NE(error_of({"--nnodes=2", "train"}).find("--master-addr"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=2", "--rdzv-backend=c10d", "train"}).find("--rdzv-endpoint"), std::string::npos);
  for (const char* backend : {"c10d", "static"})
    EXPECT_NE(error_of({"--nnodes=2", "--rdzv-backend=" + std::string{backend}, "--rdzv-endpoint=[::1]:0", "train"})
                  .find("--rdzv-endpoint with port 0 asks for any free port, which the other machines cannot know"),
              std::string::npos);
  EXPECT_NE(error_of({"--module", "--no-python", "train"}).find("--module and --no-python"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes=40000", "--nproc-per-node=4", "--master-addr=a", "train"}).find("131072 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace ddpxx::launch_plan_test
