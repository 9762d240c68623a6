// training.check_replicas_every: a run whose ranks have come to hold different parameters ends, and saves none of them.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::check_replicas_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckReplicas : public TrainingRun {
 protected:
  template <class Strategy>
  using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

  /// Trains for eight steps, saving every two. Rank 1 changes one number after step 3. Returns the error of each rank.
  template <class Strategy>
  void train_with_a_fault(int ranks, std::int64_t check_every, const typename Strategy::Config& strategy,
                          const std::string& expected) {
    spawn_ranks(ranks, [&](Group& group) {
      typename Train<Strategy>::Config config;
      config.batch_size = kGlobalBatch / group.size();
      config.strategy = strategy;
      config.training = {.max_steps = 8,
                         .max_epochs = 0,
                         .save_dir = place().string(),
                         .save_every = 2,
                         .check_replicas_every = check_every};
      at::manual_seed(3);
      const GPTConfig model{.n_layer = 2, .n_head = 2, .n_embd = 16};
      Train<Strategy> trainer{group, std::make_shared<GPT>(model, 11, 8), std::make_shared<Tokens>(), config};
      const auto error = error_of([&] {
        trainer.fit([&] {
          while (!trainer.finished()) {
            trainer.step();
            if (trainer.save_due()) trainer.save();
            if (trainer.steps_done() == 3 && group.rank() == 1)
              at::Tensor{trainer.strategy().slices()[0].values}.narrow(0, 0, 1).add_(0.5);
          }
        });
      });
      EXPECT_THAT(error, HasSubstr(expected)) << "rank " << group.rank();
    });
  }
};

TEST_F(CheckReplicas, EndsTheRunOnEveryRankAndNamesTheSnapshotBefore) {
  train_with_a_fault<DDP>(3, 5, {}, "rank 1 holds other values than rank 0");
  EXPECT_THAT(steps(), ElementsAre(2)) << "expected a check before the snapshot of step 4";
}

TEST_F(CheckReplicas, ComparesAfterTheStepsThatItIsToldTo) {
  train_with_a_fault<DDP>(2, 2, {}, "; step=4; snapshots=");
}

TEST_F(CheckReplicas, EndsAlsoTheRanksOfOtherShards) {
  train_with_a_fault<HSDP>(4, 1, {.shard_size = 2}, "rank 3 holds other values than rank 1");
}

TEST_F(CheckReplicas, TakesNoAverageOfAFailedEvaluationForParametersThatDiffer) {
  spawn_ranks(2, [&](Group& group) {
    CheckReplicas::Train<ZeRO1>::Config config;
    config.batch_size = kGlobalBatch / group.size();
    config.training = {.max_steps = 6,
                       .max_epochs = 0,
                       .ema_decay = 0.9,
                       .save_dir = place().string(),
                       .eval_every = 100,
                       .check_replicas_every = 1};
    at::manual_seed(3);
    const GPTConfig model{.n_layer = 2, .n_head = 2, .n_embd = 16};
    auto validation = std::make_shared<Watched>();
    // The first batches are computed with the average, for which its gathers have to end.
    validation->operation = [batches = 0]() mutable {
      if (++batches == 3) throw Error{Errc::data, "a sample cannot be read"};
    };
    auto data = std::make_shared<Watched>();
    data->operation = [] {};
    using Train = Trainer<GPT, Watched, AdamW, Float32, ZeRO1>;
    Train trainer{group, std::make_shared<GPT>(model, 11, 8), data, config, {}, {.validation = validation}};
    trainer.fit([&] {
      for (int step = 0; step < 3; ++step) trainer.step();
      EXPECT_THAT(error_of([&] { trainer.evaluate(); }), HasSubstr("a sample cannot be read"));
      trainer.save();
      validation->operation = [] {};
      while (!trainer.finished()) trainer.step();
    });
  });
  EXPECT_THAT(steps(), ElementsAre(6, 3));
}

TEST_F(CheckReplicas, IsMadeOnlyIfTheSettingAsksForIt) {
  train_with_a_fault<DDP>(2, 0, {}, "no error");
  EXPECT_THAT(steps(), testing::Contains(8));
}

TEST_F(CheckReplicas, IsRefusedWhereThereAreNoCopies) {
  const auto refusal = [](auto config) {
    config.batch_size = 1;
    config.training.check_replicas_every = 1;
    return config;
  };
  EXPECT_THAT(error_of([&] { Train<FSDP>::check(refusal(Train<FSDP>::Config{})); }),
              AllOf(HasSubstr("training.check_replicas_every: under"), HasSubstr("FSDP"), HasSubstr("set it to 0")));
  EXPECT_THAT(error_of([&] { Train<SingleDevice>::check(refusal(Train<SingleDevice>::Config{})); }),
              HasSubstr("training.check_replicas_every: under"));
  EXPECT_NO_THROW(Train<DDP>::check(refusal(Train<DDP>::Config{})));
}

}  // namespace
}  // namespace ddpxx::check_replicas_test
