// Tests of several agents, which run on this machine as on machines of their own; their ranks are shell scripts.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/launch/agent.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/parse_launch.hpp>

#include "../count_of.hpp"
#include "../held_port.hpp"
#include "../temporary_folder.hpp"
#include "../unused_port.hpp"
#include "started_program.hpp"

namespace agent_group_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A run of several agents, whose ranks write a line to a file when they start, and then run a script.
class Nodes {
 public:
  explicit Nodes(std::string nnodes) : nnodes_{std::move(nnodes)} {}

  /// Starts an agent. The ranks write RANK, WORLD_SIZE, GROUP_RANK, the number of the restart and the token of their
  /// round to a file: where the script calls `tell_start`, or else before it.
  StartedProgram start(const std::string& script, const std::vector<std::string>& more = {}) const {
    return start_ddpxx_run(arguments_of(script, more));
  }
  /// Runs an agent in a process of its own, which is killed at a failpoint.
  void start_and_lose(const std::string& failpoint, const std::string& script,
                      const std::vector<std::string>& more = {}) const {
    const auto arguments = arguments_of(script, more);
    const pid_t agent = ::fork();
    ASSERT_GE(agent, 0);
    if (agent == 0) {
      ::setenv("DDPXX_FAILPOINT", failpoint.c_str(), 1);
      ::_exit(ddpxx::Agent{ddpxx::parse_launch(arguments).value()}.run());
    }
    int status = 0;
    ::waitpid(agent, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
  }
  /// Waits until the first agent serves the meeting, so that its node has number 0.
  static void wait_until_serving(const StartedProgram& agent) {
    agent.wait_for_lines(agent.error_file(), 1);  // it says that it has no token
  }
  /// Waits until a key of the agents' store is set.
  void wait_for_key(const std::string& key) const {
    const auto deadline = ddpxx::JobStoreConnection::Clock::now() + std::chrono::minutes{1};
    ASSERT_TRUE(connect(deadline).wait(std::vector{key}, "", deadline).missing.empty()) << key << " was not set";
  }
  /// Waits until the leading agent knows that the agent with this number is lost: it then removes the key `gone`.
  void wait_for_loss(int number) const {
    using ddpxx::detail::AgentsStore;
    wait_for_key(AgentsStore::key("lost", number));
    const auto deadline = ddpxx::JobStoreConnection::Clock::now() + std::chrono::minutes{1};
    auto store = connect(deadline);
    while (store.check(std::vector{AgentsStore::key("gone")}, deadline)) {
      ASSERT_LT(ddpxx::JobStoreConnection::Clock::now(), deadline) << "the loss was not noticed";
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
  }
  /// Waits until the agent with this number has come.
  void wait_for_agent(int number) const { wait_for_key(ddpxx::detail::AgentsStore::key("agent", number)); }
  /// A script that runs until `finish()`; on SIGTERM it ends like a program that has saved.
  std::string works() const {
    return "trap 'exit 75' TERM; tell_start; until [ -e " + done_.string() + " ]; do sleep 0.02; done";
  }
  void finish() const { std::ofstream{done_}; }

  /// Waits until `count` ranks have started, in all rounds together, while this agent runs.
  void wait_for_starts(const StartedProgram& agent, std::size_t count) const { agent.wait_for_lines(started_, count); }
  /// The lines of the ranks without their tokens, sorted.
  std::vector<std::string> starts() const {
    std::vector<std::string> lines;
    std::istringstream all{StartedProgram::text_of(started_)};
    for (std::string line; std::getline(all, line);) lines.push_back(line.substr(0, line.find(" with")));
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  std::set<std::string> tokens() const {
    std::set<std::string> found;
    std::istringstream all{StartedProgram::text_of(started_)};
    for (std::string line; std::getline(all, line);) found.insert(line.substr(line.find(" with")));
    return found;
  }
  const std::string& endpoint() const { return endpoint_; }
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

 private:
  static constexpr const char* kRunId = "job";

  std::vector<std::string> arguments_of(const std::string& script, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"--nnodes=" + nnodes_, "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint_,
                                       std::string{"--rdzv-id="} + kRunId, "--rdzv-conf=last_call_timeout=600"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto start =
        "tell_start() { echo $RANK of $WORLD_SIZE on $GROUP_RANK after $TORCHELASTIC_RESTART_COUNT with $DDPXX_TOKEN "
        ">> " +
        started_.string() + "; }; " + (script.find("tell_start") == std::string::npos ? "tell_start; " : "");
    for (const auto& word : {std::string{"/bin/bash"}, std::string{"-c"}, start + script}) arguments.push_back(word);
    return arguments;
  }
  ddpxx::JobStoreConnection connect(ddpxx::JobStoreConnection::Time until) const {
    return ddpxx::JobStoreConnection::open("127.0.0.1", port_, {.credentials = {.run_id = kRunId}}, until);
  }

  std::string nnodes_;
  std::uint16_t port_ = unused_port();
  std::string endpoint_ = "127.0.0.1:" + std::to_string(port_);
  TemporaryFolder folder_;
  std::filesystem::path started_ = folder_ / "started", done_ = folder_ / "done";
};

/// Two agents, the first of which leads, after `num_ranks` ranks have started.
struct RunningAgents {
  RunningAgents(const Nodes& nodes, const std::string& script, const std::vector<std::string>& more = {},
                std::size_t num_ranks = 2)
      : first{nodes.start(script, more)}, second{second_of(nodes, first, script, more)} {
    nodes.wait_for_starts(second, num_ranks);
  }
  StartedProgram first, second;

 private:
  static StartedProgram second_of(const Nodes& nodes, const StartedProgram& first, const std::string& script,
                                  const std::vector<std::string>& more) {
    Nodes::wait_until_serving(first);
    return nodes.start(script, more);
  }
};

using Lines = std::vector<std::string>;

TEST(AgentGroup, RestartsTheRanksOfAllNodesTogether) {
  const Nodes nodes{"2"};
  const std::string script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 3 ] && { until [ $(wc -l < " +
                             nodes.file("started").string() +
                             ") = 4 ]; do sleep 0.02; done; kill -9 $$; }; exec sleep 600";
  const std::vector<std::string> more = {"--nproc-per-node=2", "--max-restarts=1"};
  auto first = nodes.start(script, more), second = nodes.start(script, more);
  for (auto* agent : {&first, &second}) {
    const auto end = agent->wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_THAT(end.err, testing::ContainsRegex("ddpxx-run: node 1 \\([^)]+\\), rank 3: Signal 9 \\(SIGKILL\\) .*; "
                                                "restart 1 of 1\n"));
    EXPECT_THAT(end.err, Not(HasSubstr("FAILED")));
  }
  EXPECT_EQ(nodes.starts(),
            (Lines{"0 of 4 on 0 after 0", "0 of 4 on 0 after 1", "1 of 4 on 0 after 0", "1 of 4 on 0 after 1",
                   "2 of 4 on 1 after 0", "2 of 4 on 1 after 1", "3 of 4 on 1 after 0", "3 of 4 on 1 after 1"}));
  EXPECT_EQ(nodes.tokens().size(), 2U) << "all ranks of a round have one token, and the next round has another";
}

TEST(AgentGroup, EndsAllNodesWithTheCodeOfTheFailureAndOneReport) {
  const Nodes nodes{"2"};
  const std::string script = "[ $RANK = 1 ] && { until [ $(wc -l < " + nodes.file("started").string() +
                             ") = $((2 + 2 * TORCHELASTIC_RESTART_COUNT)) ]; do sleep 0.02; done; "
                             "echo out of luck >&2; exit 7; }; exec sleep 600";
  auto first = nodes.start(script, {"--max-restarts=1"}), second = nodes.start(script, {"--max-restarts=1"});
  std::string report, line;
  for (auto* agent : {&first, &second}) {
    const auto end = agent->wait();
    EXPECT_EQ(end.code, 7) << end.err;
    (end.err.find("FAILED") != std::string::npos ? report : line) += end.err;
  }
  EXPECT_EQ(count_of(report, "FAILED"), 1U);
  EXPECT_THAT(report, AllOf(HasSubstr("    out of luck\n"), HasSubstr("rank      : 1"),
                            HasSubstr("the first failure of this run: node 1 ("),
                            HasSubstr("the reported one came after restart 1")));
  EXPECT_THAT(line, testing::ContainsRegex("ddpxx-run: node 1 \\([^)]+\\), rank 1: exit code 7\n$"));
  EXPECT_EQ(nodes.starts().size(), 4U);
}

TEST(AgentGroup, FindsTheCauseAmongAllNodes) {
  const Nodes nodes{"2"};
  // Rank 0 loses its peer first; its agent must not end the cause before the cause has told its error.
  const auto lost = nodes.file("lost").string();
  const std::string script = "[ $RANK = 0 ] && { echo > " + lost + "; exit 5; }; until [ -e " + lost +
                             " ]; do sleep 0.02; done; sleep 0.5; echo a bad sector >&2; exit 4";
  auto first = nodes.start(script), second = nodes.start(script);
  EXPECT_EQ(first.wait().code, 4);
  EXPECT_EQ(second.wait().code, 4);
}

TEST(AgentGroup, DecidesOnceForAllNodesWhetherToRestart) {
  for (const auto& [milestones, code, starts] :
       {std::tuple{"t", 7, 6}, std::tuple{"ts", 7, 10}, std::tuple{"b", 6, 2}, std::tuple{"b", 2, 2}}) {
    const Nodes nodes{"2"};
    // Rank 1 fails when both ranks have written; rank 0, on the other node, reports the milestones.
    const std::string script = std::string{"[ $RANK = 0 ] && { printf "} + milestones +
                               " >&${DDPXX_MILESTONES%%:*}; echo > " + nodes.file("ready").string() +
                               "$TORCHELASTIC_RESTART_COUNT; exec sleep 600; }; printf b >&${DDPXX_MILESTONES%%:*}; "
                               "until [ -e " +
                               nodes.file("ready").string() +
                               "$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.02; done; exit " + std::to_string(code);
    const std::vector<std::string> more = {"--max-restarts=4"};
    auto first = nodes.start(script, more), second = nodes.start(script, more);
    EXPECT_EQ(first.wait().code, code);
    EXPECT_EQ(second.wait().code, code);
    EXPECT_EQ(nodes.starts().size(), static_cast<std::size_t>(starts)) << milestones << ' ' << code;
  }
}

TEST(AgentGroup, StopsAllNodesWhenASignalReachesOne) {
  for (const bool is_leader : {false, true})
    for (const bool saves : {true, false}) {
      const Nodes nodes{"2"};
      const auto script = saves ? nodes.works() : "exec sleep 600";
      RunningAgents agents{nodes, script};
      auto& [first, second] = agents;
      (is_leader ? first : second).signal(SIGTERM);
      for (auto* agent : {&first, &second}) {
        const auto end = agent->wait();
        EXPECT_EQ(end.code, saves ? 75 : 128 + SIGTERM) << end.err;
        EXPECT_THAT(end.err, Not(HasSubstr("FAILED")));
      }
    }
}

TEST(AgentGroup, PassesOnASignalToAnAgentWhoseRanksHaveEnded) {
  const Nodes nodes{"2"};
  const auto script =
      "[ $RANK = 1 ] && { tell_start; echo > " + nodes.file("ended").string() + "; exit 0; }; " + nodes.works();
  RunningAgents agents{nodes, script};
  auto& [first, second] = agents;
  second.wait_for_lines(nodes.file("ended"), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs the agent has noticed the end by then
  second.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 75);
  EXPECT_EQ(second.wait().code, 75);
}

TEST(AgentGroup, PassesOnAWarningThatIsToEndTheRun) {
  const Nodes nodes{"2"};
  const auto script = "[ $RANK = 1 ] && { tell_start; echo > " + nodes.file("ended").string() +
                      "; exit 0; }; trap 'exit 75' USR1; tell_start; " + "until [ -e " + nodes.file("never").string() +
                      " ]; do sleep 0.02; done";
  const std::vector<std::string> more = {"--signals-to-handle=SIGTERM,SIGUSR1"};
  RunningAgents agents{nodes, script, more};
  auto& [first, second] = agents;
  second.wait_for_lines(nodes.file("ended"), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs the agent has noticed the end by then
  second.signal(SIGUSR1);
  EXPECT_EQ(first.wait().code, 75);
  EXPECT_EQ(second.wait().code, 75);
}

TEST(AgentGroup, EndsAllNodesWhenAWarningHasEndedTheRanksOfOne) {
  for (const bool is_leader : {true, false}) {
    const Nodes nodes{"2"};
    RunningAgents agents{nodes, "exec sleep 600", {"--grace=1"}};
    auto& [first, second] = agents;
    (is_leader ? first : second).signal(SIGUSR1);
    EXPECT_EQ(first.wait(std::chrono::seconds{30}).code, 128 + SIGUSR1) << "to the leader: " << is_leader;
    EXPECT_EQ(second.wait(std::chrono::seconds{30}).code, 128 + SIGUSR1) << "to the leader: " << is_leader;
  }
}

TEST(AgentGroup, PassesOnASignalAfterASigintThatTheProgramsIgnore) {
  for (const bool is_leader : {true, false}) {
    const Nodes nodes{"2"};
    RunningAgents agents{nodes, "trap '' INT; " + nodes.works(), {"--grace=600"}};
    auto& [first, second] = agents;
    (is_leader ? first : second).signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs all agents have heard of it by then
    (is_leader ? first : second).signal(SIGTERM);
    EXPECT_EQ(first.wait(std::chrono::seconds{30}).code, 75) << "to the leader: " << is_leader;
    EXPECT_EQ(second.wait(std::chrono::seconds{30}).code, 75) << "to the leader: " << is_leader;
  }
}

TEST(AgentGroup, RestartsAlthoughAWarningReachesAnAgentWhoseRanksHaveEnded) {
  for (const bool is_leader : {true, false}) {
    const Nodes nodes{"2"};
    const auto ended = nodes.file("ended"), fails = nodes.file("fails");
    // The rank of the agent that gets the warning ends first; the other one fails after the warning.
    const std::string script =
        std::string{
            "tell_start; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && { sleep 0.3; exit 0; }; "
            "[ $RANK = "} +
        (is_leader ? "0" : "1") + " ] && { echo > " + ended.string() + "; exit 0; }; until [ -e " + fails.string() +
        " ]; do sleep 0.02; done; exit 1";
    auto first = nodes.start(script, {"--max-restarts=1"});
    Nodes::wait_until_serving(first);
    auto second = nodes.start(script, {"--max-restarts=1"});
    (is_leader ? first : second).wait_for_lines(ended, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs the agent has noticed the end by then
    (is_leader ? first : second).signal(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds{100});  // in most runs the agent has read the signal by then
    std::ofstream{fails};
    EXPECT_EQ(first.wait().code, 0) << "the warning reached the leader: " << is_leader;
    EXPECT_EQ(second.wait().code, 0) << "the warning reached the leader: " << is_leader;
    EXPECT_EQ(nodes.starts().size(), 4U);
  }
}

TEST(AgentGroup, WaitsForTheOtherNodesAlthoughAWarningComes) {
  const Nodes nodes{"2"};
  auto first = nodes.start("exit 0");
  Nodes::wait_until_serving(first);
  first.signal(SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs the agent has read the signal by then
  auto second = nodes.start("exit 0");
  const auto end = first.wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("SIGUSR1 came while no rank runs on this machine; it has no effect"));
  EXPECT_EQ(second.wait().code, 0);
}

TEST(AgentGroup, HearsASignalWhileAllWaitToRestart) {
  const Nodes nodes{"2"};
  const std::string script = "[ $TORCHELASTIC_RESTART_COUNT = 5 ] && exec sleep 600; exit 1";
  auto first = nodes.start(script, {"--max-restarts=1000"});
  Nodes::wait_until_serving(first);
  auto second = nodes.start(script, {"--max-restarts=1000"});
  // After the fifth failure there is a pause of two seconds; the agent that decides has said five times why it
  // restarts.
  first.wait_for_lines(first.error_file(), 6);
  second.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 128 + SIGTERM);
  EXPECT_EQ(second.wait().code, 128 + SIGTERM);
}

TEST(AgentGroup, GoesOnWithoutALostNodeAndTakesItInAgain) {
  const Nodes nodes{"1:2"};
  const std::vector<std::string> two = {"--nproc-per-node=2"};
  auto first = nodes.start(nodes.works(), two);
  Nodes::wait_until_serving(first);
  {
    const auto second = nodes.start(nodes.works(), two);
    nodes.wait_for_starts(second, 4);
  }  // SIGKILL; its guardian ends its ranks
  nodes.wait_for_starts(first, 6);
  auto third = nodes.start(nodes.works(), two);
  nodes.wait_for_starts(third, 10);
  nodes.finish();
  const auto end = first.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(third.wait().code, 0);
  EXPECT_THAT(end.err, AllOf(testing::ContainsRegex("node 1 \\([^)]+\\) is lost: .*; the others go on\n"),
                             HasSubstr("ddpxx-run: another node has come\n")));
  EXPECT_EQ(nodes.starts(),
            (Lines{"0 of 2 on 0 after 0", "0 of 4 on 0 after 0", "0 of 4 on 0 after 0", "1 of 2 on 0 after 0",
                   "1 of 4 on 0 after 0", "1 of 4 on 0 after 0", "2 of 4 on 1 after 0", "2 of 4 on 1 after 0",
                   "3 of 4 on 1 after 0", "3 of 4 on 1 after 0"}));
  EXPECT_EQ(nodes.tokens().size(), 3U) << "the ranks of each round have a store of their own";
}

// The second agent is stopped, so that it has not begun the round when it is killed.
TEST(AgentGroup, GoesOnWithoutANodeThatIsLostBeforeItBeginsTheFirstRound) {
  const Nodes nodes{"1:3"};
  auto first = nodes.start(nodes.works());
  Nodes::wait_until_serving(first);
  const auto second = nodes.start(nodes.works());
  nodes.wait_for_agent(1);
  second.stop();
  auto third = nodes.start(nodes.works());
  nodes.wait_for_starts(third, 2);
  second.signal(SIGKILL);
  nodes.wait_for_starts(third, 4);
  nodes.finish();
  const auto end = first.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, testing::ContainsRegex("node 1 \\([^)]+\\) is lost: .*; the others go on\n"));
  EXPECT_EQ(third.wait().code, 0);
  EXPECT_EQ(nodes.starts(),
            (Lines{"0 of 2 on 0 after 0", "0 of 3 on 0 after 0", "1 of 2 on 1 after 0", "2 of 3 on 2 after 0"}));
}

// The second agent is stopped, so that it has not begun the round when it is killed.
TEST(AgentGroup, EndsAllNodesWhenAnAgentIsKilledBeforeItBeginsTheFirstRound) {
  const Nodes nodes{"3"};
  auto first = nodes.start(nodes.works());
  Nodes::wait_until_serving(first);
  const auto second = nodes.start(nodes.works());
  nodes.wait_for_agent(1);
  second.stop();
  auto third = nodes.start(nodes.works());
  nodes.wait_for_starts(third, 2);
  second.signal(SIGKILL);
  for (auto* agent : {&first, &third}) {
    const auto end = agent->wait(std::chrono::seconds{60});
    EXPECT_EQ(end.code, 5);
    EXPECT_THAT(end.err, testing::ContainsRegex("ddpxx-run: node 1 \\([^)]+\\) is lost: "));
  }
}

TEST(AgentGroup, GoesOnWithoutANodeThatIsLostRightAfterItHasTakenItsNumber) {
  const Nodes nodes{"3"};
  auto first = nodes.start("exit 0");
  Nodes::wait_until_serving(first);
  nodes.start_and_lose("agent.after_number:kill", "exit 0");
  auto third = nodes.start("exit 0"), fourth = nodes.start("exit 0");
  for (auto* agent : {&first, &third, &fourth}) EXPECT_EQ(agent->wait(std::chrono::seconds{60}).code, 0);
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 3 on 0 after 0", "1 of 3 on 1 after 0", "2 of 3 on 2 after 0"}));
}

TEST(AgentGroup, EndsWhenANodeWithAFixedNumberIsLostRightAfterItHasTakenIt) {
  const Nodes nodes{"3"};
  const std::vector<std::string> by_number = {"--rdzv-backend=static", "--rdzv-conf=join_timeout=300"};
  auto of_rank = [&](int rank) {
    auto more = by_number;
    more.push_back("--node-rank=" + std::to_string(rank));
    return more;
  };
  auto first = nodes.start("exit 0", of_rank(0));
  Nodes::wait_until_serving(first);
  nodes.start_and_lose("agent.after_number:kill", "exit 0", of_rank(1));
  const auto end = first.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, HasSubstr("and ended before all had come"));
}

// A spare agent is stopped, so that it has not begun its round when it is killed.
TEST(AgentGroup, GoesOnWithoutASpareNodeThatIsLostBeforeItBeginsItsRound) {
  const Nodes nodes{"1:2"};
  RunningAgents agents{nodes, nodes.works()};
  auto& [first, second] = agents;
  const auto spare = nodes.start(nodes.works());
  spare.wait_for_lines(spare.error_file(), 1);  // it says that it waits until a node is lost
  spare.stop();
  second.signal(SIGKILL);
  nodes.wait_for_starts(first, 3);
  spare.signal(SIGKILL);
  nodes.wait_for_starts(first, 4);
  nodes.finish();
  const auto end = first.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(nodes.starts(),
            (Lines{"0 of 1 on 0 after 0", "0 of 2 on 0 after 0", "0 of 2 on 0 after 0", "1 of 2 on 1 after 0"}));
}

// An agent ends the round of the others two seconds after it has told that a rank has failed; this one is killed
// before.
TEST(AgentGroup, GoesOnWithoutANodeThatIsLostAfterItHasToldAFailure) {
  const Nodes nodes{"1:2"};
  const auto started = nodes.file("started").string(), never = nodes.file("never").string();
  const auto script = "tell_start; [ $RANK = 1 ] && { until [ $(wc -l < " + started +
                      ") = 2 ]; do sleep 0.02; done; exit 1; }; [ $WORLD_SIZE = 1 ] && exit 0; until [ -e " + never +
                      " ]; do sleep 0.02; done";
  auto first = nodes.start(script);
  Nodes::wait_until_serving(first);
  nodes.start_and_lose("agent.after_result:kill", script);
  const auto end = first.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 1 on 0 after 0", "0 of 2 on 0 after 0", "1 of 2 on 1 after 0"}));
}

// The rank of the second agent ends well, and its agent is killed while the rank of the first one still works.
TEST(AgentGroup, LetsTheOtherRanksEndWhenANodeIsLostWhoseRanksHaveEndedWell) {
  const Nodes nodes{"1:2"};
  const auto script = "[ $RANK = 1 ] && { tell_start; exit 0; }; " + nodes.works();
  auto first = nodes.start(script);
  Nodes::wait_until_serving(first);
  nodes.start_and_lose("agent.after_result:kill", script);
  nodes.wait_for_loss(1);
  nodes.finish();
  const auto end = first.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.err.find("is lost"), std::string::npos) << end.err;
}

// After a signal, the rank of the second agent ends by it, and that agent is killed while rank 0 saves. A second
// SIGTERM would end rank 0 before it has saved.
TEST(AgentGroup, LetsTheOtherRanksSaveWhenANodeIsLostWhoseRanksWereAskedToStop) {
  const Nodes nodes{"2"};
  const auto asked = nodes.file("asked"), saved = nodes.file("saved");
  const auto script = "[ $RANK = 1 ] && { tell_start; exec sleep 600; }; stop() { trap 'exit 1' TERM; echo > " +
                      asked.string() + "; until [ -e " + saved.string() +
                      " ]; do sleep 0.02; done; exit 75; }; trap stop TERM; tell_start; while :; do sleep 0.02; done";
  RunningAgents agents{nodes, script, {"--grace=600"}};
  auto& [first, second] = agents;
  first.signal(SIGTERM);
  first.wait_for_lines(asked, 1);
  nodes.wait_for_key(ddpxx::detail::AgentsStore::key("result", 0, 1));
  second.signal(SIGKILL);
  nodes.wait_for_loss(1);
  std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs a second SIGTERM would have come by then
  std::ofstream{saved};
  const auto end = first.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 128 + SIGTERM) << end.err;
}

// The agent whose ranks have ended at once must not end those of the other one, which save for longer than the time in
// which the cause of a failure may show.
TEST(AgentGroup, LetsEachNodeSaveInItsTimeWhenAnotherNodeComes) {
  const Nodes nodes{"2:3"};
  const auto saved = nodes.file("saved");
  const auto script = "[ $RANK = 0 ] && trap 'sleep 2.6 && echo > " + saved.string() +
                      "; exit 75' TERM; tell_start; until [ -e " + nodes.file("done").string() +
                      " ]; do sleep 0.02; done";
  const std::vector<std::string> more = {"--rdzv-conf=last_call_timeout=0"};
  RunningAgents agents{nodes, script, more};
  auto& [first, second] = agents;
  auto third = nodes.start(script, more);
  nodes.wait_for_starts(third, 5);
  EXPECT_TRUE(std::filesystem::exists(saved)) << "rank 0 was ended before it had saved";
  nodes.finish();
  for (auto* agent : {&first, &second, &third}) EXPECT_EQ(agent->wait().code, 0);
}

TEST(AgentGroup, NumbersTheNodesAnewWhenOneIsLost) {
  const Nodes nodes{"1:3"};
  auto first = nodes.start(nodes.works());
  Nodes::wait_until_serving(first);
  auto second = nodes.start(nodes.works());
  auto third = nodes.start(nodes.works());
  nodes.wait_for_starts(third, 3);
  second.signal(SIGKILL);
  nodes.wait_for_starts(third, 5);
  nodes.finish();
  EXPECT_EQ(first.wait().code, 0);
  EXPECT_EQ(third.wait().code, 0);
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 2 on 0 after 0", "0 of 3 on 0 after 0", "1 of 2 on 1 after 0",
                                   "1 of 3 on 1 after 0", "2 of 3 on 2 after 0"}));
}

TEST(AgentGroup, EndsWithTheReasonWhenANodeOfAFixedNumberIsLost) {
  const Nodes nodes{"2"};
  const std::vector<std::string> more = {"--max-restarts=9"};
  auto first = nodes.start(nodes.works(), more);
  Nodes::wait_until_serving(first);
  {
    const auto second = nodes.start(nodes.works(), more);
    nodes.wait_for_starts(second, 2);
  }
  const auto end = first.wait();
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, testing::ContainsRegex("ddpxx-run: node 1 \\([^)]+\\) is lost: its agent has ended, hangs or "
                                              "cannot be reached; 1 node is left, and --nnodes asks for at least 2\n"));
  EXPECT_EQ(nodes.starts().size(), 2U);
}

void wait_for_line(const StartedProgram& agent, const std::string& line) {
  agent.wait_until([&] { return StartedProgram::text_of(agent.error_file()).find(line) != std::string::npos; }, line);
}

/// A run of "3:4" of which one node is lost; the two others wait for another one.
struct TooFewAgents {
  explicit TooFewAgents(const Nodes& nodes, const std::string& join_timeout = "300")
      : more{"--rdzv-conf=last_call_timeout=0,join_timeout=" + join_timeout}, agents{nodes, nodes.works(), more, 0} {
    {
      const auto third = nodes.start(nodes.works(), more);
      nodes.wait_for_starts(third, 3);
    }  // it is lost
    wait_for_line(agents.first, "waiting for another node");
  }
  std::vector<std::string> more;
  RunningAgents agents;
};

TEST(AgentGroup, WaitsForAnotherNodeWhereTooFewAreLeft) {
  const Nodes nodes{"3:4"};
  TooFewAgents waiting{nodes};
  EXPECT_EQ(nodes.starts().size(), 3U);
  auto fourth = nodes.start(nodes.works(), waiting.more);
  nodes.wait_for_starts(fourth, 6);
  nodes.finish();
  for (auto* agent : {&waiting.agents.first, &waiting.agents.second, &fourth}) {
    const auto end = agent->wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 3 on 0 after 0", "0 of 3 on 0 after 0", "1 of 3 on 1 after 0",
                                   "1 of 3 on 1 after 0", "2 of 3 on 2 after 0", "2 of 3 on 2 after 0"}));
}

TEST(AgentGroup, EndsWhereNoOtherNodeComesInTime) {
  const Nodes nodes{"3:4"};
  TooFewAgents waiting{nodes, "10"};  // a busy machine needs some of it for the first meeting
  for (auto* agent : {&waiting.agents.first, &waiting.agents.second}) {
    const auto end = agent->wait(std::chrono::seconds{60});
    EXPECT_EQ(end.code, 5);
    EXPECT_THAT(end.err, HasSubstr("2 nodes are there, and --nnodes asks for at least 3: too few came to tcp://" +
                                   nodes.endpoint() + " within 10 s (--rdzv-conf join_timeout). Start ddpxx-run on "));
  }
  EXPECT_EQ(nodes.starts().size(), 3U);
}

TEST(AgentGroup, EndsByASignalWhileItWaitsForAnotherNode) {
  for (const bool is_leader : {false, true}) {
    const Nodes nodes{"3:4"};
    TooFewAgents waiting{nodes};
    auto& [first, second] = waiting.agents;
    (is_leader ? first : second).signal(SIGTERM);
    for (auto* agent : {&first, &second}) {
      const auto end = agent->wait(std::chrono::seconds{60});
      EXPECT_EQ(end.code, 128 + SIGTERM) << end.err;
    }
    EXPECT_EQ(nodes.starts().size(), 3U);
  }
}

TEST(AgentGroup, KeepsWaitingWhereAnotherNodeIsLostAsWell) {
  const Nodes nodes{"3:4"};
  TooFewAgents waiting{nodes};
  waiting.agents.second.signal(SIGKILL);
  nodes.wait_for_key(ddpxx::detail::AgentsStore::key("lost", 1));
  auto fourth = nodes.start(nodes.works(), waiting.more);
  wait_for_line(fourth, "too few nodes of the run are there; waiting for more");
  auto fifth = nodes.start(nodes.works(), waiting.more);
  nodes.wait_for_starts(fourth, 6);
  nodes.finish();
  for (auto* agent : {&waiting.agents.first, &fourth, &fifth}) EXPECT_EQ(agent->wait().code, 0);
}

TEST(AgentGroup, BeginsWithoutTheMissingNodesAfterTheLastCall) {
  const Nodes nodes{"2:3"};  // the last call begins when the second one has come
  const std::vector<std::string> more = {"--rdzv-conf=last_call_timeout=0.3"};
  auto first = nodes.start("exit 0", more);
  Nodes::wait_until_serving(first);
  auto second = nodes.start("exit 0", more);
  EXPECT_EQ(first.wait().code, 0);
  EXPECT_EQ(second.wait().code, 0);
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 2 on 0 after 0", "1 of 2 on 1 after 0"}));
}

TEST(AgentGroup, KeepsANodeThatComesToAFullRunUntilOneIsLost) {
  const Nodes nodes{"1:2"};
  RunningAgents agents{nodes, nodes.works()};
  auto& [first, second] = agents;
  auto spare = nodes.start(nodes.works());
  spare.wait_for_lines(spare.error_file(), 1);
  EXPECT_EQ(nodes.starts().size(), 2U) << "the run must not be disturbed";
  second.signal(SIGKILL);
  nodes.wait_for_starts(spare, 4);
  nodes.finish();
  EXPECT_EQ(first.wait().code, 0);
  const auto end = spare.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.err, HasSubstr("the run has all of its 2 nodes; waiting until one is lost"));
  EXPECT_EQ(nodes.starts(),
            (Lines{"0 of 2 on 0 after 0", "0 of 2 on 0 after 0", "1 of 2 on 1 after 0", "1 of 2 on 1 after 0"}));
}

TEST(AgentGroup, RefusesALateNodeWithOtherFlagsAndGoesOn) {
  const Nodes nodes{"1:2"};
  const std::vector<std::string> now = {"--rdzv-conf=last_call_timeout=0"};
  auto first = nodes.start(nodes.works(), now);
  Nodes::wait_until_serving(first);
  nodes.wait_for_starts(first, 1);
  const auto other = nodes.start(nodes.works(), {"--nproc-per-node=3"}).wait();
  EXPECT_EQ(other.code, 5);
  EXPECT_THAT(other.err, HasSubstr("give all nodes the same --nproc-per-node"));
  nodes.finish();
  const auto end = first.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(nodes.starts().size(), 1U) << "the ranks must not be stopped for it: " << end.err;
}

TEST(AgentGroup, RefusesALateNodeThatCountsOtherNodesAndGoesOn) {
  const Nodes nodes{"2"};
  RunningAgents agents{nodes, nodes.works()};
  auto& [first, second] = agents;
  const auto other = nodes.start(nodes.works(), {"--nnodes=3"}).wait();
  EXPECT_EQ(other.code, 5);
  EXPECT_THAT(other.err, HasSubstr("was started for 3 nodes, but node 0 for 2: give all nodes the same --nnodes"));
  nodes.finish();
  for (auto* agent : {&first, &second}) EXPECT_EQ(agent->wait().code, 0);
  EXPECT_EQ(nodes.starts().size(), 2U) << "the ranks must not be stopped for it";
}

TEST(AgentGroup, ForgetsAnAgentThatEndsBeforeTheRunBegins) {
  const Nodes nodes{"3"};
  auto first = nodes.start("exit 0");
  Nodes::wait_until_serving(first);
  auto second = nodes.start("exit 0");
  nodes.wait_for_agent(1);
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait().code, 128 + SIGTERM);
  auto third = nodes.start("exit 0"), fourth = nodes.start("exit 0");
  for (auto* agent : {&first, &third, &fourth}) EXPECT_EQ(agent->wait().code, 0);
  EXPECT_EQ(nodes.starts(), (Lines{"0 of 3 on 0 after 0", "1 of 3 on 1 after 0", "2 of 3 on 2 after 0"}));
}

TEST(AgentGroup, EndsAllWhenTheAgentThatLeadsCannotStartItsRanks) {
  const Nodes nodes{"2"};
  auto first = nodes.start(nodes.works(), {"--log-dir=/proc/logs"});
  Nodes::wait_until_serving(first);
  const auto second = nodes.start(nodes.works()).wait();
  EXPECT_EQ(first.wait().code, 4);
  EXPECT_EQ(second.code, 4);
  EXPECT_THAT(second.err, HasSubstr("cannot make /proc/logs"));
}

// The first agent leads the run, and hears of the second SIGINT by the store.
TEST(AgentGroup, EndsAtOnceAtTheSecondSigint) {
  for (const bool passed_on : {false, true}) {  // whether the first SIGINT has come to the other agent
    const Nodes nodes{"2"};
    const std::string script = "trap '' INT TERM; tell_start; while :; do sleep 0.05; done";
    auto first = nodes.start(script, {"--grace=2"});
    Nodes::wait_until_serving(first);
    auto second = nodes.start(script, {"--grace=600"});
    nodes.wait_for_starts(second, 2);
    (passed_on ? first : second).signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds{1'300});
    EXPECT_EQ(second.wait_while_signalling(SIGINT).code, 128 + SIGINT);
    EXPECT_EQ(first.wait(std::chrono::seconds{60}).code, 128 + SIGINT);
  }
}

TEST(AgentGroup, KillsAllRanksAtTheSecondSigintOfTheLeadingAgent) {
  const Nodes nodes{"2"};
  const std::string script = "trap '' INT TERM; tell_start; while :; do sleep 0.05; done";
  RunningAgents agents{nodes, script, {"--grace=600"}};
  auto& [first, second] = agents;
  EXPECT_EQ(first.wait_while_signalling(SIGINT).code, 128 + SIGINT);
  const auto end = second.wait(std::chrono::seconds{60});
  EXPECT_EQ(end.code, 128 + SIGINT) << end.err;
}

TEST(AgentGroup, KillsAllRanksAtTheSecondSigintOfAnAgentWhoseRanksHaveEnded) {
  for (const bool by_the_first : {true, false}) {  // whether its rank ends by the first SIGINT, or before it
    const Nodes nodes{"2"};
    const std::string waits = "tell_start; while :; do sleep 0.05; done";
    const auto script = "[ $RANK = 1 ] && { " + (by_the_first ? "trap 'exit 130' INT; " + waits : "tell_start; exit") +
                        "; }; trap '' INT TERM; " + waits;
    RunningAgents agents{nodes, script, {"--grace=600"}};
    auto& [first, second] = agents;
    std::this_thread::sleep_for(std::chrono::milliseconds{300});  // in most runs a rank that exits has ended by then
    EXPECT_EQ(second.wait_while_signalling(SIGINT).code, 128 + SIGINT);
    const auto end = first.wait(std::chrono::seconds{60});
    EXPECT_EQ(end.code, 128 + SIGINT) << end.err;
  }
}

/// Waits for the end of an agent whose leading agent hangs.
void expect_leader_loss(const Nodes& nodes, StartedProgram& agent) {
  const auto end = agent.wait(std::chrono::seconds{90});
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, HasSubstr("ddpxx-run: the launcher of node 0, which serves the meeting at tcp://" +
                                 nodes.endpoint() + ", has ended or cannot be reached"));
}

// The store of a leading agent that is stopped does not answer for as long as a request may take, 30 s.
TEST(AgentGroup, EndsItsOwnRanksFirstWhereTheLeadingAgentHangs) {
  const auto expect_end = [](bool by_signal) {
    SCOPED_TRACE(by_signal ? "by a signal" : "by a rank that fails");
    const Nodes nodes{"2"};
    const auto ended = nodes.file("ended"), fails = nodes.file("fails");
    const std::string script = "trap 'echo >> " + ended.string() +
                               "' TERM; tell_start; while :; do sleep 0.05; [ $RANK = 3 ] && [ -e " + fails.string() +
                               " ] && kill -9 $$; done";
    const std::vector<std::string> more = {"--nproc-per-node=2"};
    RunningAgents agents{nodes, script, more, 4};
    auto& [first, second] = agents;
    first.stop();
    if (by_signal)
      second.signal(SIGTERM);
    else
      std::ofstream{fails};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{15};
    while (!std::filesystem::exists(ended) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    EXPECT_TRUE(std::filesystem::exists(ended)) << "the ranks did not get SIGTERM";
    expect_leader_loss(nodes, second);
  };
  const auto expect_end_after_its_ranks = [] {
    const Nodes nodes{"2"};
    RunningAgents agents{nodes, "tell_start; [ $RANK = 1 ] && exit 0; exec sleep 600"};
    nodes.wait_for_key(ddpxx::detail::AgentsStore::key("result", 0, 1));
    std::this_thread::sleep_for(std::chrono::seconds{1});  // its agent waits for the other one by then
    agents.first.stop();
    agents.second.signal(SIGTERM);
    expect_leader_loss(nodes, agents.second);
  };
  auto other = std::async(std::launch::async, expect_end, true);  // all at once, since each takes 30 s
  auto third = std::async(std::launch::async, expect_end_after_its_ranks);
  expect_end(false);
  other.get();
  third.get();
}

TEST(AgentGroup, NamesTheNodeForWhoseRanksItWaits) {
  const Nodes nodes{"2"};
  RunningAgents agents{nodes, "[ $RANK = 1 ] || { tell_start; exit 0; }; " + nodes.works()};
  auto& [first, second] = agents;
  first.wait_for_lines(first.error_file(), 2);  // the first one says that it has no token
  nodes.finish();
  const auto end = first.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.err, HasSubstr("the ranks of this node have ended; waiting for those of node 1 ("));
  EXPECT_EQ(second.wait().code, 0);
}

TEST(AgentGroup, RefusesAnImpossibleBindingBeforeItMeetsTheOthers) {
  const auto end = Nodes{"2"}.start("exit 0", {"--nproc-per-node=4096", "--numa-binding=exclusive"}).wait();
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("--numa-binding exclusive: NUMA node "));
}

// Two agents that start at the same moment may refuse the port to each other. A socket that has the port and does not
// listen stands for this moment.
TEST(AgentGroup, ServesTheMeetingOnceThePortIsFree) {
  HeldPort port;
  const auto endpoint = "127.0.0.1:" + std::to_string(port.number());
  const auto start = [&] {
    return start_ddpxx_run({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint, "true"});
  };
  auto first = start(), second = start();
  std::this_thread::sleep_for(std::chrono::seconds{1});  // in most runs both have tried to serve by then
  port.release();
  for (auto* agent : {&first, &second}) {
    const auto end = agent->wait(std::chrono::seconds{60});
    EXPECT_EQ(end.code, 0) << end.err;
  }
}

TEST(AgentGroup, SaysWhyNoAgentCanServeTheMeeting) {
  if (StartedProgram::text_of("/proc/sys/net/ipv4/ip_unprivileged_port_start") == "0\n")
    GTEST_SKIP() << "every user of this machine may listen at every port";
  std::vector<std::string> command;
  if (::geteuid() == 0) command = {"/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all"};
  for (const auto& word :
       {program_folder() + "/ddpxx-run", std::string{"--nnodes=2"}, std::string{"--rdzv-backend=c10d"},
        std::string{"--rdzv-endpoint=127.0.0.1:1"}, std::string{"--rdzv-conf=join_timeout=2"}, std::string{"true"}})
    command.push_back(word);
  const auto end = StartedProgram{std::move(command)}.wait();
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, AllOf(HasSubstr("no answer at tcp://127.0.0.1:1: "),
                             HasSubstr("; this agent does not serve the meeting itself: cannot listen at "
                                       "tcp://127.0.0.1:1: Permission denied")));
}

TEST(AgentGroup, EndsWithASentenceWhenTheAgentThatServesTheMeetingIsLost) {
  const Nodes nodes{"1:2"};
  const auto number = nodes.file("number");
  const auto script = "[ $RANK = 1 ] && echo $$ > " + number.string() + "; exec sleep 600";
  RunningAgents agents{nodes, script};
  auto& [first, second] = agents;
  second.wait_for_lines(number, 1);
  first.signal(SIGKILL);
  const auto end = second.wait();
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, HasSubstr("ddpxx-run: the launcher of node 0, which serves the meeting at tcp://" +
                                 nodes.endpoint() + ", has ended or cannot be reached"));
  const auto rank = StartedProgram::text_of(number);
  EXPECT_FALSE(std::filesystem::exists("/proc/" + rank.substr(0, rank.find('\n')))) << "its ranks must end first";
}

}  // namespace
}  // namespace agent_group_test
