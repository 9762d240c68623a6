// A program's own loop around a trainer: it equals fit(), and close() leaves nothing running.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/storage/folder.hpp>

#include "../error_of.hpp"
#include "ones_and_line.hpp"
#include "training_run.hpp"

namespace ddpxx::own_loop_test {
namespace {

using testing::HasSubstr;

template <class Strategy>
using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

std::shared_ptr<GPT> tiny_gpt(double dropout = 0.0) {
  at::manual_seed(3);
  return std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = dropout}, 11, 8);
}

std::vector<at::Tensor> values_of(const GPT& model) {
  std::vector<at::Tensor> values;
  for (const auto& parameter : model.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

class OwnLoop : public testing::Test {
 protected:
  template <class Strategy = DDP>
  typename Train<Strategy>::Config config(const std::string& name, std::int64_t max_steps) const {
    typename Train<Strategy>::Config config;
    config.batch_size = 3;
    config.training = {.max_steps = max_steps,
                       .max_epochs = 0,
                       .seed = 5,
                       .ema_decay = 0.9,
                       .save_dir = (folder_ / name).string(),
                       .save_every = 4,
                       .eval_every = 3,
                       .metrics = (folder_ / (name + ".jsonl")).string()};
    config.snapshot.writing = SnapshotWriting::background;
    config.optimizer.learning_rate = 1e-2;
    // A smaller epsilon would turn the rounding in the key bias's gradient into full steps.
    config.optimizer.epsilon = 1e-4;
    return config;
  }
  /// The trainer of the run `run`, with a validation set.
  Train<DDP> trainer_of(Group& group, std::int64_t max_steps) const {
    return {group,
            tiny_gpt(),
            std::make_shared<Tokens>(),
            config("run", max_steps),
            {},
            {.validation = std::make_shared<Tokens>()}};
  }
  Snapshot snapshot(const std::string& name) const { return load_snapshot(folder_ / name).value(); }

  /// The rows of a run without the times, which differ from run to run.
  std::vector<nlohmann::json> rows(const std::string& name) const {
    std::vector<nlohmann::json> rows;
    std::ifstream file{folder_ / (name + ".jsonl")};
    for (std::string line; std::getline(file, line);) {
      auto row = nlohmann::json::parse(line);
      // With background writing, the row of a snapshot comes when the snapshot is complete.
      if (row.contains("snapshot")) continue;
      for (const char* key : {"time", "elapsed", "step_ms", "data_ms", "tokens_per_second", "peak_memory_bytes"})
        row.erase(key);
      rows.push_back(row);
    }
    return rows;
  }

  TemporaryFolder folder_;
};

template <class Trainer>
void train_by_hand(Trainer& trainer) {
  trainer.resume();
  while (!trainer.finished()) {
    trainer.step();
    if (trainer.evaluation_due()) trainer.evaluate();
    if (trainer.save_due()) trainer.save();
  }
  trainer.close();
}

template <class Trainer>
void train_in_fit(Trainer& trainer) {
  trainer.fit([&] {
    while (!trainer.finished()) {
      trainer.step();
      if (trainer.evaluation_due()) trainer.evaluate();
      if (trainer.save_due()) trainer.save();
    }
  });
}

TEST_F(OwnLoop, EqualsFitBitForBit) {
  const TrainerParts<Tokens> parts{.validation = std::make_shared<Tokens>()};
  for (const std::int64_t steps : {7, 11}) {  // the second run resumes
    spawn_ranks(2, [&](Group& group) {
      Train<DDP>{group, tiny_gpt(0.2), std::make_shared<Tokens>(), config("fit", steps), {}, parts}.fit();
    });
    spawn_ranks(2, [&](Group& group) {
      Train<DDP> trainer{group, tiny_gpt(0.2), std::make_shared<Tokens>(), config("hand", steps), {}, parts};
      train_by_hand(trainer);
    });
    spawn_ranks(2, [&](Group& group) {
      Train<DDP> trainer{group, tiny_gpt(0.2), std::make_shared<Tokens>(), config("in_fit", steps), {}, parts};
      train_in_fit(trainer);
    });
    for (const char* name : {"hand", "in_fit"}) {
      expect_same_bits(snapshot(name), snapshot("fit"));
      EXPECT_EQ(rows(name), rows("fit")) << name;
    }
  }
}

TEST_F(OwnLoop, KnowsTheEpochOfItsNextStepAlsoAfterAResume) {
  spawn_ranks(2, [&](Group& group) {
    const auto epochs_until = [&](std::int64_t max_steps) {
      auto settings = config("epochs", max_steps);
      settings.training.eval_every = 0;
      Train<DDP> trainer{group, tiny_gpt(), std::make_shared<const Tokens>(), settings};
      EXPECT_EQ(trainer.steps_per_epoch(), 8) << "48 samples, two ranks, batches of 3";
      trainer.resume();
      std::vector<std::int64_t> epochs;
      for (; !trainer.finished(); trainer.step()) epochs.push_back(trainer.epoch());
      trainer.close();
      return epochs;
    };
    EXPECT_EQ(epochs_until(10), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1}));
    EXPECT_EQ(epochs_until(18), (std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 2, 2}));
  });
}

TEST_F(OwnLoop, HasReportedAllStepsAndIsWholeAfterClose) {
  spawn_ranks(2, [&](Group& group) {
    auto settings = config<FSDP>("run", 100);
    settings.training.save_dir.clear();
    settings.training.save_every = settings.training.eval_every = 0;
    auto model = tiny_gpt();
    {
      Train<FSDP> trainer{group, model, std::make_shared<Tokens>(), settings};
      for (int i = 0; i < 5; ++i) trainer.step();
      trainer.close();
    }
    for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
  });
  const auto all = rows("run");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all.back()["step"], 5);
}

TEST_F(OwnLoop, LeavesACompleteSnapshotWhenItClosesEarly) {
  spawn_ranks(2, [&](Group& group) {
    auto trainer = trainer_of(group, 100);
    trainer.resume();
    for (int i = 0; i < 5; ++i) trainer.step();
    trainer.close();
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000005"))
        << "the snapshot must exist when close() returns";
    EXPECT_EQ(trainer.stop_reason(), "");
    trainer.close();  // a second call has nothing left to do
  });
  EXPECT_EQ(snapshot("run").run.step, 5);
}

TEST_F(OwnLoop, SavesAStepOnce) {
  const auto save_again = [&](std::int64_t max_steps) {
    spawn_ranks(2, [&](Group& group) {
      auto trainer = trainer_of(group, max_steps);
      trainer.resume();
      trainer.save();
      while (!trainer.finished()) trainer.step();
      trainer.save();
      at::rand({1});  // a snapshot of the same step would have other random numbers
      trainer.save();
      trainer.close();
      EXPECT_TRUE(trainer.is_saved());
    });
    EXPECT_EQ(snapshot("run").run.step, max_steps);
  };
  save_again(3);
  save_again(3);  // stands at a step whose snapshot it has loaded
  save_again(5);
}

TEST_F(OwnLoop, SavesAStepAgainWhereItsSaveInTheBackgroundHasFailed) {
  for (const bool in_close : {true, false}) {
    const std::string name = in_close ? "close" : "save";
    spawn_ranks(2, [&](Group& group) {
      ::setenv("DDPXX_FAILPOINT", "snapshot.before_commit:throw@1", 1);
      auto settings = config(name, 100);
      settings.training.save_every = settings.training.eval_every = 0;
      Train<DDP> trainer{group, tiny_gpt(), std::make_shared<Tokens>(), settings};
      trainer.resume();
      trainer.step();
      if (!in_close) trainer.save();
      EXPECT_EQ(code_of([&] { in_close ? trainer.close() : trainer.save(); }), Errc::storage);
      EXPECT_FALSE(trainer.is_saved());
      barrier(group);  // until then the other rank may be removing the folder
      if (!in_close) trainer.save();
      trainer.close();
    });
    EXPECT_EQ(snapshot(name).run.step, 1);
  }
}

TEST_F(OwnLoop, PutsTheLastEvaluationIntoTheLastSnapshot) {
  spawn_ranks(2, [&](Group& group) { trainer_of(group, 4).fit(); });
  EXPECT_EQ(snapshot("run").run.step, 4);
  EXPECT_TRUE(snapshot("run").run.metrics.contains("loss")) << "step 4 is saved, but evaluated at the end only";
}

TEST_F(OwnLoop, PutsTheLastEvaluationIntoTheLastSnapshotAlsoWhereTheTimeIsOver) {
  spawn_ranks(2, [&](Group& group) {
    auto settings = config("run", 100);
    settings.training.max_time = 1e-9;
    settings.training.save_every = 1;  // each save reads the votes of its own step
    settings.training.eval_every = 50;
    Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(), settings, {}, {.validation = std::make_shared<Tokens>()}}
        .fit();
  });
  EXPECT_LT(snapshot("run").run.step, 50);
  EXPECT_TRUE(snapshot("run").run.metrics.contains("loss"));
}

TEST_F(OwnLoop, RefusesAnotherSeedThatNoRecordNames) {
  const auto train = [&](std::uint64_t seed, std::int64_t max_steps) {
    spawn_ranks(1, [&](Group& group) {
      auto settings = config("run", max_steps);
      settings.training.seed = seed;
      settings.training.eval_every = 0;
      Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
    });
  };
  train(5, 4);
  try {
    train(6, 8);
    FAIL() << "the place in the data is one in another order";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("training.seed"));
  }
}

TEST_F(OwnLoop, InFitThrowsStoppedAfterARequestAndHasSaved) {
  spawn_ranks(2, [&](Group& group) {
    auto trainer = trainer_of(group, 100);
    try {
      trainer.fit([&] {
        while (!trainer.finished()) {
          if (group.rank() == 1 && trainer.steps_done() == 2) trainer.request_stop();
          trainer.step();
        }
      });
      FAIL() << "the training was stopped";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::stopped);
      EXPECT_THAT(error.what(), HasSubstr("request_stop() on rank 1"));
    }
    EXPECT_EQ(trainer.steps_done(), 5);
  });
  EXPECT_EQ(snapshot("run").run.step, 5);
}

TEST_F(OwnLoop, EndsOnRequestOfAnyRankAndSaysWhatItWas) {
  spawn_ranks(2, [&](Group& group) {
    auto trainer = trainer_of(group, 100);
    trainer.resume();
    while (!trainer.finished()) {
      if (group.rank() == 1 && trainer.steps_done() == 2) trainer.request_stop();
      trainer.step();
    }
    trainer.close();
    EXPECT_EQ(trainer.steps_done(), 5);
    EXPECT_EQ(trainer.stop_reason(), "request_stop() on rank 1");
  });
  EXPECT_EQ(snapshot("run").run.step, 5);
}

TEST_F(OwnLoop, TakesBatchesFromElsewhereBesideItsDataset) {
  const Tokens data;
  const std::vector<std::int64_t> indices{1, 2, 3};
  spawn_ranks(1, [&](Group& group) {
    auto settings = config("run", 2);
    settings.training.save_every = settings.training.eval_every = 0;
    Train<DDP> trainer{group, tiny_gpt(), std::make_shared<Tokens>(), settings};
    trainer.resume();
    trainer.step(std::vector{data.batch(indices), data.batch(indices)});
    trainer.step();
    trainer.close();
  });
  EXPECT_EQ(snapshot("run").run.position, 3) << "batches of the program must not move the cursor of the dataset";
  EXPECT_EQ(rows("run").at(0)["tokens"], 48);
}

TEST_F(OwnLoop, KnowsNoEvaluationOfAStepThatAResumeHasDropped) {
  const Tokens data;
  const std::vector<std::int64_t> indices{1, 2, 3};
  spawn_ranks(1, [&](Group& group) {
    auto settings = config("run", 100);
    settings.training.save_every = settings.training.eval_every = 0;
    Train<DDP> trainer{group,    tiny_gpt(), std::make_shared<Tokens>(),
                       settings, {},         {.validation = std::make_shared<Tokens>()}};
    trainer.resume();
    trainer.step();
    trainer.save();
    trainer.step();
    trainer.evaluate();
    trainer.resume();
    EXPECT_EQ(trainer.steps_done(), 1);
    trainer.step(std::vector{data.batch(indices)});
    trainer.save();
    trainer.close();
  });
  EXPECT_EQ(snapshot("run").run.step, 2);
  EXPECT_TRUE(snapshot("run").run.metrics.empty()) << "these parameters were not evaluated";
}

TEST_F(OwnLoop, MeasuresOtherDataWithoutChangingTheRun) {
  spawn_ranks(2, [&](Group& group) {
    const auto train = [&](const std::string& name, bool measures) {
      Train<FSDP> trainer{group,
                          tiny_gpt(),
                          std::make_shared<Tokens>(),
                          config<FSDP>(name, 6),
                          {},
                          {.validation = std::make_shared<Tokens>()}};
      trainer.fit([&] {
        while (!trainer.finished()) {
          trainer.step();
          const auto measured = measures ? trainer.evaluate(Tokens{}) : EvaluationResult{};
          if (!trainer.evaluation_due()) continue;
          const auto evaluated = trainer.evaluate();
          if (measures) {
            EXPECT_EQ(measured.mean_loss, evaluated.mean_loss);
            EXPECT_EQ(measured.samples, evaluated.samples);
          }
        }
      });
      const auto at_end = trainer.evaluate(Tokens{});
      EXPECT_EQ(at_end.samples, Tokens{}.size());
      return values_of(trainer.model());
    };
    const auto plain = train("plain", false), measured = train("measured", true);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], measured[i])) << i;
  });
  EXPECT_EQ(rows("plain"), rows("measured"));
}

TEST_F(OwnLoop, RefusesToSaveWhereNoPlaceIsOpen) {
  Group alone;
  const auto refusal = [&](const std::string& save_dir) {
    Train<SingleDevice>::Config settings;
    settings.training.save_dir = save_dir;
    Train<SingleDevice> trainer{alone, tiny_gpt(), std::make_shared<Tokens>(), settings};
    try {
      trainer.save();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return std::string{error.what()};
    }
    return std::string{"none"};
  };
  EXPECT_THAT(refusal(""), HasSubstr("set training.save_dir"));
  EXPECT_THAT(refusal((folder_ / "run").string()), HasSubstr("save() comes between resume()"));
}

TEST_F(OwnLoop, KeepsSnapshotsInAStorageOfTheProgram) {
  const auto train_to = [&](std::int64_t steps) {
    spawn_ranks(2, [&](Group& group) {
      auto settings = config("name", steps);
      settings.training.save_every = settings.training.eval_every = 0;
      Train<DDP> trainer{group,    tiny_gpt(), std::make_shared<Tokens>(),
                         settings, {},         {.storage = std::make_shared<Folder>(folder_ / "own")}};
      train_by_hand(trainer);
    });
  };
  train_to(3);
  train_to(5);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "name"));
  EXPECT_EQ(snapshot("own").run.step, 5);
  EXPECT_EQ(rows("name").size(), 5U) << "the second start must resume from the first one's snapshot";
}

/// Trains a model to step 6 after training some others, and returns its values.
std::vector<at::Tensor> trained(Group& group, const Train<DDP>::Config& settings) {
  auto model = tiny_gpt();
  Train<DDP> trainer{group, model, std::make_shared<Tokens>(), settings};
  train_by_hand(trainer);
  return values_of(*model);
}

/// A layer with running statistics, which differ between ranks after a step, and a forward pass that may fail.
struct NormedLine : Line {
  Loss forward(const Batch& batch) {
    if (std::exchange(fails, false)) throw Error{failure, "this batch fails"};
    return {torch::mse_loss(line(norm(batch.inputs)), batch.targets, at::Reduction::Sum)};
  }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d{2})};
  bool fails = false;
  Errc failure = Errc::memory;
};
/// Sample i has the number i.
struct Numbers {
  std::int64_t size() const { return 8; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto inputs = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}).to(at::kFloat);
    return {inputs.unsqueeze(1).repeat({1, 2}), inputs.unsqueeze(1), inputs.size(0)};
  }
};

TEST_F(OwnLoop, EvaluatesAndEndsWithTheRunningStatisticsOfRankZero) {
  spawn_ranks(2, [](Group& group) {
    using Train = Trainer<NormedLine, Numbers, AdamW, Float32, DDP>;
    typename Train::Config config;
    config.batch_size = 2;
    config.training = {.max_steps = 2, .max_epochs = 0, .save_dir = ""};
    at::manual_seed(3);
    auto model = std::make_shared<NormedLine>();
    const auto numbers = std::make_shared<Numbers>();
    Train trainer{group, model, numbers, config, {}, {.validation = numbers}};
    const auto expect_equal_means = [&](const char* when) {
      const auto own = model->norm->running_mean.clone(), first = own.clone();
      broadcast(first, group);
      EXPECT_TRUE(at::equal(own, first)) << when << ", rank " << group.rank();
    };
    trainer.resume();
    trainer.step();
    trainer.evaluate();
    expect_equal_means("in an evaluation");
    trainer.step();
    trainer.close();
    expect_equal_means("at the end");
  });
}

TEST_F(OwnLoop, LeavesAPartOfTheModelInEvaluationMode) {
  const auto tracks_means = [](bool whole_model_is_evaluated) {
    using Train = Trainer<NormedLine, Numbers, AdamW, Float32, SingleDevice>;
    Group alone;
    typename Train::Config config;
    config.batch_size = 2;
    config.training = {.max_steps = 3, .max_epochs = 0, .save_dir = ""};
    auto model = std::make_shared<NormedLine>();
    if (whole_model_is_evaluated)
      model->eval();
    else
      model->norm->eval();
    Train trainer{alone, model, std::make_shared<Numbers>(), config};
    trainer.fit();
    EXPECT_TRUE(model->is_training());
    return !at::equal(model->norm->running_mean, at::zeros({2}));
  };
  EXPECT_FALSE(tracks_means(false)) << "the norm was put into evaluation mode before the training";
  EXPECT_TRUE(tracks_means(true)) << "a model that was only evaluated before has to be trained as a whole";
}

/// The weight that a training of one process has after `loop(trainer, model)`.
template <class Strategy = SingleDevice, class Loop>
at::Tensor weight_after(std::int64_t max_steps, const Loop& loop) {
  using Train = Trainer<NormedLine, Numbers, AdamW, Float32, Strategy>;
  Group alone;
  typename Train::Config config;
  config.batch_size = 2;
  config.training = {.max_steps = max_steps, .max_epochs = 0, .grad_norm_clip = 0, .save_dir = ""};
  at::manual_seed(3);
  auto model = std::make_shared<NormedLine>();
  Train trainer{alone, model, std::make_shared<Numbers>(), config};
  trainer.resume();
  loop(trainer, *model);
  trainer.close();
  return model->line->weight.detach().clone();
}

TEST_F(OwnLoop, EndsAtOnceByTheModelOfOneRankAlsoWhileASnapshotIsBeingWritten) {
  const auto begin = std::chrono::steady_clock::now();
  const auto text = error_of([&] {
    spawn_ranks(2,
                [&](Group& group) {
                  using Train = Trainer<NormedLine, Numbers, AdamW, Float32, DDP>;
                  typename Train::Config config;
                  config.batch_size = 2;
                  config.training = {.max_steps = 9, .max_epochs = 0, .save_dir = (folder_ / "run").string()};
                  config.snapshot.writing = SnapshotWriting::background;
                  at::manual_seed(3);
                  auto model = std::make_shared<NormedLine>();
                  Train trainer{group, model, std::make_shared<Numbers>(), config};
                  trainer.resume();
                  trainer.step();
                  trainer.save();
                  model->fails = group.rank() == 1;
                  model->failure = Errc::numerics;
                  trainer.step();
                },
                {.comm = {.collective_timeout = 60, .backend = Backend::gloo}});
  });
  EXPECT_THAT(text, HasSubstr("rank 1: this batch fails"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{45})
      << "rank 1 has waited for the others in a collective that they do not call";
}

template <class Strategy>
void expect_that_the_batches_of_a_failed_step_are_taken_again() {
  const auto train = [](bool fails) {
    return weight_after<Strategy>(6, [&](auto& trainer, NormedLine& model) {
      while (!trainer.finished()) {
        if (fails && trainer.steps_done() % 2 == 1) {  // step 4 ends an epoch
          model.fails = true;
          EXPECT_THROW(trainer.step(), Error);
          EXPECT_FALSE(trainer.save_due()) << "the epoch has not ended";
        }
        trainer.step();
      }
    });
  };
  EXPECT_TRUE(at::equal(train(true), train(false)));
}
TEST_F(OwnLoop, TakesTheBatchesOfAStepAgainThatAnExceptionHasEnded) {
  expect_that_the_batches_of_a_failed_step_are_taken_again<SingleDevice>();
}
TEST_F(OwnLoop, TakesTheBatchesAgainBeforeAParameterWasSteppedInBackward) {
  expect_that_the_batches_of_a_failed_step_are_taken_again<StepInBackward<DDP>>();
}

TEST_F(OwnLoop, KnowsThatAnEpochHasEndedAlsoAfterAStepThatFails) {
  Group alone;
  Trainer<NormedLine, Numbers, AdamW, Float32, SingleDevice>::Config settings;
  settings.batch_size = 2;
  settings.training = {.max_steps = 6, .max_epochs = 0, .save_dir = (folder_ / "run").string(), .save_every_epochs = 1};
  const auto model = std::make_shared<NormedLine>();
  Trainer<NormedLine, Numbers, AdamW, Float32, SingleDevice> trainer{alone, model, std::make_shared<Numbers>(),
                                                                     settings};
  trainer.resume();
  while (trainer.epoch() == 0) trainer.step();
  ASSERT_TRUE(trainer.save_due());
  model->fails = true;
  EXPECT_THROW(trainer.step(), Error);
  EXPECT_TRUE(trainer.save_due()) << "after a step on batches of the dataset";
  EXPECT_THROW(trainer.step(std::vector<Batch>{}), Error);
  EXPECT_TRUE(trainer.save_due()) << "after a step on other batches";
  trainer.save();
  EXPECT_FALSE(trainer.save_due());
  trainer.close();
}

/// A layer that is trained in any precision, and whose evaluation may fail.
struct FragileLine : Line {
  Loss forward(const Batch& batch) {
    if (std::exchange(fails, false)) throw Error{Errc::data, "this batch fails"};
    return {(line(batch.inputs) - batch.targets).square().sum()};
  }
  bool fails = false;
};
/// The weight after six steps on two ranks, and an evaluation of the moving average after the third, which may fail.
template <class Precision, class Strategy>
at::Tensor weight_after_evaluation(Group& group, bool fails, bool ends_at_once) {
  using Train = Trainer<FragileLine, Numbers, AdamW, Precision, Strategy>;
  typename Train::Config config;
  config.batch_size = 2;
  config.training = {.max_steps = 6, .max_epochs = 0, .ema_decay = 0.9, .save_dir = ""};
  config.optimizer.learning_rate = 0.1;
  at::manual_seed(3);
  auto model = std::make_shared<FragileLine>();
  const auto numbers = std::make_shared<Numbers>();
  Train trainer{group, model, numbers, config, {}, {.validation = numbers}};
  trainer.resume();
  for (int i = 0; i < 3; ++i) trainer.step();
  model->fails = fails;
  if (fails)
    EXPECT_THROW(trainer.evaluate(), Error);
  else
    trainer.evaluate();
  while (!ends_at_once && !trainer.finished()) trainer.step();
  trainer.close();
  return model->line->weight.detach().clone();
}
template <class Precision, class Strategy>
void expect_that_a_failed_evaluation_leaves_no_average() {
  spawn_ranks(2, [](Group& group) {
    for (const bool ends_at_once : {false, true}) {
      const auto after = [&](bool fails) {
        return weight_after_evaluation<Precision, Strategy>(group, fails, ends_at_once);
      };
      EXPECT_TRUE(at::equal(after(true), after(false))) << (ends_at_once ? "at the end" : "after further steps");
    }
  });
}
TEST_F(OwnLoop, TrainsTheParametersAfterAnEvaluationOfTheirAverageThatFailed) {
  expect_that_a_failed_evaluation_leaves_no_average<Float32, DDP>();
  expect_that_a_failed_evaluation_leaves_no_average<Float32, ZeRO1>();
  expect_that_a_failed_evaluation_leaves_no_average<Float32, FSDP>();
  expect_that_a_failed_evaluation_leaves_no_average<LowPrecision<>, DDP>();
}

TEST_F(OwnLoop, DropsAStepWhoseSecondBatchCouldNotBeMade) {
  const std::vector<std::int64_t> samples{0, 2, 4};
  const auto train = [&](bool fails) {
    return weight_after(3, [&](auto& trainer, NormedLine&) {
      bool fail_now = false;
      const auto batches = samples | std::views::transform([&](std::int64_t i) {
                             if (i == 4 && std::exchange(fail_now, false)) throw Error{Errc::data, "no such file"};
                             return Numbers{}.batch(std::vector{i, i + 1});
                           });
      trainer.step(batches);
      trainer.step(batches | std::views::take(2));
      fail_now = fails;
      if (fails) EXPECT_THROW(trainer.step(batches), Error);
      trainer.step(batches);
    });
  };
  EXPECT_TRUE(at::equal(train(true), train(false)));
}

TEST_F(OwnLoop, TwoTrainersInOneProcessDoNotDisturbEachOther) {
  spawn_ranks(2, [&](Group& group) {
    Train<DDP>::Config slow, fast;
    slow.training = fast.training = {.max_steps = 6, .max_epochs = 0, .seed = 5};
    slow.optimizer.learning_rate = 1e-3;
    fast.optimizer.learning_rate = 1e-2;
    const auto slow_alone = trained(group, slow), fast_after_it = trained(group, fast);

    auto first_group = group.split({.color = 0, .rank = group.rank(), .size = group.size()});
    auto second_group = group.split({.color = 0, .rank = group.rank(), .size = group.size()});
    auto first_model = tiny_gpt(), second_model = tiny_gpt();
    Train<DDP> first{first_group, first_model, std::make_shared<Tokens>(), slow};
    Train<DDP> second{second_group, second_model, std::make_shared<Tokens>(), fast};
    first.resume();
    second.resume();
    while (!first.finished() || !second.finished()) {
      if (!first.finished()) first.step();
      if (!second.finished()) second.step();
    }
    first.close();
    second.close();
    const auto side_by_side = values_of(*first_model), other = values_of(*second_model);
    for (std::size_t i = 0; i < slow_alone.size(); ++i) {
      EXPECT_TRUE(at::equal(side_by_side[i], slow_alone[i])) << i;
      EXPECT_TRUE(at::equal(other[i], fast_after_it[i])) << i;
    }
    EXPECT_FALSE(at::equal(other[0], side_by_side[0]));
    second_group.leave();
    first_group.leave();
  });
}

TEST_F(OwnLoop, OfASecondTrainerComesAfterAnErrorOfTheFirst) {
  Group alone;
  Train<SingleDevice>::Config settings;
  settings.training = {.max_steps = 40, .max_epochs = 0, .grad_norm_clip = 0};
  settings.optimizer.learning_rate = 1e30;
  {
    Train<SingleDevice> trainer{alone, tiny_gpt(), std::make_shared<Tokens>(), settings};
    try {
      train_by_hand(trainer);
      FAIL() << "a NaN loss was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::numerics);
      EXPECT_THAT(error.what(), HasSubstr("; snapshots=none, since training.save_dir is empty"));
    }
  }
  settings.optimizer.learning_rate = 1e-3;
  Train<SingleDevice> trainer{alone, tiny_gpt(), std::make_shared<Tokens>(), settings};
  train_by_hand(trainer);
  EXPECT_EQ(trainer.steps_done(), 40);
}

}  // namespace
}  // namespace ddpxx::own_loop_test
