// Observers of a training: what they see, what they may change, and how they end it.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/observe/metrics_file.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"
#include "training_run.hpp"

namespace ddpxx::observers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Train = Trainer<GPT, Tokens>;

Train::Config make_config(const Group& group, std::int64_t max_steps) {
  Train::Config config;
  config.batch_size = kGlobalBatch / group.size();
  config.training = {.max_steps = max_steps, .max_epochs = 0, .seed = 5};
  config.optimizer.learning_rate = 1e-2;
  return config;
}
std::shared_ptr<GPT> make_model() {
  at::manual_seed(3);
  return std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8}, 11, 8);
}
std::shared_ptr<const Tokens> make_data() { return std::make_shared<const Tokens>(); }
at::Tensor weights_of(const GPT& model) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : model.parameters()) all.push_back(parameter.detach().flatten());
  return at::cat(all);
}
/// Records the events that it receives.
struct Recorder : Observer {
  std::string name() const override { return "the recorder"; }
  void on_begin(const RunBegan& run) override { add("begin", run.step); }
  Verdict on_step(const StepDone& step) override {
    EXPECT_GT(step.loss, 0);
    EXPECT_GT(step.at.time, 0);
    return add("step", step.step);
  }
  Verdict on_evaluated(const Evaluated& evaluated) override { return add("evaluated", evaluated.step); }
  void on_snapshot(const SnapshotSaved& saved) override { add("snapshot", saved.step); }
  void before_optimizer_step(const std::span<const Slice>& slices) override {
    EXPECT_FALSE(slices.empty());
    add("gradients", -1);
  }
  void on_end(const RunEnded& run) override { add("end", run.step); }

  Verdict add(const std::string& what, std::int64_t step) {
    events += what + (step < 0 ? "" : ' ' + std::to_string(step)) + ", ";
    return what == stops_at ? Verdict::stop : Verdict::go_on;
  }
  std::string events, stops_at;
};

TEST(Observers, SeeARunFromItsBeginToItsEndOnEachRank) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 4);
    config.training.eval_every = 2;
    config.training.save_dir = (folder / "run").string();
    Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
    const auto recorder = std::make_shared<Recorder>();
    trainer.add(recorder);
    trainer.fit();
    EXPECT_EQ(recorder->events, std::string{"begin 0, gradients, gradients, step 1, step 2, evaluated 2, "
                                            "gradients, gradients, step 3, step 4, evaluated 4, "} +
                                    (group.rank() == 0 ? "snapshot 4, " : "") + "end 4, ");
  });
}

TEST(Observers, SeeAnEvaluationOfANewRunBeforeItsFirstStepWhereThatIsAskedFor) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    const auto events_of = [&](std::int64_t max_steps) {
      auto config = make_config(group, max_steps);
      config.training.eval_every = 2;
      config.training.eval_at_start = true;
      config.training.save_dir = (folder / "run").string();
      config.snapshot.keep_best = 1;
      Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
      const auto recorder = std::make_shared<Recorder>();
      trainer.add(recorder);
      trainer.fit();
      return recorder->events;
    };
    const std::string saved_2 = group.rank() == 0 ? "snapshot 2, " : "";
    EXPECT_EQ(events_of(2),
              "begin 0, evaluated 0, gradients, gradients, step 1, step 2, evaluated 2, " + saved_2 + "end 2, ");
    const std::string saved_3 = group.rank() == 0 ? "snapshot 3, " : "";
    EXPECT_EQ(events_of(3), "begin 2, gradients, step 3, evaluated 3, " + saved_3 + "end 3, ")
        << "a run that resumes has been evaluated";
    auto config = make_config(group, 3);
    config.training.eval_every = 2;
    config.training.eval_at_start = true;
    config.snapshot.name = (folder / "run").string() + ":2";
    Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
    const auto recorder = std::make_shared<Recorder>();
    trainer.add(recorder);
    trainer.fit();
    EXPECT_EQ(recorder->events, "begin 2, evaluated 2, gradients, step 3, evaluated 3, end 3, ")
        << "a new run that begins with a snapshot";
  });
}

TEST(Observers, SeeAnEvaluationAfterEverySecondEpochAndAtTheEnd) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    const auto evaluated = [&](std::int64_t max_epochs) {
      auto config = make_config(group, 0);
      config.training.max_epochs = max_epochs;
      config.training.eval_every_epochs = 2;
      config.training.save_dir = (folder / "run").string();
      Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
      struct Evaluations : Observer {
        std::string name() const override { return "the evaluations"; }
        Verdict on_evaluated(const Evaluated& evaluated) override {
          steps.push_back(evaluated.step);
          return Verdict::go_on;
        }
        std::vector<std::int64_t> steps;
      };
      const auto evaluations = std::make_shared<Evaluations>();
      trainer.add(evaluations);
      trainer.fit();
      std::vector<std::int64_t> epochs;
      for (const auto step : evaluations->steps) {
        EXPECT_EQ(step % trainer.steps_per_epoch(), 0);
        epochs.push_back(step / trainer.steps_per_epoch());
      }
      return epochs;
    };
    EXPECT_THAT(evaluated(5), testing::ElementsAre(2, 4, 5));
    EXPECT_THAT(evaluated(8), testing::ElementsAre(6, 8)) << "after it was resumed";
  });
}

TEST(Observers, StopAllRanksAfterTheSameStepByTheVoteOfOne) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 100);
    config.training.save_dir = (folder / "run").string();
    Train trainer{group, make_model(), make_data(), config};
    struct StopAtThree : Observer {
      std::string name() const override { return "stop at three"; }
      Verdict on_step(const StepDone& step) override { return step.step == 3 ? Verdict::stop : Verdict::go_on; }
    };
    if (group.rank() == 1) trainer.add(std::make_shared<StopAtThree>());
    trainer.fit();
    auto steps = at::full({1}, trainer.steps_done(), at::kLong);
    broadcast(steps, group);
    EXPECT_EQ(steps.item<std::int64_t>(), trainer.steps_done());
    EXPECT_GE(trainer.steps_done(), 5);
    EXPECT_LE(trainer.steps_done(), 8);
  });
  EXPECT_TRUE(std::filesystem::exists(folder / "run")) << "the run must be saved";
}

TEST(Observers, LeaveTheNumbersOfTheRunAsTheyAre) {
  spawn_ranks(2, [&](Group& group) {
    struct Throws : Observer {
      std::string name() const override { return "the thrower"; }
      Verdict on_step(const StepDone&) override { throw std::runtime_error{"out of ink"}; }
    };
    const auto weights_after = [&](bool watched) {
      Train trainer{group, make_model(), make_data(), make_config(group, 5)};
      if (watched && group.rank() == 1) trainer.add(std::make_shared<Throws>());
      if (watched) trainer.add(std::make_shared<Recorder>());
      trainer.fit();
      return weights_of(trainer.model());
    };
    EXPECT_TRUE(at::equal(weights_after(false), weights_after(true)));
  });
}

TEST(Observers, MayEvaluateAndSaveWhileTheLastStepsAreRead) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    struct Acts : Observer {
      std::string name() const override { return "the actor"; }
      Verdict on_step(const StepDone& step) override {
        steps.push_back(step.step);
        if (step.step != 3) return Verdict::go_on;  // it is read before the evaluation of step 4
        trainer->evaluate();
        trainer->save();
        EXPECT_EQ(code_of([&] { trainer->step(); }), Errc::config);
        return Verdict::go_on;
      }
      Train* trainer = nullptr;
      std::vector<std::int64_t> steps;
    };
    auto config = make_config(group, 6);
    config.training.eval_every = 4;
    const auto weights_after = [&](bool acts) {
      config.training.save_dir = (folder / (acts ? "acts" : "plain")).string();
      Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
      const auto actor = std::make_shared<Acts>();
      actor->trainer = &trainer;
      const auto recorder = std::make_shared<Recorder>();
      if (acts) trainer.add(actor);
      trainer.add(recorder);
      trainer.fit();
      if (acts) EXPECT_EQ(actor->steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
      if (acts && group.rank() == 0) EXPECT_THAT(recorder->events, HasSubstr("snapshot 4"));
      return weights_of(trainer.model());
    };
    EXPECT_TRUE(at::equal(weights_after(false), weights_after(true)));
  });
  std::filesystem::remove_all(folder / "acts" / "step-00000006");
  const auto saved = load_snapshot(folder / "acts");
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->run.step, 4);
  EXPECT_EQ(saved->run.tokens, 4 * kGlobalBatch * 8) << "the tokens of all steps before the snapshot";
}

TEST(Observers, MaySaveTheParametersOnceTheirAverageIsEvaluated) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    struct SavesEvaluated : Observer {
      std::string name() const override { return "the saver"; }
      void on_evaluating(const Evaluating&) override {
        EXPECT_THAT(error_of([&] { trainer->save(); }), HasSubstr("an evaluation: call it in on_evaluated"));
        EXPECT_THAT(error_of([&] { trainer->evaluate(); }), HasSubstr("an evaluation: call it in on_step"));
        EXPECT_THAT(error_of([&] { trainer->step(); }), HasSubstr("an evaluation: call it in the training loop"));
      }
      Verdict on_evaluated(const Evaluated&) override {
        trainer->save();
        EXPECT_THAT(error_of([&] { trainer->evaluate(); }), HasSubstr("an evaluation: call it in on_step"));
        EXPECT_THAT(error_of([&] { trainer->step(); }), HasSubstr("an evaluation: call it in the training loop"));
        return Verdict::go_on;
      }
      Train* trainer = nullptr;
    };
    const auto run = [&](bool acts) {
      auto config = make_config(group, 4);
      config.training.ema_decay = 0.5;
      config.training.eval_every = 2;
      config.training.save_every = acts ? 0 : 2;
      config.training.save_dir = (folder / (acts ? "acts" : "plain")).string();
      Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
      const auto saver = std::make_shared<SavesEvaluated>();
      saver->trainer = &trainer;
      if (acts) trainer.add(saver);
      trainer.fit();
    };
    run(/*acts=*/true);
    run(/*acts=*/false);
  });
  for (const std::int64_t step : {4, 2}) {
    const auto acts = load_snapshot(folder / "acts"), plain = load_snapshot(folder / "plain");
    ASSERT_TRUE(acts && plain);
    EXPECT_EQ(acts->run.step, step);
    EXPECT_EQ(acts->run.metrics, plain->run.metrics);
    ASSERT_EQ(acts->tensors.size(), plain->tensors.size());
    for (const auto& [name, tensor] : plain->tensors) EXPECT_TRUE(at::equal(acts->tensors.at(name), tensor)) << name;
    for (const char* name : {"acts", "plain"})
      std::filesystem::remove_all(folder / name / ("step-0000000" + std::to_string(step)));
  }
}

TEST(Observers, EndTheRankThatFailsBeforeItsOptimizerStep) {
  spawn_ranks(1, [&](Group& group) {
    struct Throws : Observer {
      std::string name() const override { return "the thrower"; }
      void before_optimizer_step(const std::span<const Slice>&) override { throw std::runtime_error{"no gradients"}; }
    };
    Train trainer{group, make_model(), make_data(), make_config(group, 5)};
    const auto before = weights_of(trainer.model()).clone();
    trainer.add(std::make_shared<Throws>());
    EXPECT_THAT([&] { trainer.fit(); }, testing::ThrowsMessage<std::runtime_error>("no gradients"));
    EXPECT_TRUE(at::equal(weights_of(trainer.model()), before));
  });
}

TEST(Observers, SeeAveragedGradientsAndMayChangeThem) {
  spawn_ranks(2, [&](Group& group) {
    struct Zeros : Observer {
      explicit Zeros(Group& ranks) : group{&ranks} {}
      std::string name() const override { return "zeros"; }
      void before_optimizer_step(const std::span<const Slice>& slices) override {
        for (const auto& slice : slices) {
          auto first = slice.gradients.clone();
          broadcast(first, *group);
          EXPECT_TRUE(at::equal(first, slice.gradients)) << "a hook must see the average of all ranks";
          EXPECT_GT(slice.gradients.abs().max().item<double>(), 0);
          at::Tensor{slice.gradients}.zero_();
        }
      }
      Group* group;
    };
    auto config = make_config(group, 3);
    config.optimizer.weight_decay = 0;
    Train trainer{group, make_model(), make_data(), config};
    const auto before = weights_of(trainer.model()).clone();
    trainer.add(std::make_shared<Zeros>(group));
    trainer.fit();
    EXPECT_TRUE(at::equal(weights_of(trainer.model()), before));
  });
}

TEST(Observers, KeepAllRanksFromBeginningWhereOneCannot) {
  spawn_ranks(2, [&](Group& group) {
    struct NoBegin : Observer {
      std::string name() const override { return "no begin"; }
      void on_begin(const RunBegan&) override { throw Error{Errc::config, "this day is a holiday"}; }
    };
    Train trainer{group, make_model(), make_data(), make_config(group, 3)};
    if (group.rank() == 1) trainer.add(std::make_shared<NoBegin>());
    EXPECT_THAT(error_of([&] { trainer.fit(); }), HasSubstr("this day is a holiday"));
    EXPECT_EQ(trainer.steps_done(), 0);
  });
}

TEST(Observers, AreToldOfTheEndWhereARunCannotBegin) {
  const TemporaryFolder folder;
  struct LateBegin : Observer {
    std::string name() const override { return "late begin"; }
    void on_begin(const RunBegan&) override {
      if (std::exchange(fails, false)) throw Error{Errc::config, "the doors are closed"};
    }
    bool fails = true;
  };
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 2);
    config.training.metrics = folder / "metrics.jsonl";
    Train trainer{group, make_model(), make_data(), config};
    const auto before = std::make_shared<Recorder>(), after = std::make_shared<Recorder>();
    trainer.add(before);
    if (group.rank() == 1) trainer.add(std::make_shared<LateBegin>());
    trainer.add(after);
    EXPECT_THAT(error_of([&] { trainer.fit(); }), HasSubstr("the doors are closed"));
    EXPECT_EQ(before->events, "begin 0, end 0, ");
    EXPECT_EQ(after->events, group.rank() == 0 ? "begin 0, end 0, " : "") << "an end without a begin";
    if (group.rank() == 0) {
      MetricsFile of_another_run{folder / "metrics.jsonl"};
      EXPECT_NO_THROW(of_another_run.on_begin({})) << "the file is still locked";
      of_another_run.on_end({});
    }
    const auto added = std::make_shared<Recorder>();
    EXPECT_NO_THROW(trainer.add(added)) << "nothing runs, so an observer may be added";
    trainer.fit();
    EXPECT_EQ(added->events.rfind("end 2, "), added->events.size() - 7) << added->events;
  });
}

TEST(Observers, DoNotSeeGradientsWhereTheStrategyStepsInBackward) {
  spawn_ranks(1, [&](Group& group) {
    using InBackward = Trainer<GPT, Tokens, AdamW, Float32, StepInBackward<DDP>>;
    InBackward::Config config;
    config.training = {.max_steps = 2, .max_epochs = 0, .grad_norm_clip = 0};
    InBackward trainer{group, make_model(), make_data(), config};
    const auto recorder = std::make_shared<Recorder>();
    trainer.add(recorder);
    trainer.fit();
    EXPECT_EQ(recorder->events, "begin 0, step 1, step 2, end 2, ");
  });
}

TEST(ConfiguredObservers, WriteTheFilesAndStopEarly) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 100);
    config.training.eval_every = 1;
    config.training.csv = (folder / "m.csv").string();
    config.training.tensorboard = (folder / "board").string();
    config.early_stopping = {.metric = "val_loss", .patience = 2, .min_delta = 100};
    Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
    trainer.fit();
    EXPECT_EQ(trainer.steps_done(), 4) << "the ranks must read the vote of the third evaluation in the next step";
  });
  std::ifstream csv{folder / "m.csv"};
  std::string header;
  std::getline(csv, header);
  EXPECT_THAT(header, HasSubstr("step,epoch,loss"));
  EXPECT_FALSE(std::filesystem::is_empty(folder / "board"));
}

TEST(ConfiguredObservers, ShowProgressAsOftenAsTheSettingSays) {
  Group alone;
  const auto lines_with = [&](double progress_every) {
    auto config = make_config(alone, 6);
    config.training.progress_every = progress_every;
    std::ostringstream screen;
    Train trainer{alone, make_model(), make_data(), config, {}, {.screen = &screen}};
    trainer.fit();
    std::int64_t lines = 0;
    std::istringstream text{screen.str()};
    for (std::string line; std::getline(text, line);) lines += line.starts_with("step ");
    return lines;
  };
  EXPECT_EQ(lines_with(0), 6);
  EXPECT_EQ(lines_with(1e9), 2) << "the first step and the last one";
}

TEST(ConfiguredObservers, RefuseTheFileOfAnotherRunOnAllRanksBeforeTheFirstStep) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 3);
    config.training.metrics = (folder / "m.jsonl").string();
    MetricsFile of_another_run{folder / "m.jsonl"};
    if (group.rank() == 0) of_another_run.on_begin({});
    Train trainer{group, make_model(), make_data(), config};
    EXPECT_THAT(error_of([&] { trainer.fit(); }), HasSubstr("m.jsonl is in use by another run"));
    EXPECT_EQ(trainer.steps_done(), 0);
    if (group.rank() == 0) of_another_run.on_end({});
    trainer.fit();
    EXPECT_EQ(trainer.steps_done(), 3);
  });
}

TEST(ConfiguredObservers, RefuseAMetricThatNoEvaluationHasOnAllRanks) {
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config(group, 100);
    config.training.eval_every = 1;
    config.early_stopping.metric = "val_los";
    Train trainer{group, make_model(), make_data(), config, {}, {.validation = make_data()}};
    EXPECT_THAT(error_of([&] { trainer.fit(); }),
                HasSubstr("early_stopping.metric: an evaluation has no val_los (it has: val_loss)"));
    EXPECT_EQ(trainer.steps_done(), 1);
  });
}

TEST(ConfiguredObservers, RefuseTwoKindsOfRowsInOneFile) {
  Train::Config config;
  config.training.metrics = "rows";
  config.training.csv = "./rows";
  EXPECT_THAT(error_of([&] { Train::check(config); }), HasSubstr("training.csv: is the file of training.metrics"));
}

TEST(Factors, OfOneOrLessAreRefused) {
  for (const double factor : {0.5, 1.0}) {
    Train::Config config;
    config.training.slow_rank_factor = config.training.spike_factor = factor;
    EXPECT_THAT(error_of([&] { Train::check(config); }),
                AllOf(HasSubstr("training.slow_rank_factor: a rank as fast as the median would count as slow"),
                      HasSubstr("training.spike_factor: ordinary steps would be left out: set it to more than 1")));
  }
}

TEST(Observers, SeeTheBeginOfALoopWithoutResumeBeforeItsFirstStep) {
  spawn_ranks(1, [&](Group& group) {
    Train trainer{group, make_model(), make_data(), make_config(group, 2)};
    const auto recorder = std::make_shared<Recorder>();
    trainer.add(recorder);
    trainer.step();
    EXPECT_THAT(error_of([&] { trainer.add(std::make_shared<Recorder>()); }), HasSubstr("the run has begun"));
    trainer.step();
    trainer.close();
    EXPECT_EQ(recorder->events, "begin 0, gradients, gradients, step 1, step 2, end 2, ");
  });
}

TEST(ConfiguredObservers, RefuseEarlyStoppingWithoutEvaluations) {
  Train::Config config;
  config.early_stopping.metric = "val_loss";
  EXPECT_THAT(
      error_of([&] { Train::check(config); }),
      HasSubstr("early_stopping.metric: nothing is evaluated: set training.eval_every, or training.eval_every_epochs"));
}

}  // namespace
}  // namespace ddpxx::observers_test
