// A trainer whose configuration was set in code refuses the values that parse_config would refuse.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/train/trainer.hpp>
#include <ddpxx/train/training_settings.hpp>

#include "ones_and_line.hpp"

namespace ddpxx::checked_config_test {
namespace {

using Plain = Trainer<Line, Ones, AdamW, Float32, SingleDevice>;

template <class T>
std::string refusal(const typename T::Config& config) {
  try {
    T::check(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(TheConfigOfATrainer, IsRefusedInTheWordsOfParseConfig) {
  Plain::Config config;
  EXPECT_EQ(refusal<Plain>(config), "none");
  config.batch_size = 0;
  config.num_workers = -1;
  config.training.accumulation_steps = 0;
  config.optimizer.learning_rate = -1;
  config.snapshot.keep_last = -1;
  EXPECT_EQ(refusal<Plain>(config),
            "batch_size: 0 is out of range (allowed: at least 1)\n"
            "num_workers: -1 is out of range (allowed: at least 0)\n"
            "training.accumulation_steps: \"0\" is out of range (allowed: at least 1)\n"
            "snapshot.keep_last: \"-1\" is out of range (allowed: at least 0)\n"
            "optimizer.learning_rate: \"-1.0\" is out of range (allowed: above 0)");
}

TEST(TheConfigOfATrainer, IsRefusedForRulesBetweenSettings) {
  Plain::Config config;
  config.optimizer.schedule = Schedule::cosine;
  config.training.save_every = 10;
  config.training.csv = "s3://bucket/rows.csv";
  EXPECT_EQ(refusal<Plain>(config),
            "training.save_every: nothing would be saved: set save_dir, the place of the snapshots\n"
            "training.csv: \"s3://bucket/rows.csv\" is in a bucket, and rows are added one by one to a file of a disk: "
            "name a place on a disk, and give save_dir alone the bucket\n"
            "optimizer.decay_steps: must be greater than warmup_steps (0) unless schedule=constant or step");
}

TEST(TheConfigOfATrainer, IsRefusedWhereARunNeverEnds) {
  Plain::Config config;
  config.training = {.max_steps = 0, .max_epochs = 0, .max_time = 0.0};
  EXPECT_EQ(refusal<Plain>(config),
            "training.max_steps: with max_steps=0, max_epochs=0 and max_time=0 the run never ends: set one of them");
  config.training.max_time = 60.0;
  EXPECT_EQ(refusal<Plain>(config), "none");
}

TEST(TheConfigOfATrainer, IsRefusedWhereTensorBoardsFolderIsAFileOfRows) {
  constexpr auto kRefusal = "training.tensorboard: is a file of training.metrics or training.csv: name a folder";
  Plain::Config config;
  config.training = {.metrics = "rows", .tensorboard = "./rows"};
  EXPECT_EQ(refusal<Plain>(config), kRefusal);
  config.training = {.csv = "rows", .tensorboard = "other/../rows"};
  EXPECT_EQ(refusal<Plain>(config), kRefusal);
}

TEST(TheConfigOfATrainer, WarnsOfAnEvaluationAtTheStartOfARunThatEvaluatesNothing) {
  const auto warnings = [](const TrainingConfig& training) {
    std::string text;
    for (const auto& error : detail::check_training(training, {})) {
      EXPECT_EQ(error.severity, Severity::warning);
      text += error.field + ": " + error.text + '\n';
    }
    return text;
  };
  EXPECT_EQ(warnings({.eval_at_start = true}),
            "eval_at_start: nothing is evaluated: set eval_every or eval_every_epochs\n");
  EXPECT_EQ(warnings({.eval_every = 1, .eval_at_start = true}), "");
}

TEST(TheConfigOfATrainer, IsRefusedWhereSGDCannotLeaveOutSteps) {
  constexpr auto kRefusal =
      "SGD with momentum and dampening cannot leave steps out, which a scaled loss and "
      "training.spike_factor need: set dampening=0";
  using Guarded = Trainer<Line, Ones, SGD, Float32, SingleDevice>;
  Guarded::Config config;
  config.optimizer = {.momentum = 0.9, .dampening = 0.5};
  EXPECT_EQ(refusal<Guarded>(config), "none");
  config.training.spike_factor = 4;
  EXPECT_EQ(refusal<Guarded>(config), kRefusal);
  config.optimizer.momentum = 0;
  EXPECT_EQ(refusal<Guarded>(config), "none") << "dampening acts on momentum only";
  using Scaled = Trainer<Line, Ones, SGD, AutocastFP16, SingleDevice>;
  Scaled::Config scaled;
  scaled.optimizer = {.momentum = 0.9, .dampening = 0.5};
  EXPECT_EQ(refusal<Scaled>(scaled), kRefusal);
}

TEST(TheConfigOfATrainer, IsRefusedForAHomeFolderThatNoShellHasNamed) {
  Plain::Config config;
  config.training.save_dir = "~/runs";
  EXPECT_EQ(refusal<Plain>(config),
            "training.save_dir: \"~/runs\": ~ is no home folder here, since no shell has replaced it: write $HOME/runs "
            "as an argument, ${oc.env:HOME}/runs in a file, or ./~/runs for a folder with the name ~");
  config.training = {
      .save_dir = "./~/runs", .metrics = "~rows", .csv = "~/rows.csv", .tensorboard = "~", .profile = "~/p"};
  const auto both = refusal<Plain>(config);
  EXPECT_TRUE(both.starts_with("training.csv: \"~/rows.csv\": ~ is ")) << both;
  EXPECT_NE(both.find("\ntraining.tensorboard: \"~\": ~ is "), std::string::npos) << both;
  EXPECT_NE(both.find("\ntraining.profile: \"~/p\": ~ is "), std::string::npos) << both;
  config.training = {.profile = "s3://bucket/p", .cuda_graph = true};
  EXPECT_EQ(refusal<Plain>(config),
            "training.profile: \"s3://bucket/p\" is in a bucket: name a folder on a disk\n"
            "training.profile: a step that is replayed as a CUDA graph does not show its parts: set cuda_graph=false");
}

TEST(TheConfigOfATrainer, IsRefusedInEveryPart) {
  using Composed = Trainer<Line, Ones, AdamW, AutocastFP16, FSDP>;
  Composed::Config config;
  config.precision.scaler.growth_factor = 1;
  config.strategy.unit_bytes = -1;
  EXPECT_EQ(refusal<Composed>(config),
            "precision.scaler.growth_factor: \"1.0\" is out of range (allowed: above 1)\n"
            "strategy.unit_bytes: \"-1\" is out of range (allowed: at least 0, in bytes, or as 64kB, 25MiB, 2GB)");
}

std::string refusal_of_making(const Plain::Config& config, const std::shared_ptr<Line>& model) {
  Group alone;
  try {
    const Plain trainer{alone, model, std::make_shared<Ones>(), config};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(TheConfigOfATrainer, IsRefusedWhereThereIsNothingToEvaluateOn) {
  EXPECT_EQ(refusal_of_making({.batch_size = 2}, std::make_shared<Line>()), "none");
  EXPECT_EQ(
      refusal_of_making({.batch_size = 2, .training = {.eval_every = 1}}, std::make_shared<Line>()),
      "training.eval_every: there is no validation set to evaluate on: give the trainer one, or set eval_every=0");
  EXPECT_EQ(refusal_of_making({.batch_size = 2, .training = {.eval_every = 1, .eval_every_epochs = 1}},
                              std::make_shared<Line>()),
            "training.eval_every: there is no validation set to evaluate on: give the trainer one, or set eval_every=0 "
            "and eval_every_epochs=0");
  EXPECT_EQ(refusal_of_making({}, nullptr), "a trainer needs a model and a dataset: one of them is null");
}

}  // namespace
}  // namespace ddpxx::checked_config_test
