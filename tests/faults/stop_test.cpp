// Signals ask the sample program to stop: alone, under the launcher, and behind a shell.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../count_of.hpp"
#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace stop_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

class Stop : public testing::Test {
 protected:
  /// The command line that trains a tiny model, with metrics and snapshots named after the run.
  Words mingpt(const std::string& run, const Words& more = {}) const {
    Words words{program_folder() + "/mingpt",
                "data.path=" + text_,
                "data.block_size=8",
                "data.batch_size=4",
                "model.n_layer=1",
                "model.n_head=1",
                "model.n_embd=16",
                "training.device=cpu",
                "training.max_epochs=0",
                "training.max_steps=1000000",
                "training.metrics=" + metrics(run).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string save(const std::string& run) const { return "training.save_dir=" + (folder_ / run).string(); }
  std::filesystem::path metrics(const std::string& run) const { return folder_ / (run + ".jsonl"); }
  static StartedProgram start(const Words& command) {
    Words words{"/usr/bin/env", "OMP_NUM_THREADS=1"};
    words.insert(words.end(), command.begin(), command.end());
    return StartedProgram{words};
  }
  static Words launched(const Words& flags, const Words& program) {
    Words words{program_folder() + "/ddpxx-run", "--standalone", "--nproc-per-node=2"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  /// The step in the line that a stopped run prints last.
  static int stopped_after(const std::string& text) {
    const std::string words = " after step ";
    const auto at = text.find(words);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + words.size()));
  }
  std::map<int, double> losses(const std::string& run) const {
    std::map<int, double> losses;
    std::ifstream file{metrics(run)};
    for (std::string line; std::getline(file, line);)
      if (const auto row = nlohmann::json::parse(line); row.contains("loss")) losses[row["step"]] = row["loss"];
    return losses;
  }
  bool has_snapshot(const std::string& run, int step) const {
    const auto digits = std::to_string(step);
    return std::filesystem::exists(folder_ / run / ("step-" + std::string(8 - digits.size(), '0') + digits) /
                                   "manifest.json");
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.file("text.txt", [] {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    return text;
  }());
};

TEST_F(Stop, SavesAndEndsWith75OnEachSignal) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    const auto run_name = "run" + std::to_string(number);
    auto run = start(mingpt(run_name, {save(run_name)}));
    run.wait_for_lines(metrics(run_name), 5);
    run.signal(number);
    const auto ended = run.wait();
    EXPECT_EQ(ended.code, 75) << number << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("mingpt: stopped by SIG"), Not(HasSubstr("error")))) << number;
    EXPECT_THAT(ended.out, HasSubstr("stopped at step ")) << "expected the closing line of the run";
    EXPECT_TRUE(has_snapshot(run_name, stopped_after(ended.err))) << ended.err;
  }
}

TEST_F(Stop, StaysAStopWhateverSignalsComeUntilTheEnd) {
  auto run = start(mingpt("run", {save("run")}));
  run.wait_for_lines(metrics("run"), 5);
  while (!run.has_ended()) {
    run.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_TRUE(has_snapshot("run", stopped_after(ended.err))) << ended.err;
}

// Ctrl-C ends all programs of `mingpt | tee log`, and tee ends first.
TEST_F(Stop, SavesWhenTheReaderOfItsOutputHasEnded) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Words words{"/bin/sh", "-c", "exec \"$@\" >&0 2>&1", "sh"};
  for (const auto& word : mingpt("run", {save("run")})) words.push_back(word);
  const int input = ::dup(STDIN_FILENO);
  ::dup2(ends[1], STDIN_FILENO);  // the program inherits the pipe
  auto run = start(words);
  ::dup2(input, STDIN_FILENO);
  ::close(input);
  ::close(ends[1]);
  run.wait_for_lines(metrics("run"), 5);
  ::close(ends[0]);
  run.wait_for_lines(metrics("run"), count_of(StartedProgram::text_of(metrics("run")), "\n") + 5);
  run.signal(SIGINT);
  EXPECT_EQ(run.wait().code, 75);
  EXPECT_TRUE(has_snapshot("run", losses("run").rbegin()->first));
}

TEST_F(Stop, LeavesARunThatSavesNothingToTheSignal) {
  auto run = start(mingpt("run"));
  run.wait_for_lines(metrics("run"), 5);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, -SIGTERM);
}

TEST_F(Stop, OfRanksThatAllHaveTheLocalRank0IsToldOnce) {
  auto run = start(launched({"--virtual-local-rank"}, mingpt("run", {save("run")})));
  run.wait_for_lines(metrics("run"), 5);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_EQ(count_of(ended.err, "stopped by SIGTERM"), 1U) << ended.err;
}

TEST_F(Stop, OfALaunchedRunLeavesWhatGoesOnWithEqualLosses) {
  auto run = start(launched({}, mingpt("run", {save("run")})));
  run.wait_for_lines(metrics("run"), 5);
  run.signal(SIGTERM);
  const auto ended = run.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_EQ(count_of(ended.err, "stopped by SIGTERM"), 1U) << "the message must be printed once:\n" << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  const int step = stopped_after(ended.err);
  ASSERT_TRUE(has_snapshot("run", step)) << ended.err;

  const auto limit = "training.max_steps=" + std::to_string(step + 4);
  const auto resumed = start(launched({}, mingpt("run", {save("run"), limit}))).wait();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(start(launched({}, mingpt("undisturbed", {limit}))).wait().code, 0);
  EXPECT_EQ(losses("run").size(), static_cast<std::size_t>(step + 4));
  EXPECT_EQ(losses("run"), losses("undisturbed"));
}

// Slurm sends SIGUSR1 some time before a job's time limit, to one process or to all.
TEST_F(Stop, ByAnEarlyWarningToTheLauncherOrToOneRankSavesOnAllRanks) {
  auto told = start(launched({}, mingpt("told", {save("told")})));
  told.wait_for_lines(metrics("told"), 5);
  told.signal(SIGUSR1);
  const auto told_ended = told.wait();
  EXPECT_EQ(told_ended.code, 75);
  EXPECT_THAT(told_ended.err, AllOf(HasSubstr("stopped by SIGUSR1"), Not(HasSubstr("FAILED"))));
  EXPECT_TRUE(has_snapshot("told", stopped_after(told_ended.err)));

  const auto number = folder_ / "number";
  auto one = start(launched({}, [&] {
    Words words{"/bin/sh", "-c", "[ $RANK = 1 ] && echo $$ >" + number.string() + "; exec \"$@\"", "sh"};
    for (const auto& word : mingpt("one", {save("one")})) words.push_back(word);
    return words;
  }()));
  one.wait_for_lines(metrics("one"), 5);
  ::kill(std::stoi(StartedProgram::text_of(number)), SIGUSR1);
  const auto one_ended = one.wait();
  EXPECT_EQ(one_ended.code, 75);
  EXPECT_THAT(one_ended.err, HasSubstr("stopped by SIGUSR1 on rank 1 after step "));
  EXPECT_TRUE(has_snapshot("one", stopped_after(one_ended.err)));
}

// As when a window is closed or the connection of ssh is lost: the kernel sends SIGHUP when `script`, which holds the
// other end of the terminal, is gone.
TEST_F(Stop, SavesWhenItsTerminalIsClosed) {
  const auto agent = folder_ / "agent";
  std::string line = "echo $$ >" + agent.string() + "; exec";
  for (const auto& word : launched({}, mingpt("run", {save("run")}))) line += " '" + word + "'";
  const auto is_over = [&] {
    return !std::filesystem::exists("/proc/" + std::to_string(std::stoi(StartedProgram::text_of(agent))));
  };
  {
    const StartedProgram terminal{{"/usr/bin/env", "OMP_NUM_THREADS=1", "script", "-qec", line, "/dev/null"}};
    terminal.wait_for_lines(metrics("run"), 5);
  }  // SIGKILL
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{2};
  while (!is_over() && std::chrono::steady_clock::now() < latest)
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  ASSERT_TRUE(is_over()) << "the launcher still runs";
  EXPECT_TRUE(has_snapshot("run", losses("run").rbegin()->first));
}

// The signal ends a shell at once, while the rank that the shell has started still saves.
TEST_F(Stop, WaitsForRanksBehindAShell) {
  for (const int number : {SIGTERM, SIGUSR2, SIGINT}) {  // SIGINT does not end the shell, which exits with 0
    const auto run_name = "run" + std::to_string(number);
    Words words{"/bin/bash", "-c", "\"$@\"; echo end", "bash"};
    for (const auto& word : mingpt(run_name, {save(run_name)})) words.push_back(word);
    auto run = start(launched({}, words));
    run.wait_for_lines(metrics(run_name), 5);
    run.signal(number);
    const auto ended = run.wait();
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_TRUE(has_snapshot(run_name, stopped_after(ended.err))) << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("FAILED")));
  }
}

// SIGSTOP is not a request to stop: the other ranks wait for the stopped rank until the time limit of a collective.
TEST_F(Stop, OfOneRankBySigstopIsNamedAsTheCause) {
  const auto number = folder_ / "number";
  Words words{"/bin/sh", "-c", "[ $RANK = 1 ] && echo $$ >" + number.string() + "; exec \"$@\"", "sh"};
  for (const auto& word : mingpt("run", {"comm.collective_timeout=5"})) words.push_back(word);
  auto run = start(launched({}, words));
  run.wait_for_lines(metrics("run"), 5);
  ::kill(std::stoi(StartedProgram::text_of(number)), SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  const auto ended = run.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - stopped, std::chrono::seconds{30});
  EXPECT_EQ(ended.code, 5);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank      : 1 (local_rank: 1)"), HasSubstr("it was stopped (state T)")));
}

TEST_F(Stop, EndsASweepWhoseJobHasSaved) {
  const auto sweep_folder = folder_ / "sweep";
  auto sweep = start(mingpt("rows", {"training.metrics=rows", "training.save_dir=saved", "-m", "training.seed=1,2",
                                     "--sweep-dir=" + sweep_folder.string()}));
  sweep.wait_for_lines(sweep_folder / "0/metrics.jsonl", 5);
  sweep.signal(SIGTERM);
  const auto ended = sweep.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(StartedProgram::text_of(sweep_folder / "0/log"), HasSubstr("mingpt: stopped by SIGTERM after step "));
  EXPECT_FALSE(std::filesystem::exists(sweep_folder / "1/log"));
}

}  // namespace
}  // namespace stop_test
