#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/early_stopping.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "training_run.hpp"

namespace ddpxx::early_stopping_test {
namespace {

/// The number of the evaluation at which early stopping wants the run to stop; 0 if it never does.
int stops_at(const EarlyStoppingConfig& config, const std::vector<double>& values) {
  EarlyStopping stopping{config};
  for (int number = 1; const double value : values) {
    if (stopping.note(value)) return number;
    ++number;
  }
  return 0;
}

TEST(EarlyStopping, StopsAfterAsManyEvaluationsWithoutImprovementAsItHasPatience) {
  const EarlyStoppingConfig config{.metric = "val_loss", .patience = 2};
  EXPECT_EQ(stops_at(config, {3, 2, 1, 0}), 0);
  EXPECT_EQ(stops_at(config, {3, 3, 3}), 3);
  EXPECT_EQ(stops_at(config, {3, 4, 2, 2.5, 2.25, 1}), 5);
  EXPECT_EQ(stops_at(config, {3, 4, 2, 2.5, 1, 2, 1}), 7);
}

TEST(EarlyStopping, SaysWhyTheRunStops) {
  EarlyStopping stopping{{.metric = "val_loss", .patience = 1}};
  EXPECT_FALSE(stopping.note(3));
  EXPECT_TRUE(stopping.note(3));
  EXPECT_EQ(stopping.reason(), "val_loss has not improved on 3.000000 in 1 evaluation");
  EarlyStopping on_nothing{{.metric = "val_loss", .patience = 2}};
  for (int i = 0; i < 2; ++i) on_nothing.note(std::nan(""));
  EXPECT_EQ(on_nothing.reason(), "val_loss has not improved on anything in 2 evaluations");
}

TEST(EarlyStopping, CountsAChangeOfMinDeltaOrLessAsNone) {
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2, .min_delta = 0.5}, {3, 2.75, 2.5, 1}), 3);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2, .min_delta = 0.5}, {3, 2.75, 2.25, 2}), 0);
}

TEST(EarlyStopping, TakesANumberThatIsNotFiniteForNoImprovement) {
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2}, {std::nan(""), std::nan("")}), 2);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 2}, {std::nan(""), 3, std::nan(""), 2}), 0);
  EXPECT_EQ(stops_at({.metric = "val_loss", .patience = 3}, {3, -std::numeric_limits<double>::infinity(), 2, 1}), 0);
}

TEST(EarlyStopping, WatchesAMetricThatIsToGrow) {
  const EarlyStoppingConfig config{.metric = "val_accuracy", .patience = 2, .mode = MetricMode::max};
  EXPECT_EQ(stops_at(config, {0.1, 0.2, 0.3}), 0);
  EXPECT_EQ(stops_at(config, {0.3, 0.2, 0.1}), 3);
}

template <class Strategy>
using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

/// The loss of an evaluation falls by much less than `min_delta`, so that only the first evaluation improves.
template <class Strategy>
typename Train<Strategy>::Config make_config(const Group& group, std::int64_t max_steps, const std::string& save_dir) {
  typename Train<Strategy>::Config config;
  config.batch_size = kGlobalBatch / group.size();
  config.training = {.max_steps = max_steps, .max_epochs = 0, .seed = 5, .save_dir = save_dir, .eval_every = 1};
  config.early_stopping = {.metric = "val_loss", .patience = 4, .min_delta = 100};
  return config;
}

/// Trains, and returns the step at which the run has ended. Collects what rank 0 logs in `lines`.
template <class Strategy>
std::int64_t last_step(Group& group, const typename Train<Strategy>::Config& config, std::string& lines) {
  const auto data = std::make_shared<const Tokens>();
  const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8}, 11, 8);
  set_log_sink([&](const LogLine& line) { (lines += line.text) += "\n"; });
  Train<Strategy> trainer{group, model, data, config, {}, {.validation = data}};
  trainer.fit();
  set_log_sink({});
  return trainer.steps_done();
}

template <class Strategy>
struct EarlyStoppingOfAResumedRun : testing::Test {};
using Strategies = testing::Types<DDP, FSDP>;
TYPED_TEST_SUITE(EarlyStoppingOfAResumedRun, Strategies);

TYPED_TEST(EarlyStoppingOfAResumedRun, CountsAsTheWholeRunWouldHave) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    const auto run = [&](std::int64_t steps, const std::string& name, std::string& lines) {
      return last_step<TypeParam>(group, make_config<TypeParam>(group, steps, (folder / name).string()), lines);
    };
    std::string of_whole, of_parts;
    const auto whole = run(100, "whole", of_whole);
    EXPECT_EQ(whole, 6) << "the ranks read the vote of the fifth evaluation in the next step";
    for (const std::int64_t end : {2, 3, 4}) EXPECT_EQ(run(end, "parts", of_parts), end);
    EXPECT_EQ(of_parts.find("early stopping"), std::string::npos);
    EXPECT_EQ(run(5, "parts", of_parts), 5) << "its last evaluation wants the run to stop";
    EXPECT_EQ(run(100, "parts", of_parts), whole);
    if (group.rank() > 0) return;
    const std::string reason = "early stopping: val_loss has not improved on ";
    EXPECT_NE(of_whole.find(reason), std::string::npos) << of_whole;
    EXPECT_NE(of_parts.find(reason), std::string::npos) << of_parts;
  });
}

TEST(EarlyStoppingOfARunWithOtherSettings, CountsAnew) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    std::string lines;
    auto config = make_config<DDP>(group, 3, (folder / "run").string());
    last_step<DDP>(group, config, lines);
    config.training.max_steps = 100;
    config.early_stopping.mode = MetricMode::max;  // the best value of a loss that is to fall means nothing to it
    EXPECT_EQ(last_step<DDP>(group, config, lines), 3 + 6);
    EXPECT_EQ(lines.find("are counted anew"), std::string::npos);
  });
}

TEST(EarlyStoppingOfARunThatHadNone, BeginsWithItsFirstEvaluation) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    std::string lines;
    auto config = make_config<DDP>(group, 3, (folder / "run").string());
    const auto early_stopping = std::exchange(config.early_stopping, {});
    last_step<DDP>(group, config, lines);
    config.early_stopping = early_stopping;
    config.training.max_steps = 100;
    EXPECT_EQ(last_step<DDP>(group, config, lines), 3 + 6);
    if (group.rank() == 0) {
      EXPECT_NE(lines.find("no evaluations for early_stopping.metric: they are counted anew at step 3"),
                std::string::npos)
          << lines;
    }
    config.early_stopping = {};
    config.training.max_steps = 12;
    EXPECT_EQ(last_step<DDP>(group, config, lines), 12) << "a run without the setting must load the snapshot";
  });
}

}  // namespace
}  // namespace ddpxx::early_stopping_test
