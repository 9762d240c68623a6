// Runs the first program of the README: its settings must have the effects that the README states.
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace first_program_test {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

class FirstProgram : public testing::Test {
 protected:
  Ended run(const Words& more) const {
    Words command{"/usr/bin/env",
                  "OMP_NUM_THREADS=1",
                  "CUDA_VISIBLE_DEVICES=",
                  program_folder() + "/first_program",
                  "data.path=" + folder_.file("text.txt", std::string(50, 'a') + "the quick brown fox jumps over it"),
                  "data.block_size=8",
                  "training.max_steps=2"};
    command.insert(command.end(), more.begin(), more.end());
    return StartedProgram{command}.wait();
  }
  std::vector<double> losses(const std::string& seed) const {
    const auto metrics = folder_ / "metrics.jsonl";
    const auto ended = run({"training.max_steps=2", "training.device=cpu", "training.seed=" + seed,
                            "training.metrics=" + metrics.string()});
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::vector<double> losses;
    std::ifstream file{metrics};
    for (std::string line; std::getline(file, line);)
      if (const auto row = nlohmann::json::parse(line); row.contains("loss")) losses.push_back(row["loss"]);
    std::filesystem::remove(metrics);
    return losses;
  }

  TemporaryFolder folder_;
};

TEST_F(FirstProgram, RepeatsWithItsSeedAndDiffersWithAnother) {
  const auto first = losses("7");
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(losses("7"), first);
  EXPECT_NE(losses("8"), first);
}

TEST_F(FirstProgram, ComputesWhereItIsTold) {
  const auto ended = run({"training.device=cuda"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("device=cuda: this build has no CUDA, or this host no GPU"));
}

TEST_F(FirstProgram, RecordsItsSettingsForAResumedRun) {
  const auto save = "training.save_dir=" + (folder_ / "save").string();
  EXPECT_EQ(run({save, "training.max_steps=2"}).code, 0);
  const auto resumed = run({save, "training.max_steps=3", "training.seed=9"});
  EXPECT_EQ(resumed.code, 4);
  EXPECT_THAT(resumed.err, HasSubstr("training.seed: 1337 in the snapshot, 9 now"));
}

TEST_F(FirstProgram, TakesTheSettingsOfEachPartByTheirOwnNames) {
  const auto ended = run({"batch_size=3", "num_workers=1", "optimizer.learning_rate=0.01", "snapshot.keep_last=2",
                          "strategy.bucket_bytes=1MiB"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("global batch 3 (1 rank x 3)"));
  EXPECT_THAT(run({"batch_size=0"}).err, HasSubstr("\"batch_size=0\": \"0\" is out of range (allowed: at least 1)"));
  EXPECT_THAT(run({"train.batch_size=3"}).err, HasSubstr("train.batch_size"));
}

}  // namespace
}  // namespace first_program_test
