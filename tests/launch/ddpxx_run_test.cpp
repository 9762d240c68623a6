// Tests of the whole launcher: real processes, run by a shell.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/plan/cpu_topology.hpp>

#include "../count_of.hpp"
#include "../temporary_folder.hpp"
#include "../terminal.hpp"
#include "../unused_port.hpp"
#include "started_program.hpp"

namespace ddpxx_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream{text};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// Whether the process has ended and the launcher has waited for it, so that not even a zombie is left.
bool is_gone(const std::string& pid) { return !std::filesystem::exists("/proc/" + pid); }

/// Whether the command line of a process contains the text; that of a zombie is empty.
bool is_in_a_command_line(const std::string& text) {
  for (const auto& process : std::filesystem::directory_iterator{"/proc"})
    if (StartedProgram::text_of(process.path() / "cmdline").find(text) != std::string::npos) return true;
  return false;
}

/// Waits for the end of a process that is not a child of this test, and fails if it still runs after two minutes. It
/// may stay a zombie, where no init process waits for it.
void wait_for_end_of(const std::string& pid) {
  const auto runs = [&] {
    return !is_gone(pid) && StartedProgram::text_of("/proc/" + pid + "/stat").find(") Z ") == std::string::npos;
  };
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{2};
  while (runs() && std::chrono::steady_clock::now() < latest)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  EXPECT_FALSE(runs()) << "process " << pid << " still runs";
}

TEST(DdpxxRun, EndsWithZeroWhenAllRanksDo) {
  const auto run = ddpxx_run({"--standalone", "--nproc-per-node", "3", "/bin/sh", "-c", "exit 0"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out + run.err, "");
}

TEST(DdpxxRun, PrefixesEachLineWithItsRankAndKeepsOutputsApart) {
  const auto run =
      ddpxx_run({"--nproc_per_node=2", "sh", "-c", "echo out $RANK; echo err $RANK >&2; printf 'cut %s' $LOCAL_RANK"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(sorted_lines(run.out),
            (std::vector<std::string>{"[rank0]: cut 0", "[rank0]: out 0", "[rank1]: cut 1", "[rank1]: out 1"}));
  EXPECT_EQ(sorted_lines(run.err), (std::vector<std::string>{"[rank0]: err 0", "[rank1]: err 1"}));
}

TEST(DdpxxRun, LeavesTheLinesOfALoneRankAlone) {
  EXPECT_EQ(ddpxx_run({"sh", "-c", "echo \"$0|$1\"", "a b", "--nnodes=3"}).out, "a b|--nnodes=3\n");
}

TEST(DdpxxRun, NeverCutsIntoALine) {
  const std::string writer =
      "i=0; l=$(printf \"%04000d\" 0 | tr 0 $RANK); while [ $i -lt 50 ]; do echo $l$l; i=$((i+1)); done";
  const auto run = ddpxx_run({"--nproc-per-node=3", "sh", "-c", writer});
  const auto lines = sorted_lines(run.out);
  ASSERT_EQ(lines.size(), 150U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string rank = std::to_string(i / 50);
    EXPECT_EQ(lines[i], "[rank" + rank + "]: " + std::string(8'000, rank[0]));
  }
}

TEST(DdpxxRun, ShowsTheStatesOfAProgressBarWhileItsLineHasNotEnded) {
  const TemporaryFolder folder;
  const auto shown = folder / "shown", out = folder / "out";
  StartedProgram run{{"/bin/sh", "-c",
                      program_folder() + "/ddpxx-run --nproc-per-node=2 sh -c '[ $RANK = 0 ] && exit; " +
                          "printf \"\\r 10%%\\r 20%%\"; until [ -e " + shown.string() +
                          " ]; do sleep 0.02; done; printf \"\\r100%%\\n\"' > " + out.string()}};
  run.wait_until([&] { return !StartedProgram::text_of(out).empty(); }, "the first output");
  EXPECT_EQ(StartedProgram::text_of(out), "[rank1]: \r[rank1]:  10%\r");
  std::this_thread::sleep_for(std::chrono::milliseconds{250});  // longer than the least time between two states
  folder.file("shown", "");
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_EQ(StartedProgram::text_of(out), "[rank1]: \r[rank1]:  10%\r[rank1]:  20%\r[rank1]: 100%\n");
}

TEST(DdpxxRun, ReportsTheLastStateOfAProgressBar) {
  const auto run = ddpxx_run({"sh", "-c", "printf '\\r 10%%\\r 20%%\\r 30%%' >&2; exit 7"});
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("\r 10%\r"), HasSubstr("  stderr    :\n     30%\n"), Not(HasSubstr("     20%"))));
  // The report is read from the end of a file: more than is read of it are states of the bar, then two lines.
  const TemporaryFolder folder;
  const auto to_file = ddpxx_run({"--log-dir=" + folder.path().string(), "--redirects=2", "sh", "-c",
                                  "printf '\\r%4000d' 1 2 3 4 >&2; printf '\\r 50%%\\nTraceback\\r\\n' >&2; exit 7"});
  EXPECT_EQ(to_file.code, 7);
  EXPECT_THAT(to_file.err, testing::ContainsRegex(" 50%\n *Traceback\n"));
}

TEST(DdpxxRun, SetsTorchrunsEnvironment) {
  const auto run = ddpxx_run({"--standalone", "--nproc-per-node=2", "--max-restarts=1", "sh", "-c",
                              "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
                              "$ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
                              "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_USE_AGENT_STORE "
                              "$TORCH_NCCL_ASYNC_ERROR_HANDLING; "
                              "[ $MASTER_PORT -gt 0 ] && [ -n \"$TORCHELASTIC_RUN_ID\" ]"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(sorted_lines(run.out),
            (std::vector<std::string>{"[rank0]: 0 2 0 2 0 1 0 2 default 127.0.0.1 0 1 False 1",
                                      "[rank1]: 1 2 1 2 0 1 1 2 default 127.0.0.1 0 1 False 1"}));
}

/// One of two agents on this machine, which behave as on two machines.
StartedProgram node(int number, std::uint16_t port, std::vector<std::string> more, const std::string& script) {
  std::vector<std::string> arguments = {"--nnodes=2", "--node-rank=" + std::to_string(number),
                                        "--master-port=" + std::to_string(port)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  for (const auto& word : {std::string{"sh"}, std::string{"-c"}, script}) arguments.push_back(word);
  return start_ddpxx_run(std::move(arguments));
}

/// The loopback address of IPv6, or that of IPv4 where this machine has none of IPv6, as in many containers.
struct Loopback {
  std::string address = has_ipv6() ? "::1" : "127.0.0.1";
  std::string in_url = has_ipv6() ? "[::1]" : "127.0.0.1";

  static bool has_ipv6() {
    const ddpxx::Descriptor socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const auto loopback = ddpxx::SocketAddress::parse("::1").value();
    return socket && ::bind(socket.get(), loopback.get(), loopback.length()) == 0;
  }
};

TEST(DdpxxRun, NumbersTheRanksOfSeveralNodesThatMeetAtTheMastersPort) {
  const Loopback master;
  const auto port = unused_port();
  const std::string script = "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $DDPXX_STORE";
  const std::vector<std::string> flags = {"--nproc-per-node=2", "--master-addr=" + master.in_url};
  auto first = node(0, port, flags, script), second = node(1, port, flags, script);
  const auto first_lines = sorted_lines(first.wait().out), second_lines = sorted_lines(second.wait().out);
  ASSERT_EQ(first_lines.size(), 2U);
  ASSERT_EQ(second_lines.size(), 2U);
  EXPECT_THAT(first_lines[0], testing::StartsWith("[rank0]: 0 4 " + master.address + ' '))
      << "Python connects to a bare address only";
  EXPECT_THAT(first_lines[0], testing::EndsWith(' ' + master.in_url + ':' + std::to_string(port)));
  // Python's rank 0 serves a store at MASTER_PORT itself, so MASTER_PORT must be another port, which the agents share.
  const auto tail = first_lines[0].substr(std::string{"[rank0]: 0 "}.size());
  EXPECT_THAT(tail, Not(testing::StartsWith("4 " + master.address + ' ' + std::to_string(port) + ' ')));
  EXPECT_EQ(second_lines, (std::vector<std::string>{"[rank2]: 2 " + tail, "[rank3]: 3 " + tail}));
}

/// One of several agents on this machine that are numbered as they come to `endpoint`.
StartedProgram arriving_node(int nodes, const std::string& endpoint, const std::string& script) {
  return start_ddpxx_run({"--nnodes=" + std::to_string(nodes), "--nproc-per-node=2", "--rdzv-backend=c10d",
                          "--rdzv-endpoint=" + endpoint, "--rdzv-id=job7", "--role=trainer", "sh", "-c", script});
}

TEST(DdpxxRun, NumbersTheNodesOfC10dByTheirArrival) {
  const Loopback master;
  const auto endpoint = master.in_url + ':' + std::to_string(unused_port());
  const std::string script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $MASTER_ADDR";
  StartedProgram agents[] = {arriving_node(3, endpoint, script), arriving_node(3, endpoint, script),
                             arriving_node(3, endpoint, script)};
  std::vector<std::string> lines;
  for (auto& agent : agents) {
    const auto end = agent.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    for (const auto& line : sorted_lines(end.out)) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  std::vector<std::string> expected{"[rank0]: 0 6 0 0 3 trainer ", "[rank1]: 1 6 1 0 3 trainer ",
                                    "[rank2]: 2 6 0 1 3 trainer ", "[rank3]: 3 6 1 1 3 trainer ",
                                    "[rank4]: 4 6 0 2 3 trainer ", "[rank5]: 5 6 1 2 3 trainer "};
  for (auto& line : expected) line += master.address;
  EXPECT_EQ(lines, expected);
}

TEST(DdpxxRun, RefusesANodeThatComesWhenAllNodesAreThere) {
  const auto endpoint = "127.0.0.1:" + std::to_string(unused_port());
  const TemporaryFolder folder;
  const auto started = folder / "started";
  const std::string script = "echo >> " + started.string() + "; exec sleep 600";
  auto first = arriving_node(2, endpoint, script), second = arriving_node(2, endpoint, script);
  first.wait_for_lines(started, 4);
  const auto third = arriving_node(2, endpoint, script).wait();
  EXPECT_EQ(third.code, 5);
  EXPECT_THAT(third.err, HasSubstr("all 2 nodes of the run have come to tcp://" + endpoint + " before this one"));
  first.signal(SIGTERM);
  second.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 128 + SIGTERM);
  EXPECT_EQ(second.wait().code, 128 + SIGTERM);
}

// A workload manager signals the agents of all nodes. If one agent has stopped the others by then, their own signals
// come while they end.
TEST(DdpxxRun, KeepsItsExitCodeWhenSignalsComeWhileItEnds) {
  const TemporaryFolder folder;
  const auto started = folder / "started";
  auto run = start_ddpxx_run({"sh", "-c", "echo >> " + started.string() + "; exec sleep 600"});
  run.wait_for_lines(started, 1);
  while (!run.has_ended()) run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
}

TEST(DdpxxRun, RefusesTheAgentOfAnotherRunAtThePort) {
  const auto port = unused_port();
  const TemporaryFolder folder;
  const auto started = folder / "started";
  const std::string script = "echo >> " + started.string() + "; exec sleep 600";
  auto first = node(0, port, {"--master-addr=127.0.0.1", "--rdzv-id=a"}, script),
       second = node(1, port, {"--master-addr=127.0.0.1", "--rdzv-id=a"}, script);
  first.wait_for_lines(started, 2);
  const auto other = node(1, port, {"--master-addr=127.0.0.1", "--rdzv-id=b"}, script).wait();
  EXPECT_EQ(other.code, 5);
  EXPECT_THAT(other.err, HasSubstr("belongs to another run: this one's id is \"b\""));
  const auto equal = node(1, port, {"--master-addr=127.0.0.1", "--rdzv-id=a"}, script).wait();
  EXPECT_EQ(equal.code, 5);
  EXPECT_THAT(equal.err,
              HasSubstr("two launchers connected to tcp://127.0.0.1:" + std::to_string(port) + " as node 1"));
  EXPECT_THAT(node(0, port, {"--master-addr=127.0.0.1", "--rdzv-id=a"}, script).wait().err, HasSubstr("port in use"));
  first.signal(SIGTERM);
  second.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 128 + SIGTERM) << "the other agents must not disturb the first run";
  EXPECT_EQ(second.wait().code, 128 + SIGTERM);
}

TEST(DdpxxRun, NamesTheNodeThatDisagreesAboutTheNumberOfNodes) {
  const auto port = unused_port();
  auto first = node(0, port, {"--master-addr=127.0.0.1"}, "true");
  auto second = start_ddpxx_run(
      {"--nnodes=3", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=" + std::to_string(port), "true"});
  const auto text = first.wait().err;
  EXPECT_THAT(text, testing::HasSubstr("node 1 was started for 3 nodes, but node 0 for 2: give all nodes the same "
                                       "--nnodes"));
  EXPECT_THAT(text, testing::HasSubstr("DDPXX_TOKEN is not set: a program that can reach tcp://127.0.0.1:"));
  EXPECT_THAT(second.wait().err, testing::HasSubstr("give all nodes the same --nnodes"))
      << "node 1 must not wait for node 2";
}

TEST(DdpxxRun, NamesTheNodeThatNeverComes) {
  const auto port = unused_port();
  const auto run = node(0, port, {"--master-addr=127.0.0.1", "--rdzv-conf=join_timeout=0.5"}, "echo started").wait();
  EXPECT_EQ(run.code, 5);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("node 1 never came to tcp://127.0.0.1:" + std::to_string(port)));
}

TEST(DdpxxRun, EndsAtASignalWhileItWaitsForTheOtherNodes) {
  auto run = node(0, unused_port(), {"--master-addr=127.0.0.1"}, "true");
  run.wait_for_lines(run.error_file(), 1);  // the agent listens by then
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
}

// No agent serves the meeting, so that this one does not read signals in its loop yet.
TEST(DdpxxRun, EndsAtASignalThatIsToEndTheRunWhileItWaitsForTheFirstNode) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    auto run = node(1, unused_port(), {"--master-addr=127.0.0.1", "--signals-to-handle=SIGTERM,SIGUSR1"}, "true");
    run.wait_until_blocked(number);
    run.signal(number);
    EXPECT_EQ(run.wait(std::chrono::seconds{60}).code, 128 + number);
  }
}

TEST(DdpxxRun, EndsAtASignalWhileANameDoesNotResolve) {
  for (auto arguments :
       std::vector<std::vector<std::string>>{{"--master-addr=no-such-host.invalid"},
                                             {"--rdzv-backend=c10d", "--rdzv-endpoint=no-such-host.invalid:29400"}}) {
    const auto first = arguments.front();
    arguments.insert(arguments.end(), {"--nnodes=2", "true"});
    auto run = start_ddpxx_run(arguments);
    run.wait_until_blocked(SIGTERM);
    run.signal(SIGTERM);
    EXPECT_EQ(run.wait(std::chrono::seconds{60}).code, 128 + SIGTERM) << first;
  }
}

/// The addresses in /proc/net/tcp and tcp6 at which the process with this number listens.
std::vector<std::string> listening_addresses(const std::string& pid) {
  std::set<std::string> sockets;
  std::error_code gone;
  for (const auto& fd : std::filesystem::directory_iterator{"/proc/" + pid + "/fd", gone})
    sockets.insert(std::filesystem::read_symlink(fd, gone).string());
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines{StartedProgram::text_of(table)};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      if (state == "0A" && sockets.contains("socket:[" + inode + "]"))
        addresses.push_back(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST(DdpxxRun, ListensOnTheLoopbackInterfaceAloneAndTellsItsSecretToItsRanksAlone) {
  const TemporaryFolder folder;
  const auto started = folder / "started";
  auto run = start_ddpxx_run({"--standalone", "--nproc-per-node=2", "sh", "-c",
                              "echo $PPID $DDPXX_STORE $DDPXX_TOKEN >> " + started.string() + "; exec sleep 600"});
  run.wait_for_lines(started, 2);
  std::istringstream words{StartedProgram::text_of(started)};
  std::string agent, store, token, other_agent, other_store, other_token;
  words >> agent >> store >> token >> other_agent >> other_store >> other_token;
  EXPECT_EQ(listening_addresses(agent), (std::vector<std::string>{"0100007F"}))
      << "the kernel writes 127.0.0.1 as 0100007F";
  EXPECT_THAT(store, testing::MatchesRegex("127\\.0\\.0\\.1:[0-9]+"));
  EXPECT_THAT(token, testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(store + token, other_store + other_token);
  const auto command_line = StartedProgram::text_of("/proc/" + agent + "/cmdline");
  EXPECT_EQ(command_line.find(token), std::string::npos);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().err.find(token), std::string::npos);
}

TEST(DdpxxRun, WarnsOnceOfStrangersAtItsPort) {
  const std::string ask = "exec 3<>/dev/tcp/${DDPXX_STORE/://}; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; ";
  const auto end = ddpxx_run({"/bin/bash", "-c", "exec 2>/dev/null; " + ask + ask + ask + "exit 0"});
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.err,
            "ddpxx-run: a process at 127.0.0.1 has connected to the store of this run and was refused, since it is not "
            "a program of ddpxx; further ones are refused without a message\n");
}

TEST(DdpxxRun, KeepsATokenThatTheUserHasSet) {
  StartedProgram run{
      {"/usr/bin/env", "DDPXX_TOKEN=of the user", program_folder() + "/ddpxx-run", "sh", "-c", "echo $DDPXX_TOKEN"}};
  EXPECT_EQ(run.wait().out, "of the user\n");
}

TEST(DdpxxRun, EndsTheOthersAndReportsOnceWhenARankFails) {
  const TemporaryFolder folder;
  const auto told = (folder / "told").string();
  const auto run = ddpxx_run({"--nproc-per-node=3", "sh", "-c",
                              "[ $RANK = 1 ] && { until [ -e " + told + "0 ] && [ -e " + told +
                                  "2 ]; do sleep 0.01; done; echo out of luck >&2; exit 6; }; echo $$; echo >" + told +
                                  "$RANK; exec sleep 600"});
  EXPECT_EQ(run.code, 6);
  EXPECT_EQ(count_of(run.err, "FAILED"), 1U);
  EXPECT_THAT(run.err, HasSubstr("rank      : 1 (local_rank: 1)"));
  EXPECT_THAT(run.err, HasSubstr("exit code 6"));
  EXPECT_THAT(run.err, HasSubstr("    out of luck\n"));
  EXPECT_THAT(run.err, HasSubstr("  ranks 0, 2: ended by ddpxx-run with SIGTERM, "));
  const auto lines = sorted_lines(run.out);
  ASSERT_EQ(lines.size(), 2U) << run.out;
  for (const auto& line : lines) EXPECT_TRUE(is_gone(line.substr(line.find(": ") + 2))) << line;
}

/// Orders the ends of ranks that are shell scripts: one rank writes its process number to a file before it ends.
class EndingRank {
 public:
  std::string leaves_number() const { return "echo $$ >" + file_ + "; "; }
  /// A script that waits until that rank has ended; a rank that the launcher keeps as a zombie has ended.
  std::string is_waited_for() const {
    return "until [ -s " + file_ + " ]; do sleep 0.01; done; while grep -q ') [^Z]' /proc/$(cat " + file_ +
           ")/stat 2>/dev/null; do sleep 0.01; done; ";
  }
  /// A script that prints a line if the launcher lets its rank live for 1.8 s after that; the launcher waits 2 s for a
  /// cause.
  std::string is_outlived() const { return is_waited_for() + "sleep 1.8; echo lived on; "; }

 private:
  TemporaryFolder folder_;
  std::string file_ = (folder_ / "number").string();
};

// A new start would fail in the same way, and the error that the rank has printed is complete.
TEST(DdpxxRun, EndsAllAtOnceWithoutRestartAndInOneLineForAWrongConfigurationOrWrongData) {
  for (const int code : {2, 3}) {
    const EndingRank third;
    const auto run = ddpxx_run({"--nproc-per-node=4", "--max-restarts=3", "sh", "-c",
                                "[ $RANK = 3 ] && { echo it is wrong >&2; " + third.leaves_number() + "exit " +
                                    std::to_string(code) + "; }; " + third.is_outlived() + "exec sleep 600"});
    EXPECT_EQ(run.code, code);
    EXPECT_EQ(run.err, "[rank3]: it is wrong\nddpxx-run: rank 3: exit code " + std::to_string(code) +
                           " (in ddpxx programs: " + (code == 2 ? "a wrong configuration" : "wrong data") +
                           "); not started again\n");
    EXPECT_EQ(run.out, "") << "ranks must be ended at once, because the cause is known";
  }
}

TEST(DdpxxRun, ReportsInFullWhereAnotherRankFailedOtherwise) {
  const TemporaryFolder folder;
  const auto ready = (folder / "ready").string();
  const auto run =
      ddpxx_run({"--nproc-per-node=2", "--grace=60", "sh", "-c",
                 "[ $RANK = 1 ] && { until [ -e " + ready + " ]; do sleep 0.01; done; exit 2; }; " +
                     "trap 'echo mine too >&2; exit 4' TERM; echo >" + ready + "; while :; do sleep 0.05; done"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("mine too"));
  EXPECT_THAT(run.err, HasSubstr("rank 0 (local_rank: 0"));
  EXPECT_THAT(run.err, HasSubstr("Root Cause"));
}

TEST(DdpxxRun, ReportsInFullWhereTheOutputOfTheRankIsInAFile) {
  const TemporaryFolder folder;
  const auto run =
      ddpxx_run({"--redirects=2", "--log-dir", (folder / "logs").string(), "sh", "-c", "echo it is wrong >&2; exit 2"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("    it is wrong\n"));
}

// Two agents on one machine behave as on two: a rank of the second agent has an error of its own.
TEST(DdpxxRun, ReportsAnErrorOnItsNodeAndNamesItInALineOnTheOthers) {
  const auto port = unused_port();
  const std::string script = "[ $RANK = 3 ] && { echo no such file here >&2; exit 3; }; exec sleep 600";
  const std::vector<std::string> two = {"--nproc-per-node=2", "--master-addr=127.0.0.1"};
  auto first = node(0, port, two, script), second = node(1, port, two, script);
  const auto second_ended = second.wait(), first_ended = first.wait();
  EXPECT_EQ(second_ended.code, 3);
  EXPECT_EQ(second_ended.err,
            "[rank3]: no such file here\nddpxx-run: rank 3: exit code 3 (in ddpxx programs: wrong data)\n");
  EXPECT_EQ(first_ended.code, 3);
  EXPECT_THAT(first_ended.err, testing::ContainsRegex("ddpxx-run: node 1 \\([^)]+\\), rank 3: exit code 3\n$"));
}

TEST(DdpxxRun, EndsTheOthersAtOnceWhenASignalHasEndedARank) {
  const EndingRank first;
  const auto run = ddpxx_run({"--nproc-per-node=3", "sh", "-c",
                              "[ $RANK = 1 ] && { " + first.leaves_number() + "kill -9 $$; }; " + first.is_outlived()});
  EXPECT_EQ(run.code, 137);
  EXPECT_THAT(run.err, HasSubstr("rank      : 1"));
  EXPECT_THAT(run.err, HasSubstr("  ranks 0, 2: ended by ddpxx-run with SIGTERM, "));
  EXPECT_EQ(run.out, "");
}

TEST(DdpxxRun, WaitsForTheCauseWhenARankHasLostItsPeersAndNotLonger) {
  const EndingRank lost, cause;
  const auto run = ddpxx_run({"--nproc-per-node=3", "sh", "-c",
                              "[ $RANK = 0 ] && { " + lost.leaves_number() + "exit 5; }; [ $RANK = 1 ] && { " +
                                  lost.is_waited_for() + "echo a bad sector >&2; " + cause.leaves_number() +
                                  "exit 4; }; " + cause.is_outlived()});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("    a bad sector\n"));
  EXPECT_THAT(run.err, HasSubstr("rank      : 1"));
  EXPECT_EQ(run.out, "");
}

TEST(DdpxxRun, NamesTheSignalThatKilledARankAndNotItsLostPeers) {
  const EndingRank lost;
  const auto run =
      ddpxx_run({"--nproc-per-node=2", "sh", "-c",
                 "[ $RANK = 0 ] && { " + lost.leaves_number() + "exit 5; }; " + lost.is_waited_for() + "kill -9 $$"});
  EXPECT_EQ(run.code, 137);
  EXPECT_THAT(run.err, HasSubstr("Signal 9 (SIGKILL) received by PID"));
  EXPECT_THAT(run.err, HasSubstr("rank      : 1"));
  EXPECT_THAT(run.err, HasSubstr("rank 0 (local_rank: 0"));
}

TEST(DdpxxRun, KillsARankThatIgnoresSigterm) {
  const TemporaryFolder folder;
  const auto ready = (folder / "ready").string();
  const auto run = ddpxx_run({"--nproc-per-node=2", "--grace=0.1", "sh", "-c",
                              "[ $RANK = 1 ] && { until [ -e " + ready + " ]; do sleep 0.01; done; exit 4; }; " +
                                  "trap '' TERM; echo $$; echo >" + ready + "; while :; do sleep 0.05; done"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("ended by ddpxx-run with SIGKILL"));
  EXPECT_TRUE(is_gone(run.out.substr(9, run.out.size() - 10))) << run.out;
}

TEST(DdpxxRun, SendsSigtermOnceToAProgramThatIsNotOfDdpxx) {
  const TemporaryFolder folder;
  const auto ready = (folder / "ready").string(), heard = (folder / "heard").string();
  const auto run = ddpxx_run({"--nproc-per-node=2", "--grace=1", "sh", "-c",
                              "[ $RANK = 1 ] && { until [ -e " + ready + " ]; do sleep 0.01; done; exit 4; }; " +
                                  "trap 'echo >>" + heard + "' TERM; echo >" + ready + "; while :; do :; done"});
  EXPECT_EQ(run.code, 4);
  EXPECT_EQ(StartedProgram::text_of(heard), "\n");
}

TEST(DdpxxRun, EndsWhatARankHasStartedToo) {
  const auto run = ddpxx_run({"--nproc-per-node=2", "sh", "-c", "sleep 600 & echo $!; exit $RANK"});
  EXPECT_EQ(run.code, 1);
  for (const auto& line : sorted_lines(run.out)) wait_for_end_of(line.substr(line.find(": ") + 2));
}

TEST(DdpxxRun, EndsWith75WhenAllRanksStoppedOnRequest) {
  const auto run = ddpxx_run({"--nproc-per-node=2", "sh", "-c", "sleep 0.$RANK; exit 75"});
  EXPECT_EQ(run.code, 75);
  EXPECT_EQ(run.err, "");
}

TEST(DdpxxRun, PassesSigtermOnAndLetsTheRanksSave) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run(
      {"--nproc-per-node=2", "sh", "-c",
       "trap 'echo saved; exit 75' TERM; echo >> " + ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 2);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 75);
  EXPECT_EQ(count_of(ended.out, "saved"), 2U);
  EXPECT_THAT(ended.err, Not(HasSubstr("FAILED")));
}

TEST(DdpxxRun, EndsWithTheSignalWhenTheRanksDo) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--nproc-per-node=2", "sh", "-c", "echo >> " + ready.string() + "; exec sleep 600"});
  run.wait_for_lines(ready, 2);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_EQ(ended.err, "ddpxx-run: ended by SIGTERM\n");
}

// A scheduler's early warning ends programs that do not handle the signal.
TEST(DdpxxRun, BlamesNoRankThatAnEarlyWarningHasEnded) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run(
      {"--nproc-per-node=2", "--max-restarts=1", "sh", "-c", "echo >> " + ready.string() + "; exec sleep 600"});
  run.wait_for_lines(ready, 2);
  run.signal(SIGUSR1);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGUSR1);
  EXPECT_EQ(ended.err, "ddpxx-run: ended by SIGUSR1\n");
}

TEST(DdpxxRun, RestartsAfterAFailureThatFollowsAnEarlyWarning) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--max-restarts=1", "sh", "-c",
                              "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; trap 'exit 1' USR1; echo >> " +
                                  ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGUSR1);
  EXPECT_EQ(run.wait().code, 0);
}

TEST(DdpxxRun, BlamesNoRankThatTheFirstOfTwoSignalsHasEnded) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready", heard = folder / "heard";
  auto run = start_ddpxx_run({"sh", "-c",
                              "trap 'echo >> " + heard.string() + "; sleep 60; exit 130' INT; trap : TERM; echo >> " +
                                  ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGINT);
  run.wait_for_lines(heard, 1);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("ddpxx-run: ended by SIGTERM\n"), Not(HasSubstr("FAILED"))));
}

/// A script whose shell dies of the signal at once, while the program that the shell has started needs more time.
std::string behind_a_shell(const std::string& ready, const std::string& on_signal) {
  return "sh -c 'trap \"" + on_signal + "\" TERM USR1; echo $$ >> " + ready +
         "; while :; do sleep 0.05; done'; echo never";
}

TEST(DdpxxRun, GivesItsTimeToWhatRunsBehindAShell) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    const TemporaryFolder folder;
    const auto ready = folder / "ready";
    auto run = start_ddpxx_run({"--nproc-per-node=2", number == SIGUSR1 ? "--grace=0.1" : "--grace=60", "/bin/bash",
                                "-c", behind_a_shell(ready.string(), "sleep 0.5; echo saved; exit 75")});
    run.wait_for_lines(ready, 2);
    run.signal(number);
    const auto ended = run.wait();
    EXPECT_EQ(ended.code, 128 + number) << "expected the exit code of the shell";
    EXPECT_EQ(count_of(ended.out, "saved"), 2U) << ended.out;
    EXPECT_THAT(ended.err, Not(HasSubstr("FAILED")));
  }
}

TEST(DdpxxRun, GivesNoMoreThanItsTimeToWhatRunsBehindAShell) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run =
      start_ddpxx_run({"--nproc-per-node=2", "--grace=0.2", "/bin/bash", "-c", behind_a_shell(ready.string(), ":")});
  run.wait_for_lines(ready, 2);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, Not(HasSubstr("FAILED")));
  for (const auto& pid : sorted_lines(StartedProgram::text_of(ready))) wait_for_end_of(pid);
}

// Some programs, such as sudo and Python's subprocess, close descriptors that they do not know.
TEST(DdpxxRun, GivesItsTimeToWhatRunsBehindAProgramThatClosesDescriptors) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"/bin/bash", "-c",
                              "eval \"exec ${DDPXX_MILESTONES%%:*}>&-\"; " +
                                  behind_a_shell(ready.string(), "sleep 0.5; echo saved; exit 75")});
  run.wait_for_lines(ready, 1);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().out, "saved\n");
}

// The launcher's signals do not reach such a process, so the launcher must not wait for it.
TEST(DdpxxRun, WaitsForNoProcessThatHasLeftTheGroupOfItsRank) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--grace=0.1", "/bin/bash", "-c",
                              "setsid sh -c 'echo $$ >> " + ready.string() + "; exec sleep 600' & sleep 600"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_EQ(::kill(std::stoi(StartedProgram::text_of(ready)), SIGKILL), 0);
}

TEST(DdpxxRun, ReportsTheRankWhoseShellWasEndedByAnotherProcess) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready", shell = folder / "shell";
  auto run = start_ddpxx_run({"--nproc-per-node=2", "--grace=0.2", "/bin/bash", "-c",
                              "if [ $RANK = 1 ]; then echo $$ > " + shell.string() + "; " +
                                  behind_a_shell(ready.string(), ":") + "; fi; trap 'exit 5' TERM; echo >> " +
                                  ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 2);
  ::kill(std::stoi(StartedProgram::text_of(shell)), SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank      : 1 (local_rank: 1)"), HasSubstr("Signal 15 (SIGTERM) received")));
}

TEST(DdpxxRun, TakesASigintThatBelongsToAnEarlierSignalForNoSecondRequest) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run(
      {"sh", "-c",
       "trap : INT; trap 'sleep 0.3; exit 75' HUP; echo >> " + ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGHUP);
  run.signal(SIGINT);  // the kernel delivers SIGHUP and SIGINT in this order
  EXPECT_EQ(run.wait().code, 75);
}

TEST(DdpxxRun, KillsAtOnceAtTheSecondSigint) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready", heard = folder / "heard";
  auto run = start_ddpxx_run(
      {"--nproc-per-node=2", "--grace=600", "sh", "-c",
       "trap 'echo >> " + heard.string() + "' INT; echo >> " + ready.string() + "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 2);
  run.signal(SIGINT);
  run.wait_for_lines(heard, 2);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(std::chrono::seconds{60}).code, 128 + SIGINT);
}

TEST(DdpxxRun, LetsTheRanksSaveAtTheFirstSigintAfterAnotherSignal) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready", heard = folder / "heard";
  auto run = start_ddpxx_run({"--grace=600", "sh", "-c",
                              "trap 'echo >> " + heard.string() + "' TERM; trap : INT; echo >> " + ready.string() +
                                  "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGTERM);
  run.wait_for_lines(heard, 1);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  run.signal(SIGINT);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  EXPECT_FALSE(run.has_ended());
  EXPECT_EQ(run.wait_while_signalling(SIGINT).code, 128 + SIGTERM);
}

TEST(DdpxxRun, TakesItsRanksWithItWhenItIsKilled) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--nproc-per-node=2", "sh", "-c", "echo $$ >> " + ready.string() + "; exec sleep 600"});
  run.wait_for_lines(ready, 2);
  run.signal(SIGKILL);
  EXPECT_EQ(run.wait().code, -SIGKILL);
  for (const auto& pid : sorted_lines(StartedProgram::text_of(ready))) wait_for_end_of(pid);
}

// The kernel informs only the shell, and not its child, that the launcher has died.
TEST(DdpxxRun, TakesWhatRunsBehindAShellWithItWhenItIsKilled) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--nproc-per-node=2", "/bin/bash", "-c", behind_a_shell(ready.string(), ":")});
  run.wait_for_lines(ready, 2);
  run.signal(SIGKILL);
  EXPECT_EQ(run.wait().code, -SIGKILL);
  for (const auto& pid : sorted_lines(StartedProgram::text_of(ready))) wait_for_end_of(pid);
}

/// The child processes of `parent`, and their names.
std::map<std::string, std::string> children_of(const std::string& parent) {
  std::map<std::string, std::string> children;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
    const auto stat = StartedProgram::text_of(entry.path() / "stat");
    const auto name = stat.find('('), after = stat.rfind(')');
    if (after == std::string::npos) continue;
    if (stat.substr(after + 4, parent.size() + 1) == parent + ' ')
      children[entry.path().filename()] = stat.substr(name + 1, after - name - 1);
  }
  return children;
}

TEST(DdpxxRun, HasAGuardianThatHoldsNoOutputAndEndsWithIt) {
  for (const bool is_killed : {false, true}) {
    const TemporaryFolder folder;
    const auto ready = folder / "ready", go_on = folder / "go-on";
    auto run = start_ddpxx_run(
        {"sh", "-c", "echo $PPID >> " + ready.string() + "; until [ -e " + go_on.string() + " ]; do sleep 0.02; done"});
    run.wait_for_lines(ready, 1);
    const auto agent = StartedProgram::text_of(ready);
    const auto agent_number = agent.substr(0, agent.size() - 1);
    const auto find_guardian = [&]() -> std::string {
      for (const auto& [pid, name] : children_of(agent_number))
        if (name == "ddpxx-guardian") return pid;
      return "";
    };
    const auto open_files = [](const std::string& pid) {
      const std::filesystem::directory_iterator open{"/proc/" + pid + "/fd"};
      return std::distance(begin(open), end(open));
    };
    // The guardian sets its name and closes its files while ranks are started. If that never happens, the test fails by
    // its time limit.
    std::string guardian;
    while ((guardian = find_guardian()).empty() || open_files(guardian) != 1)  // its only open file is the pipe
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    if (!is_killed) ::kill(std::stoi(guardian), SIGSTOP);  // a stopped guardian must not delay the launcher's end
    if (is_killed)
      run.signal(SIGKILL);
    else
      folder.file("go-on", "");
    EXPECT_EQ(run.wait().code, is_killed ? -SIGKILL : 0);
    wait_for_end_of(guardian);
  }
}

TEST(DdpxxRun, RestartsTheRanksWhileRestartsRemain) {
  const auto run = ddpxx_run({"--nproc-per-node=2", "--max-restarts=3", "sh", "-c",
                              "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ]"});
  EXPECT_EQ(run.code, 0);
  for (const char* attempt : {"attempt 0", "attempt 1", "attempt 2"}) EXPECT_EQ(count_of(run.out, attempt), 2U);
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 3"));
  EXPECT_THAT(run.err, Not(HasSubstr("restart 3 of 3")));
  EXPECT_THAT(run.err, Not(HasSubstr("FAILED")));
}

// Backends leave keys in the store, which a later attempt must not find.
TEST(DdpxxRun, GivesEachAttemptAStoreOfItsOwn) {
  const auto run = ddpxx_run(
      {"--max-restarts=1", "sh", "-c", "echo $DDPXX_STORE $DDPXX_TOKEN; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"});
  const auto lines = sorted_lines(run.out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0], lines[1]);
}

TEST(DdpxxRun, ReportsTheLastFailureWhenNoRestartRemains) {
  const auto run =
      ddpxx_run({"--max-restarts=1", "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 7; kill -9 $$"});
  EXPECT_EQ(run.code, 7);
  EXPECT_EQ(count_of(run.err, "FAILED"), 1U);
  EXPECT_THAT(run.err, testing::ContainsRegex(
                           "the first failure of this run: rank 0: Signal 9 \\(SIGKILL\\) "
                           "received by PID [0-9]+ \\(.*memory.*\\); the reported one came after restart 1\n"));
}

/// A rank that reports these milestones to its launcher and then ends.
std::vector<std::string> ends_after(const std::string& milestones, int code) {
  return {"--max-restarts=4", "/bin/bash", "-c",
          "echo start; printf " + milestones + " >&${DDPXX_MILESTONES%%:*}; exit " + std::to_string(code)};
}
std::vector<std::string> fails_after(const std::string& milestones) { return ends_after(milestones, 1); }

TEST(DdpxxRun, DoesNotRestartAProgramOfDdpxxAfterASnapshotThatFailedOrALossThatIsNaN) {
  for (const int code : {4, 6}) {
    const auto run = ddpxx_run(ends_after("b", code));
    EXPECT_EQ(run.code, code);
    EXPECT_EQ(count_of(run.out, "start"), 1U);
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("FAILED"),
                      HasSubstr("ddpxx-run: rank 0: exit code " + std::to_string(code) + " (in ddpxx programs: "),
                      HasSubstr("); not started again\n")));
    EXPECT_EQ(
        count_of(ddpxx_run({"--max-restarts=1", "sh", "-c", "echo start; exit " + std::to_string(code)}).out, "start"),
        2U)
        << "in programs that do not use ddpxx this code has no known meaning";
  }
}

TEST(DdpxxRun, EndsWith75WhereAShellHidesThatItsProgramHasSaved) {
  EXPECT_EQ(ddpxx_run(ends_after("btsp", 0)).code, 75);
  EXPECT_EQ(ddpxx_run(ends_after("btspt", 0)).code, 0) << "the program continued after the save and succeeded";
  EXPECT_EQ(ddpxx_run(ends_after("btspb", 0)).code, 0);
}

TEST(DdpxxRun, EndsRestartsAfterThreeStartsWithoutAStep) {
  const auto run = ddpxx_run(fails_after("t"));
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(count_of(run.out, "start"), 3U);
  EXPECT_THAT(run.err,
              HasSubstr("3 starts in a row have ended before the result of a step was read; not started again"));
  EXPECT_EQ(count_of(ddpxx_run(fails_after("b")).out, "start"), 3U)
      << "must also hold where a start ends before it has a trainer";
  EXPECT_EQ(count_of(ddpxx_run(fails_after("ts")).out, "start"), 5U) << "each start has completed a step";
}

/// A launcher whose rank fails five times, and then does `last`. It writes to the file `said`, and pauses for two
/// seconds after the fifth failure.
StartedProgram start_failing_five_times(const std::string& last, const std::filesystem::path& said) {
  return StartedProgram{{"/bin/sh", "-c",
                         "exec " + program_folder() + "/ddpxx-run --max-restarts=1000 sh -c '[ " +
                             "$TORCHELASTIC_RESTART_COUNT = 5 ] && " + last + "; exit 1' 2>" + said.string()}};
}

TEST(DdpxxRun, HearsASignalWhileItWaitsToRestart) {
  const TemporaryFolder folder;
  const auto said = folder / "said";
  auto run = start_failing_five_times("exec sleep 600", said);
  run.wait_for_lines(said, 5);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_THAT(StartedProgram::text_of(said), HasSubstr("ddpxx-run: ended by SIGTERM before the restart\n"));
}

TEST(DdpxxRun, RestartsAlthoughAnEarlyWarningComesBeforeTheRestart) {
  const TemporaryFolder folder;
  const auto said = folder / "said";
  auto run = start_failing_five_times("exit 0", said);
  run.wait_for_lines(said, 5);
  run.signal(SIGUSR1);
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_THAT(StartedProgram::text_of(said),
              HasSubstr("ddpxx-run: SIGUSR1 came while no rank runs on this machine; it has no effect\n"));
}

// A running rank may only be slow, and the peer may have lost a different rank.
TEST(DdpxxRun, NamesARankThatStillRunsAsAPossibleCauseOnly) {
  const TemporaryFolder folder;
  const auto ready = (folder / "ready").string();
  const auto run = ddpxx_run({"--nproc-per-node=2", "/bin/bash", "-c",
                              "printf bts >&${DDPXX_MILESTONES%%:*}; [ $RANK = 1 ] && { echo >" + ready +
                                  "; exec sleep 600; }; until [ -e " + ready + " ]; do sleep 0.01; done; exit 5"});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, AllOf(HasSubstr("rank      : 0 (local_rank: 0)"),
                             HasSubstr("ddpxx-run: rank 1 was still running when all other ranks had lost a peer; it "
                                       "may be slow, or the cause\n")));
}

TEST(DdpxxRun, NamesTheRankThatIsStoppedAndNotTheOneThatLostIt) {
  const TemporaryFolder folder;
  const auto number = (folder / "number").string();
  const auto run =
      ddpxx_run({"--nproc-per-node=2", "sh", "-c",
                 "[ $RANK = 1 ] && { echo $$ >" + number + "; kill -STOP $$; sleep 600; }; until [ -s " + number +
                     " ] && grep -q ') T' /proc/$(cat " + number + ")/stat; do sleep 0.01; done; exit 5"});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, AllOf(HasSubstr("rank      : 1 (local_rank: 1)"), HasSubstr("it was stopped (state T)"),
                             HasSubstr("rank 0 (local_rank: 0")));
}

TEST(DdpxxRun, SaysThatTheCauseIsProbablyOnAnotherMachineWhenAllItsRanksHaveLostAPeer) {
  const auto port = unused_port();
  const std::vector<std::string> two = {"--nproc-per-node=2", "--master-addr=127.0.0.1"};
  auto other = node(1, port, two, "exit 0");
  const auto run = node(0, port, two, "exit 5").wait();
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("the cause is probably on another machine"));
}

TEST(DdpxxRun, ReportsTheLastStepOfARankThatWasKilled) {
  // The first bytes of the memory are the number of the step.
  const std::string script =
      "[ -z \"$DDPXX_PROGRESS_2\" ] || printf '\\7' 1<>/proc/self/fd/${DDPXX_PROGRESS_2%%:*}; kill -9 $$";
  const auto run = ddpxx_run({"/bin/bash", "-c", script});
  EXPECT_THAT(run.err, AllOf(HasSubstr("  last step : 7\n"), Not(HasSubstr("  collective: "))));
  EXPECT_THAT(ddpxx_run({"/bin/bash", "-c", "kill -9 $$"}).err, Not(HasSubstr("  last step : ")));
}

TEST(DdpxxRun, SaysWhatMayHaveKilledARank) {
  EXPECT_THAT(ddpxx_run({"sh", "-c", "kill -9 $$"}).err,
              testing::ContainsRegex("  hint      : .*memory r[ua]n[s]? out"));
}

/// The only folder in `logs`, that of a run.
std::filesystem::path folder_of_run(const std::filesystem::path& logs) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator{logs}) found.push_back(entry.path());
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? logs : found[0];
}

/// The files below a folder, by their paths there, and their contents.
std::map<std::string, std::string> files_below(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder})
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder)] = StartedProgram::text_of(entry.path());
  return files;
}

using Files = std::map<std::string, std::string>;

TEST(DdpxxRun, WritesTheOutputsOfEachAttemptAndRankToFiles) {
  const TemporaryFolder folder;
  const auto logs = folder / "logs";
  // Rank 1 fails when rank 0 has written.
  const auto written = (folder / "written.").string() + "$TORCHELASTIC_RESTART_COUNT";
  const auto run = ddpxx_run({"--nproc-per-node=2", "--max-restarts=1", "-r3", "--rdzv-id=job7", "--log-dir",
                              logs.string(), "sh", "-c",
                              "echo out $RANK; echo oops $RANK >&2; [ $RANK = 0 ] && { echo >" + written +
                                  "; exit; }; until [ -e " + written + " ]; do sleep 0.01; done; exit 1"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "");
  const auto of_run = folder_of_run(logs);
  EXPECT_THAT(of_run.filename().string(), testing::MatchesRegex("job7_[A-Za-z0-9]{6}"));
  EXPECT_EQ(std::filesystem::status(of_run).permissions(), std::filesystem::perms::owner_all)
      << "no other user may put links there";
  EXPECT_THAT(run.err, AllOf(HasSubstr("ddpxx-run: the ranks write to " + of_run.string()), HasSubstr("    oops 1\n"),
                             HasSubstr("  logs      : " + of_run.string())));
  EXPECT_EQ(files_below(of_run), (Files{{"attempt_0/0/stdout.log", "out 0\n"},
                                        {"attempt_0/0/stderr.log", "oops 0\n"},
                                        {"attempt_0/1/stdout.log", "out 1\n"},
                                        {"attempt_0/1/stderr.log", "oops 1\n"},
                                        {"attempt_1/0/stdout.log", "out 0\n"},
                                        {"attempt_1/0/stderr.log", "oops 0\n"},
                                        {"attempt_1/1/stdout.log", "out 1\n"},
                                        {"attempt_1/1/stderr.log", "oops 1\n"}}));
}

TEST(DdpxxRun, TeesSomeOutputsOfSomeRanksAndFiltersTheirLines) {
  const TemporaryFolder folder;
  const auto run =
      ddpxx_run({"--nproc-per-node=2", "--tee=0:3,1:1", "--redirects=1:2", "--log-dir", (folder / "logs").string(),
                 "--duplicate-stdout-filters=is 1,a,,b", "--duplicate-stderr-filters=none", "--role=worker", "sh", "-c",
                 "echo rank is $RANK; echo a,b; echo a; echo err $RANK >&2; printf cut"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(sorted_lines(run.out),
            (std::vector<std::string>{"[worker0]:a", "[worker0]:a,b", "[worker0]:cut", "[worker0]:rank is 0",
                                      "[worker1]:a", "[worker1]:a,b", "[worker1]:cut", "[worker1]:rank is 1"}));
  EXPECT_THAT(run.err, AllOf(HasSubstr("[worker0]:err 0\n"), Not(HasSubstr("err 1"))));
  auto files = files_below(folder_of_run(folder / "logs"));
  EXPECT_EQ(sorted_lines(files["attempt_0/filtered_stdout.log"]),
            (std::vector<std::string>{"[worker0]:a,b", "[worker1]:a,b", "[worker1]:rank is 1"}));
  files.erase("attempt_0/filtered_stdout.log");
  EXPECT_EQ(files, (Files{{"attempt_0/0/stdout.log", "rank is 0\na,b\na\ncut"},
                          {"attempt_0/0/stderr.log", "err 0\n"},
                          {"attempt_0/1/stdout.log", "rank is 1\na,b\na\ncut"},
                          {"attempt_0/1/stderr.log", "err 1\n"},
                          {"attempt_0/filtered_stderr.log", ""}}));
}

TEST(DdpxxRun, ShowsTheOutputsOfTheChosenRanksOnly) {
  const auto run =
      ddpxx_run({"--nproc-per-node=3", "--local-ranks-filter=0,2", "sh", "-c", "echo out $RANK; echo err $RANK >&2"});
  EXPECT_EQ(sorted_lines(run.out), (std::vector<std::string>{"[rank0]: out 0", "[rank2]: out 2"}));
  EXPECT_EQ(sorted_lines(run.err), (std::vector<std::string>{"[rank0]: err 0", "[rank2]: err 2"}));
  const auto failed = ddpxx_run({"--nproc-per-node=2", "--local-ranks-filter=0", "sh", "-c",
                                 "[ $RANK = 0 ] && exec sleep 600; echo out of luck >&2; exit 2"});
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("    out of luck\n")) << "the report must show what the console did not";
}

TEST(DdpxxRun, BeginsLinesAsTheTemplateSays) {
  StartedProgram run{{"/usr/bin/env", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${role_name} $rank/$local_rank> ",
                      program_folder() + "/ddpxx-run", "--nproc-per-node=2", "sh", "-c", "echo hello"}};
  EXPECT_EQ(sorted_lines(run.wait().out), (std::vector<std::string>{"<default 0/0> hello", "<default 1/1> hello"}));
}

TEST(DdpxxRun, LeavesNoFolderOfErrorFilesBehindUnlessAskedTo) {
  const TemporaryFolder folder;
  const auto start = [&](std::vector<std::string> flags) {
    std::vector<std::string> command = {"/usr/bin/env", "TMPDIR=" + (folder / "").string(),
                                        program_folder() + "/ddpxx-run"};
    command.insert(command.end(), flags.begin(), flags.end());
    for (const char* word : {"sh", "-c",
                             "echo '{\"message\": {\"message\": \"Error: no luck\"}}' > $TORCHELASTIC_ERROR_FILE; "
                             "echo out; exit 1"})
      command.emplace_back(word);
    return StartedProgram{std::move(command)}.wait();
  };
  const auto run = start({});
  EXPECT_THAT(run.err, AllOf(HasSubstr("  error     : Error: no luck\n"), Not(HasSubstr("error_file"))));
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
  EXPECT_THAT(start({"--tee=1"}).err, HasSubstr("  error_file: " + (folder / "ddpxx_").string()));
  EXPECT_EQ(files_below(folder_of_run(folder / "")).size(), 2U) << "stdout.log and error.json";
}

// systemd-tmpfiles removes from /tmp what has not changed for days, and the disk may be full by then.
TEST(DdpxxRun, RestartsTheRanksAlthoughItsTemporaryFolderIsGone) {
  const TemporaryFolder folder;
  const auto start = [&](const std::string& when_gone, std::vector<std::string> flags) {
    std::vector<std::string> command = {"/usr/bin/env", "TMPDIR=" + (folder / "").string(),
                                        program_folder() + "/ddpxx-run", "--max-restarts=1"};
    command.insert(command.end(), flags.begin(), flags.end());
    for (const auto& word : {std::string{"sh"}, std::string{"-c"},
                             "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && { rm -r " + (folder / "ddpxx_").string() + "*; " +
                                 when_gone + "exit 1; }; echo started; echo \"<$TORCHELASTIC_ERROR_FILE>\"; exit 7"})
      command.push_back(word);
    return StartedProgram{std::move(command)}.wait();
  };
  const auto again = start("", {});
  EXPECT_EQ(again.code, 7) << again.err;
  EXPECT_THAT(again.out, testing::MatchesRegex("started\n<.*/attempt_1/0/error.json>\n"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
  // A file in the place of the folder, so that the folder cannot be made again.
  const auto never = start("touch ${TORCHELASTIC_ERROR_FILE%/attempt_0/0/error.json}; ", {});
  EXPECT_EQ(never.code, 7) << never.err;
  EXPECT_EQ(never.out, "started\n<>\n");
  // A link that another user has made in the meantime.
  const TemporaryFolder other;
  const auto linked =
      start("ln -s " + (other / "").string() + " ${TORCHELASTIC_ERROR_FILE%/attempt_0/0/error.json}; ", {});
  EXPECT_EQ(linked.out, "started\n<>\n") << linked.err;
  EXPECT_TRUE(std::filesystem::is_empty(other / ""));
  const auto logging = start("touch ${TORCHELASTIC_ERROR_FILE%/attempt_0/0/error.json}; ", {"--tee=1"});
  EXPECT_EQ(logging.code, 4) << "files that the user has asked for cannot be written";
}

TEST(DdpxxRun, MakesNoFilesWhereTheLogFolderIsNone) {
  const auto run = ddpxx_run({"--log-dir=/dev/null", "--tee=3", "sh", "-c", "echo \"$TORCHELASTIC_ERROR_FILE\" shown"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out + run.err, " shown\n");
}

TEST(DdpxxRun, ContinuesWithoutItsFilesWhenTheyCannotBeWritten) {
  const TemporaryFolder folder;
  StartedProgram run{{"/bin/bash", "-c", "(ulimit -f 0; exec \"$@\" 2>&1) | cat; exit ${PIPESTATUS[0]}", "bash",
                      program_folder() + "/ddpxx-run", "--tee=1", "--log-dir", (folder / "logs").string(), "/bin/sh",
                      "-c", "echo one; echo two"}};
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[default0]:one\n[default0]:two\n"), HasSubstr("File too large"),
                               HasSubstr("; the output no longer goes to files\n")));
}

TEST(DdpxxRun, SignalsToHandleGivesTheRanksTheirTimeAtSigusr1) {
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  auto run = start_ddpxx_run({"--signals-to-handle=SIGTERM,SIGUSR1", "--grace=0.2", "sh", "-c",
                              "trap : USR1; echo $TORCHELASTIC_SIGNALS_TO_HANDLE; echo >> " + ready.string() +
                                  "; while :; do sleep 0.05; done"});
  run.wait_for_lines(ready, 1);
  run.signal(SIGUSR1);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 128 + SIGUSR1);
  EXPECT_EQ(ended.out, "SIGTERM,SIGUSR1\n");
}

TEST(DdpxxRun, GivesEachRankCoresOfItsOwn) {
  const auto cores = ddpxx::detail::allowed_cpus();
  const auto run = ddpxx_run({"--numa-binding=core-complex", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"});
  EXPECT_EQ(run.code, 0);
  const auto bound = ddpxx::detail::parse_cpu_list(run.out.substr(run.out.find('\t') + 1));
  EXPECT_FALSE(bound.empty()) << run.out;
  EXPECT_TRUE(std::ranges::includes(cores, bound)) << run.out;
  const auto own = ddpxx_run({"--nproc-per-node=2", "--numa-binding=exclusive", "sh", "-c",
                              "sed -n 's/Cpus_allowed_list:.//p' /proc/self/status"});
  if (own.code == 2) {
    EXPECT_THAT(own.err, HasSubstr("--numa-binding exclusive: NUMA node 0 has 1 cores for 2 ranks"));
    GTEST_SKIP() << "this machine has one core, too few for two ranks with cores of their own";
  }
  const auto lines = sorted_lines(own.out);
  ASSERT_EQ(lines.size(), 2U) << own.err;
  const auto first = ddpxx::detail::parse_cpu_list(lines[0].substr(9)),
             second = ddpxx::detail::parse_cpu_list(lines[1].substr(9));
  EXPECT_FALSE(first.empty() || second.empty()) << own.out;
  for (const int cpu : first) EXPECT_FALSE(second.contains(cpu)) << cpu;
}

TEST(DdpxxRun, RunsAScriptByRunpyAndWritesItsException) {
  const TemporaryFolder folder;
  const auto script = folder.file("script.txt", "import sys\nprint(__name__, sys.argv[1:])\nraise ValueError('no')\n");
  const auto run = ddpxx_run({"--run-path", "--log-dir", (folder / "logs").string(), script, "a", "--standalone"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "__main__ ['a', '--standalone']\n");
  EXPECT_THAT(run.err, AllOf(HasSubstr("  error     : ValueError: no\n"), HasSubstr("  error_file: ")));
}

TEST(DdpxxRun, RefusesAProgramThatCannotRunInOneLine) {
  const TemporaryFolder folder;
  const auto plain = folder.file("plain", "echo no\n"), shapeless = folder.file("shapeless", "echo no\n");
  std::filesystem::permissions(shapeless, std::filesystem::perms::owner_all);
  for (const std::string& program : {std::string{"no-such-program"}, (folder / "missing").string(), plain, shapeless}) {
    const auto run = ddpxx_run({"--nproc-per-node=2", program});
    EXPECT_EQ(run.code, 2) << program;
    EXPECT_EQ(sorted_lines(run.err).size(), 1U) << run.err;
    EXPECT_THAT(run.err, HasSubstr(program));
  }
  EXPECT_THAT(ddpxx_run({""}).err, HasSubstr("the name of the program is empty"));
}

TEST(DdpxxRun, SaysWhyAProgramCannotBeFound) {
  const TemporaryFolder folder;
  const auto plain = folder.file("bin/plain", "echo no\n");
  std::filesystem::create_symlink("loop", folder / "loop");  // whose folder cannot be searched, also not by root
  const auto loop = (folder / "loop").string(), bin = (folder / "bin").string();
  const auto error_of = [&](const std::string& program, const std::string& path) {
    const auto run = StartedProgram{{"/usr/bin/env", "PATH=" + path, program_folder() + "/ddpxx-run", program}}.wait();
    EXPECT_EQ(run.code, 2) << program;
    return run.err;
  };
  EXPECT_EQ(error_of(loop + "/a", "/bin"), "ddpxx-run: cannot run " + loop + "/a: Too many levels of symbolic links\n");
  EXPECT_EQ(error_of(bin + "/b", "/bin"), "ddpxx-run: cannot run " + bin + "/b: there is no such file\n");
  EXPECT_EQ(error_of(plain + "/b", "/bin"), "ddpxx-run: cannot run " + plain + "/b: there is no such file\n");
  EXPECT_EQ(error_of("nothing", bin), "ddpxx-run: cannot run nothing: it is in no folder of PATH\n");
  const std::string none = ": PATH has no executable file of this name; ";
  EXPECT_EQ(error_of("a", bin + ':' + loop),
            "ddpxx-run: cannot run a" + none + loop + "/a: Too many levels of symbolic links\n");
  EXPECT_EQ(error_of("plain", "none:" + bin + ':' + loop),
            "ddpxx-run: cannot run plain" + none + plain + ": it is not an executable file\n");
}

TEST(DdpxxRun, NamesTheInterpreterOfAScriptThatDoesNotExist) {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& first_line) {
    const auto script = folder.file("script", first_line + "\nexit 0\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const auto run = ddpxx_run({script});
    EXPECT_EQ(run.code, 2) << first_line;
    EXPECT_EQ(count_of(run.err, "\n"), 1U) << run.err;
    return run.err;
  };
  EXPECT_THAT(error_of("#!/no/such/shell -e"),
              HasSubstr("the interpreter of its first line, #!/no/such/shell -e, does not exist\n"));
  EXPECT_THAT(error_of("#!/bin/sh\r"), AllOf(HasSubstr("the interpreter of its first line, #!/bin/sh, does not exist"),
                                             HasSubstr("carriage return as on Windows")));
}

TEST(DdpxxRun, RefusesAWrongCommandLineAndHelps) {
  const auto wrong = ddpxx_run({"--logs-specs=mine", "sh"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--logs-specs"));
  const auto help = ddpxx_run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--nproc-per-node N"));
  const auto version = ddpxx_run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("ddpxx [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(ddpxx_run({"sh", "-c", "echo $1", "sh", "--version"}).out, "--version\n")
      << "--version behind the program belongs to the program";
}

// Needs more descriptors than the limit allows: those of the ranks' outputs and milestones.
TEST(DdpxxRun, NamesTheLimitOfDescriptorsThatKeepsItFromStartingItsRanks) {
  const TemporaryFolder folder;
  const auto alive = folder / "alive";
  StartedProgram run{{"/bin/sh", "-c", "ulimit -n 24; exec \"$0\" \"$@\"", program_folder() + "/ddpxx-run",
                      "--nproc-per-node=16", "sh", "-c", "echo >> " + alive.string() + "; sleep 600; exit"}};
  const auto end = run.wait();
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.err, HasSubstr("(limit: ulimit -n)"));
  EXPECT_EQ(count_of(end.err, "\n"), 1U) << end.err;
  // A rank is a shell, or before that a copy of the launcher: the command line of both has the name of the file.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes{1};
  while (is_in_a_command_line(alive.string()) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  EXPECT_FALSE(is_in_a_command_line(alive.string())) << "a rank is left";
}

TEST(DdpxxRun, RaisesItsOwnLimitOfDescriptorsAndNotThatOfItsRanks) {
  StartedProgram run{{"/bin/sh", "-c", "ulimit -Sn 24; exec \"$0\" \"$@\"", program_folder() + "/ddpxx-run",
                      "--nproc-per-node=16", "sh", "-c",
                      "[ $RANK = 0 ] || exit 0; ulimit -Sn; grep '^Max open files' /proc/$PPID/limits"}};
  const auto end = run.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  std::istringstream words{end.out};
  std::string prefix, of_rank, skipped, soft, hard;
  words >> prefix >> of_rank >> prefix >> skipped >> skipped >> skipped >> soft >> hard;
  EXPECT_EQ(of_rank, "24");
  EXPECT_EQ(soft, hard) << end.out;
  EXPECT_NE(soft, "24");
}

TEST(DdpxxRun, GivesItsTerminalToTheFirstRankAndWritesBetweenItsLines) {
  const Terminal terminal;
  const TemporaryFolder folder;
  const auto until = [](const std::string& file) { return "until [ -e " + file + " ]; do sleep 0.01; done; "; };
  const auto shown = (folder / "shown").string(), other = (folder / "other").string();
  StartedProgram run{{"/bin/sh", "-c",
                      "TERM=xterm exec " + program_folder() +
                          "/ddpxx-run --nproc-per-node=2 sh -c '[ $RANK = 1 ] && { " + until(shown) +
                          "[ -t 1 ] || echo other; exit; }; [ -t 1 ] && printf \"step 1\"; " + until(other) +
                          "printf \"\\rstep 2\\n\"' >" + terminal.name()}};
  EXPECT_EQ(terminal.read_until("step 1"), "step 1");
  folder.file("shown", "");
  EXPECT_EQ(terminal.read_until("\n"), "\r\x1b[K[rank1]: other\r\n");
  folder.file("other", "");
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_EQ(terminal.read_until("\n"), "\rstep 2\r\n");
}

TEST(DdpxxRun, KeepsThePrefixOnATerminalThatDrawsNothing) {
  const Terminal terminal;
  StartedProgram run{{"/bin/sh", "-c",
                      "TERM=dumb exec " + program_folder() +
                          "/ddpxx-run --nproc-per-node=2 sh -c '[ $RANK = 0 ] && echo line' >" + terminal.name()}};
  run.wait();
  EXPECT_EQ(terminal.read_until("\n"), "[rank0]: line\r\n");
}

TEST(DdpxxRun, ContinuesWhenItsOutputIsNotRead) {
  const TemporaryFolder folder;
  const auto done = folder / "done";
  StartedProgram run{{"/bin/sh", "-c",
                      program_folder() + "/ddpxx-run --nproc-per-node=2 sh -c 'i=0; while [ $i -lt 20000 ]; do echo " +
                          "line; i=$((i+1)); done; echo >> " + done.string() + "' | true"}};
  run.wait_for_lines(done, 2);
  run.wait();
}

TEST(DdpxxRun, ReadsSignalsWhileItsOutputIsPaused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // the test does not read from the pipe
  const TemporaryFolder folder;
  const auto ready = folder / "ready";
  // Bash, since other shells know no descriptors above 9.
  StartedProgram run{{"/bin/bash", "-c",
                      "exec " + program_folder() + "/ddpxx-run sh -c 'echo >> " + ready.string() + "; exec yes' >&" +
                          std::to_string(ends[1])}};
  run.wait_for_lines(ready, 1);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace ddpxx_run_test
