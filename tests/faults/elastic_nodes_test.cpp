// A training on two nodes goes on while one of them is away, with the numbers of trainings that were stopped and
// resumed at the same steps on one machine.
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "../unused_port.hpp"
#include "watched_run.hpp"

namespace elastic_nodes_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kEndless = 1'000'000;

class ElasticNodes : public testing::Test {
 protected:
  /// The command of a training in `folder` whose ranks are started as `launch` says.
  std::vector<std::string> command(const fs::path& folder, const std::vector<std::string>& launch,
                                   std::int64_t max_steps) const {
    std::vector<std::string> words{"/usr/bin/env", "OMP_NUM_THREADS=1", program_folder() + "/ddpxx-run"};
    words.insert(words.end(), launch.begin(), launch.end());
    const std::vector<std::string> more{program_folder() + "/mingpt",
                                        "data.path=" + text_,
                                        "data.block_size=16",
                                        "data.batch_size=2",
                                        "model.n_layer=2",
                                        "model.n_head=2",
                                        "model.n_embd=16",
                                        "training.device=cpu",
                                        "training.max_epochs=0",
                                        "training.max_steps=" + std::to_string(max_steps),
                                        "training.save_every=4",
                                        "training.save_dir=" + (folder / "run").string(),
                                        "training.metrics=" + (folder / "metrics.jsonl").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// The steps at which the run of the agent has been resumed.
  static std::vector<std::int64_t> resumed(const StartedProgram& agent) {
    std::vector<std::int64_t> steps;
    const auto text = StartedProgram::text_of(agent.error_file());
    const std::regex line{"resumed at step ([0-9]+)"};
    for (std::sregex_iterator found{text.begin(), text.end(), line}, end; found != end; ++found)
      steps.push_back(std::stoll((*found)[1]));
    return steps;
  }
  /// Waits until the run in `folder` has been resumed so many times, and has done ten steps since.
  static void wait_for_resumption(const StartedProgram& agent, const fs::path& folder, std::size_t times) {
    agent.wait_until([&] { return resumed(agent).size() >= times; }, "resumption " + std::to_string(times));
    wait_for_step(agent, folder, resumed(agent).back() + 10);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.file("text.txt", [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    return text;
  }());
};

TEST_F(ElasticNodes, AKilledNodeThatReturnsChangesNoLossBeyondTheSizeOfTheWorld) {
  const auto elastic = folder_ / "elastic", stepwise = folder_ / "stepwise";
  for (const auto& folder : {elastic, stepwise}) fs::create_directory(folder);
  const std::vector<std::string> nodes{"--nnodes=1:2", "--rdzv-backend=c10d",
                                       "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port()),
                                       "--rdzv-conf=last_call_timeout=600"};
  StartedProgram first{command(elastic, nodes, kEndless)};
  first.wait_for_lines(first.error_file(), 1);  // it serves the meeting
  {
    const StartedProgram second{command(elastic, nodes, kEndless)};
    wait_for_step(second, elastic, 10);
  }  // SIGKILL; its guardian ends its rank
  wait_for_resumption(first, elastic, 1);
  StartedProgram third{command(elastic, nodes, kEndless)};
  wait_for_resumption(first, elastic, 2);
  third.signal(SIGTERM);  // stops the run on both nodes
  const auto end = first.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_EQ(third.wait().code, 75);
  EXPECT_THAT(end.out, testing::HasSubstr("1 rank on cpu"));

  const auto steps = resumed(first);
  ASSERT_EQ(steps.size(), 2U);
  const auto found = losses(elastic);
  const auto last = found.rbegin()->first;
  ASSERT_GT(steps[1], steps[0]);
  for (const auto& [ranks, until] : {std::pair{2, steps[0]}, std::pair{1, steps[1]}, std::pair{2, last}}) {
    const auto ended =
        StartedProgram{command(stepwise, {"--standalone", "--nproc-per-node=" + std::to_string(ranks)}, until)}.wait();
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  EXPECT_EQ(found, losses(stepwise)) << "resumed at steps " << steps[0] << " and " << steps[1];
}

TEST_F(ElasticNodes, AKilledRankRestartsAllNodesAndChangesNoLoss) {
  const auto killed = folder_ / "killed", quiet = folder_ / "quiet";
  for (const auto& folder : {killed, quiet}) fs::create_directory(folder);
  const std::vector<std::string> nodes{"--nnodes=2", "--rdzv-backend=c10d",
                                       "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port()),
                                       "--max-restarts=3"};
  StartedProgram first{command(killed, nodes, kEndless)};
  first.wait_for_lines(first.error_file(), 1);  // it serves the meeting: its rank is rank 0, which tells of resumptions
  StartedProgram second{command(killed, nodes, kEndless)};
  wait_for_step(first, killed, 10);
  for (const pid_t rank : ranks_of(second.pid())) ::kill(rank, SIGKILL);
  wait_for_resumption(first, killed, 1);
  first.signal(SIGTERM);  // stops the run on both nodes
  const auto end = first.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_EQ(second.wait().code, 75);
  EXPECT_THAT(end.err, testing::HasSubstr("Signal 9 (SIGKILL)"));
  EXPECT_THAT(end.err, testing::HasSubstr("restart 1 of 3"));

  const auto last = losses(killed).rbegin()->first;
  ASSERT_EQ((StartedProgram{command(quiet, {"--standalone", "--nproc-per-node=2"}, last)}.wait().code), 0);
  EXPECT_EQ(losses(killed), losses(quiet));
}

}  // namespace
}  // namespace elastic_nodes_test
