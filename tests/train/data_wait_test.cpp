// StepDone::data_ms: how long the training thread waits for the batches of a step.
#include <chrono>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/parallel/single_device.hpp>

#include "step_rows.hpp"
#include "training_run.hpp"

namespace ddpxx::data_wait_test {
namespace {

constexpr std::chrono::milliseconds kPause{10};

/// Trains alone on batches that each take `pause`. `loop(trainer, data)` does the steps.
template <class Loop>
std::vector<StepDone> train(std::chrono::milliseconds pause, std::int64_t num_workers, const Loop& loop) {
  using Train = Trainer<GPT, Watched, AdamW, Float32, SingleDevice>;
  Group alone;
  typename Train::Config config;
  config.batch_size = 4;
  config.num_workers = num_workers;
  config.training = {.max_steps = 4, .max_epochs = 0, .accumulation_steps = 3};
  const auto data = std::make_shared<Watched>();
  data->operation = [pause] { std::this_thread::sleep_for(pause); };
  std::ostringstream screen;
  const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16}, 11, 8);
  Train trainer{alone, model, data, config, {}, {.screen = &screen}};
  const auto rows = std::make_shared<StepRows>();
  trainer.add(rows);
  trainer.fit([&] {
    while (!trainer.finished()) loop(trainer, *data);
  });
  return rows->rows;
}

const auto kStep = [](auto& trainer, const Watched&) { trainer.step(); };

TEST(DataWait, IsTheTimeInWhichTheTrainingThreadMakesAllBatchesOfAStep) {
  const auto rows = train(kPause, 0, kStep);
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    EXPECT_GE(row.data_ms, 3 * kPause.count()) << row.step;
    EXPECT_LE(row.data_ms, row.step_ms) << row.step;
  }
}

TEST(DataWait, IsTheTimeInWhichTheTrainingThreadWaitsForAWorker) {
  const auto rows = train(kPause, 1, kStep);
  EXPECT_GE(rows.at(0).data_ms, 3 * kPause.count()) << "one worker makes the first three batches one after the other";
  for (const auto& row : rows) EXPECT_LE(row.data_ms, row.step_ms) << row.step;
}

TEST(DataWait, IsPartOfAStepOnFastDataAndZeroOnBatchesFromElsewhere) {
  const auto fast = train({}, 0, kStep);
  ASSERT_EQ(fast.size(), 4U);
  for (const auto& row : fast) {
    EXPECT_GT(row.data_ms, 0) << row.step;
    EXPECT_LT(row.data_ms, row.step_ms) << row.step;
  }
  std::int64_t steps = 0;
  const auto rows = train(kPause, 0, [&](auto& trainer, const Watched& data) {
    if (++steps == 2) return trainer.step(std::vector{data.batch(std::vector<std::int64_t>{0, 1})});
    trainer.step();
  });
  EXPECT_GE(rows.at(0).data_ms, 3 * kPause.count());
  EXPECT_EQ(rows.at(1).data_ms, 0);
  EXPECT_GE(rows.at(2).data_ms, 3 * kPause.count());
}

}  // namespace
}  // namespace ddpxx::data_wait_test
