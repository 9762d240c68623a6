// training.slow_rank_factor: each rank measures how long it needs for a step by itself, and all know the times of all.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>

#include "step_rows.hpp"
#include "training_run.hpp"

namespace ddpxx::rank_times_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::milliseconds kPause{40};
constexpr auto kEvaluation = 20 * kPause;  ///< At least: four batches, with five pauses each.

/// A GPT whose forward pass takes kPause longer on rank 1.
struct Uneven : GPT {
  Uneven(int rank, bool counts)
      : GPT{GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16}, 11, 8}, rank_{rank}, counts_{counts} {}
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    if (rank_ == 1) std::this_thread::sleep_for(kPause);
    auto loss = GPT::forward(run, batch);
    if (counts_) loss.metrics.push_back({"ones", at::ones({}), at::ones({})});
    return loss;
  }
  int rank_;
  bool counts_;
};

/// The shortest times of a rank in the steps.
RankTime least(const std::vector<StepDone>& rows, std::size_t rank) {
  RankTime least{1e9, 1e9};
  for (const auto& row : rows) {
    least.own_ms = std::min(least.own_ms, row.rank_times.at(rank).own_ms);
    least.data_ms = std::min(least.data_ms, row.rank_times.at(rank).data_ms);
  }
  return least;
}

class RankTimes : public TrainingRun {
 protected:
  template <class Strategy>
  std::vector<StepDone> train(Group& group, double factor, bool counts = false, std::int64_t steps = 4,
                              std::int64_t eval_every = 0) {
    typename Trainer<Uneven, Watched, AdamW, Float32, Strategy>::Config config;
    config.batch_size = kGlobalBatch / group.size();
    config.training = {.max_steps = steps, .max_epochs = 0, .eval_every = eval_every, .slow_rank_factor = factor};
    at::manual_seed(3);
    auto data = std::make_shared<Watched>(), validation = std::make_shared<Watched>();
    data->operation = [&group] {
      if (group.rank() == 2) std::this_thread::sleep_for(kPause);
    };
    // An evaluation belongs to no step.
    validation->operation = [] { std::this_thread::sleep_for(5 * kPause); };
    std::ostringstream screen;
    Trainer<Uneven, Watched, AdamW, Float32, Strategy> trainer{group, std::make_shared<Uneven>(group.rank(), counts),
                                                               data,  config,
                                                               {},    {.validation = validation, .screen = &screen}};
    const auto rows = std::make_shared<StepRows>();
    trainer.add(rows);
    trainer.fit();
    return rows->rows;
  }
};

TEST_F(RankTimes, ShowTheRankThatComputesLongerAndTheOneThatWaitsForItsData) {
  for (const bool counts : {false, true})  // metrics of the model's own travel with the times
    spawn_ranks(3, [&](Group& group) {
      const auto rows = train<DDP>(group, 1.5, counts, 4, 2);
      ASSERT_EQ(rows.size(), 4U);
      for (const auto& row : rows) {
        ASSERT_EQ(row.rank_times.size(), 3U);
        EXPECT_GE(row.rank_times[1].own_ms, kPause.count()) << row.step;
        EXPECT_GE(row.rank_times[2].own_ms, kPause.count()) << row.step;
        EXPECT_GE(row.rank_times[2].data_ms, kPause.count()) << row.step;
        EXPECT_GE(row.rank_times[2].own_ms, row.rank_times[2].data_ms) << row.step;
        if (counts) EXPECT_EQ(row.metrics.at(0).value, 1);
      }
      // A busy machine may make a step longer, but not all of them.
      EXPECT_LT(least(rows, 0).own_ms, kPause.count()) << "rank 0 has waited for the others, which is not its own time";
      EXPECT_LT(least(rows, 1).data_ms, kPause.count());
      EXPECT_LT(rows[2].rank_times[0].own_ms, kEvaluation.count()) << "the evaluation before step 3 belongs to no step";
    });
}

TEST_F(RankTimes, AreMeasuredUnderFSDPToo) {
  spawn_ranks(2, [&](Group& group) {
    const auto rows = train<FSDP>(group, 1.5);
    EXPECT_GE(least(rows, 1).own_ms, kPause.count());
    EXPECT_LT(least(rows, 0).own_ms, kPause.count());
  });
}

TEST_F(RankTimes, AreNotMeasuredWithoutTheSettingNorOfARankAlone) {
  spawn_ranks(2, [&](Group& group) {
    for (const auto& row : train<DDP>(group, 0)) EXPECT_TRUE(row.rank_times.empty());
  });
  Group alone;
  for (const auto& row : train<DDP>(alone, 1.5)) EXPECT_TRUE(row.rank_times.empty());
}

TEST_F(RankTimes, NameASlowRankAndItsHostInAWarningOfRankZero) {
  spawn_ranks(2, [&](Group& group) {
    std::string said;
    set_log_sink([&](const LogLine& line) {
      if (line.level == LogLevel::warning) said += line.text;
    });
    train<DDP>(group, 1.5, false, 100);
    set_log_sink({});
    const auto warning = HasSubstr("rank 1 on host " + host_name() + " is slow, and the other ranks wait for it");
    if (group.rank() == 0)
      EXPECT_THAT(said, warning);
    else
      EXPECT_THAT(said, Not(warning));
  });
}

}  // namespace
}  // namespace ddpxx::rank_times_test
