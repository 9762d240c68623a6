// Resuming in the other language: Python resumes a run of ddpxx, and ddpxx one of Python, with the programs that users
// have.
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "python.hpp"

namespace mingpt_ddp_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

using Losses = std::vector<double>;
using Words = std::vector<std::string>;

class MinGPTDdp : public testing::Test {
 protected:
  /// The settings whose names are equal in both languages.
  Words run(Words more) const {
    more.insert(more.end(), {"data.path=" + text_, "data.block_size=16", "data.batch_size=8", "model.layout=mingpt_ddp",
                             "model.dropout=0", "optimizer.learning_rate=2e-3", "training.seed=5"});
    return more;
  }

  /// Trains until `epochs` epochs are done, from the snapshot at `place` if there is one; returns the losses of the
  /// steps that were run.
  Losses train(const std::string& place, int epochs) const {
    const auto metrics = folder_ / ("metrics-" + std::to_string(epochs));
    Words command{"/usr/bin/env", "OMP_NUM_THREADS=1", program_folder() + "/mingpt"};
    for (const auto& word :
         run({"training.max_epochs=" + std::to_string(epochs), "training.save_dir=" + place, "training.device=cpu",
              "training.metrics=" + metrics.string(), "generate.tokens=0", "strategy=single", "data.split=random"}))
      command.push_back(word);
    const auto ended = StartedProgram{command}.wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
    Losses losses;
    std::ifstream file{metrics};
    for (std::string line; std::getline(file, line);)
      if (const auto row = nlohmann::json::parse(line); row.contains("loss")) losses.push_back(row["loss"]);
    return losses;
  }

  /// The losses of each epoch.
  std::vector<Losses> train_in_python(const Words& more) const {
    std::istringstream lines{run_python("mingpt_ddp.py", run(more))};
    std::vector<Losses> epochs;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      epochs.emplace_back(std::istream_iterator<double>{words}, std::istream_iterator<double>{});
    }
    return epochs;
  }

  static void convert(const std::string& from, const std::string& to) {
    const auto ended = StartedProgram{{program_folder() + "/ddpxx", "snapshot", "convert", from, "to=" + to}}.wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
  }

  static void expect_same(const Losses& losses, const Losses& others) {
    ASSERT_GT(losses.size(), 10U);
    ASSERT_EQ(losses.size(), others.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], others[i], 1e-5 * losses[i]) << "step " << i + 1;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.file("text.txt", [] {
    std::string text;
    for (int i = 0; i < 8; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    return text;
  }());
};

TEST_F(MinGPTDdp, PythonGoesOnFromOurRunWithTheSameLosses) {
  const auto place = (folder_ / "run").string(), file = (folder_ / "ours.pt").string();
  train(place, 2);
  convert(place, file);
  const auto python = train_in_python({"load=" + file, "epochs=3"});
  ASSERT_THAT(python, SizeIs(1)) << "Python must train one epoch, because two were done before";
  expect_same(train(place, 3), python[0]);
}

TEST_F(MinGPTDdp, OurRunGoesOnFromPythonsWithTheSameLosses) {
  const auto place = (folder_ / "run").string(), file = (folder_ / "python.pt").string();
  const auto python = train_in_python({"save=" + file, "epochs=2"});
  ASSERT_THAT(python, SizeIs(2));
  convert(file, place);
  expect_same(train(place, 2), python[1]);
}

}  // namespace
}  // namespace mingpt_ddp_test
