// Metrics that a model defines: summed like the loss, in steps, evaluations and snapshots.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/evaluate.hpp>
#include <ddpxx/train/metric_sums.hpp>
#include <ddpxx/train/trainer.hpp>

#include "training_run.hpp"

namespace ddpxx::own_metrics_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Block : torch::nn::Cloneable<Block>, Layer {
  Block() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(8, 8)); }
  at::Tensor forward(const at::Tensor& x) { return x + torch::tanh(linear(x)); }
  torch::nn::Linear linear{nullptr};
};

/// Predicts the next token and counts the correct predictions; the metric `sevens` counts only targets that are 7.
struct Classifier : torch::nn::Cloneable<Classifier> {
  Classifier() { reset(); }
  void reset() override {
    table = register_module("table", torch::nn::Embedding(11, 8));
    block = register_module("block", std::make_shared<Block>());
    head = register_module("head", torch::nn::Linear(8, 11));
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    const auto logits = head(run(*block, table(batch.inputs)));
    const auto hits = logits.argmax(-1).eq(batch.targets);
    const auto sevens = batch.targets.eq(7);
    return {torch::cross_entropy_loss(logits.flatten(0, 1), batch.targets.flatten(), {}, at::Reduction::Sum),
            {{"accuracy", hits.sum()}, {"sevens", hits.logical_and(sevens).sum(), sevens.sum()}}};
  }
  torch::nn::Embedding table{nullptr};
  std::shared_ptr<Block> block;
  torch::nn::Linear head{nullptr};
};
std::shared_ptr<Classifier> make_classifier() {
  at::manual_seed(3);
  return std::make_shared<Classifier>();
}

struct Numbers {
  std::vector<Metrics> steps, evaluations;
};
/// Keeps the metrics of steps and evaluations.
struct Keeper : Observer {
  std::string name() const override { return "keeper"; }
  Verdict on_step(const StepDone& step) override {
    seen.steps.push_back(step.metrics);
    return Verdict::go_on;
  }
  Verdict on_evaluated(const Evaluated& evaluated) override {
    seen.evaluations.push_back(evaluated.metrics);
    return Verdict::go_on;
  }
  Numbers seen;
};

template <class Strategy>
using Train = Trainer<Classifier, Tokens, SGD, Float32, Strategy>;

/// The metrics of three steps and two evaluations, with a global batch of 12 samples.
template <class Strategy>
Numbers numbers_of(Group& group, std::int64_t accumulation_steps, typename Train<Strategy>::Config config = {}) {
  config.batch_size = kGlobalBatch / group.size() / accumulation_steps;
  config.training.max_steps = 3;
  config.training.max_epochs = 0;
  config.training.eval_every = 2;
  config.training.accumulation_steps = accumulation_steps;
  config.optimizer.learning_rate = 0.5;
  Train<Strategy> trainer{
      group, make_classifier(), std::make_shared<Tokens>(), config, {}, {.validation = std::make_shared<Tokens>()}};
  const auto keeper = std::make_shared<Keeper>();
  trainer.add(keeper);
  trainer.fit();
  return keeper->seen;
}
void expect_equal(const std::vector<Metrics>& got, const std::vector<Metrics>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size()) << i;
    for (std::size_t j = 0; j < got[i].size(); ++j) {
      EXPECT_EQ(got[i][j].name, expected[i][j].name);
      EXPECT_EQ(got[i][j].value, expected[i][j].value) << got[i][j].name << " of " << i;
    }
  }
}
Numbers of_one_process() {
  Group alone;
  return numbers_of<SingleDevice>(alone, 1);
}
/// Expects on each rank the numbers of one process.
template <class Strategy>
void expect_numbers_of_one_process(int ranks, std::int64_t accumulation_steps,
                                   const typename Strategy::Config& strategy = {}) {
  const auto expected = of_one_process();
  spawn_ranks(ranks, [&](Group& group) {
    typename Train<Strategy>::Config config;
    config.strategy = strategy;
    const auto numbers = numbers_of<Strategy>(group, accumulation_steps, config);
    expect_equal(numbers.steps, expected.steps);
    expect_equal(numbers.evaluations, expected.evaluations);
  });
}

TEST(OwnMetrics, AreMeansOverTheTargetsOrOverACountOfTheirOwn) {
  const auto numbers = of_one_process();
  ASSERT_EQ(numbers.steps.size(), 3U);
  ASSERT_EQ(numbers.evaluations.size(), 2U);
  const auto model = make_classifier();
  PlainCall plain;
  LayerRunner run{plain};
  std::vector<std::int64_t> indices(static_cast<std::size_t>(Tokens{}.size()));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  Group alone;
  Train<SingleDevice>::Config config;
  config.training.eval_every = 1;
  Train<SingleDevice> trainer{alone,  model, std::make_shared<Tokens>(),
                              config, {},    {.validation = std::make_shared<Tokens>()}};
  const auto result = trainer.evaluate();
  const auto batch = Tokens{}.batch(indices);
  const auto expected = model->forward(run, batch).metrics;
  ASSERT_EQ(result.metrics.size(), 2U);
  EXPECT_EQ(result.metrics[0].name, "accuracy");
  EXPECT_EQ(result.metrics[0].value, expected[0].sum.item<double>() / static_cast<double>(batch.num_tokens));
  EXPECT_EQ(result.metrics[1].name, "sevens");
  EXPECT_EQ(result.metrics[1].value, expected[1].sum.item<double>() / expected[1].count.item<double>());
}

TEST(OwnMetrics, OfTwoRanksAndTwoMicroBatchesEqualThoseOfOneProcess) { expect_numbers_of_one_process<DDP>(2, 2); }
TEST(OwnMetrics, AreCountedOnceWhereLayersRunTwice) {
  expect_numbers_of_one_process<Recompute<FSDP>>(2, 1, {.recompute = {.policy = RecomputeConfig::Policy::every}});
}
TEST(OwnMetrics, AreAddedUpOverTheReplicasOfDataParallel) {
  expect_numbers_of_one_process<DataParallel>(1, 1, {.replicas = 3});
}

TEST(OwnMetrics, OfAnEvaluationCountEachSampleOnceWhereARankHasNone) {
  const auto evaluate_on = [](Group& group, std::int64_t samples) {
    Train<DDP>::Config config;
    config.batch_size = 1;
    config.training.eval_every = 1;
    config.training.eval_samples = samples;
    return Train<DDP>{
        group, make_classifier(), std::make_shared<Tokens>(), config, {}, {.validation = std::make_shared<Tokens>()}}
        .evaluate();
  };
  for (const std::int64_t samples : {1, 4}) {
    Group alone;
    const auto expected = evaluate_on(alone, samples);
    spawn_ranks(3, [&](Group& group) { expect_equal({evaluate_on(group, samples).metrics}, {expected.metrics}); });
  }
}

class OwnMetricsRun : public TrainingRun {};

TEST_F(OwnMetricsRun, AreInRowsAndInSnapshots) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  Group alone;
  Train<SingleDevice>::Config config;
  config.training.metrics = path.string();
  config.training.save_dir = place().string();
  const auto numbers = numbers_of<SingleDevice>(alone, 1, config);
  std::ifstream file{path};
  std::vector<double> of_steps, of_evaluations;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("accuracy")) of_steps.push_back(row["accuracy"]);
    if (row.contains("val_accuracy")) of_evaluations.push_back(row["val_accuracy"]);
  }
  ASSERT_EQ(of_steps.size(), 3U);
  ASSERT_EQ(of_evaluations.size(), 2U);
  EXPECT_EQ(of_steps[2], numbers.steps[2][0].value);
  EXPECT_EQ(of_evaluations[1], numbers.evaluations[1][0].value);
  const auto saved = snapshot().run.metrics;
  EXPECT_EQ(saved.at("accuracy"), of_evaluations[1]);
  EXPECT_TRUE(saved.contains("loss"));
}

/// A model with a score for each of the three evaluations of a run.
struct Rated : Classifier {
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    auto loss = Classifier::forward(run, batch);
    if (!is_training()) loss.metrics = {{"rating", torch::tensor(std::vector<int>{5, 9, 7}.at(evaluations++ / 4))}};
    return loss;
  }
  std::size_t evaluations = 0;
};

/// Takes three steps with an evaluation after each, and saves at `place`.
void train_rated(const std::string& place, std::int64_t save_every, const SnapshotConfig& snapshot) {
  Group alone;
  using Ranked = Trainer<Rated, Tokens, SGD, Float32, SingleDevice>;
  Ranked::Config config;
  config.batch_size = kGlobalBatch;
  config.training = {.max_steps = 3, .max_epochs = 0, .save_dir = place, .save_every = save_every, .eval_every = 1};
  config.snapshot = snapshot;
  Ranked{alone,
         std::make_shared<Rated>(),
         std::make_shared<Tokens>(),
         config,
         {},
         {.validation = std::make_shared<Tokens>()}}
      .fit();
}

TEST_F(OwnMetricsRun, SaveTheBestEvaluationsAtOnce) {
  const auto steps_with = [&](std::int64_t keep_best, MetricMode mode) {
    forget();
    train_rated(place().string(), 0, {.keep_last = 0, .keep_best = keep_best, .best_by = "rating", .best_mode = mode});
    return steps();
  };
  using testing::UnorderedElementsAre;
  EXPECT_THAT(steps_with(0, MetricMode::max), UnorderedElementsAre(3)) << "the last step is always saved";
  EXPECT_THAT(steps_with(1, MetricMode::max), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(steps_with(1, MetricMode::min), UnorderedElementsAre(1, 3));
  EXPECT_THAT(steps_with(2, MetricMode::min), UnorderedElementsAre(1, 2, 3));
}

TEST_F(OwnMetricsRun, SaveTheNextBestWhereASaveHasFailed) {
  spawn_ranks(1, [&](Group& group) {
    ::setenv("DDPXX_FAILPOINT", "snapshot.before_commit:throw@1", 1);
    using Ranked = Trainer<Rated, Tokens, SGD, Float32, SingleDevice>;
    Ranked::Config config;
    config.batch_size = kGlobalBatch;
    config.training.save_dir = place().string();
    config.training.eval_every = 1;
    config.snapshot = {.writing = SnapshotWriting::background,
                       .on_failure = SnapshotFailure::go_on,
                       .keep_last = 0,
                       .keep_best = 1,
                       .best_by = "rating",
                       .best_mode = MetricMode::min};
    Ranked trainer{group,
                   std::make_shared<Rated>(),
                   std::make_shared<Tokens>(),
                   config,
                   {},
                   {.validation = std::make_shared<Tokens>()}};
    trainer.resume();
    for (int i = 0; i < 2; ++i) {
      trainer.step();
      trainer.evaluate();
      trainer.save();  // the second one waits for the first one, which fails
    }
    trainer.step();
    trainer.evaluate();
    EXPECT_TRUE(trainer.save_due()) << "7 is better than 9, the only rating of which there is a snapshot";
    trainer.close();
  });
  EXPECT_THAT(steps(), testing::UnorderedElementsAre(2, 3));
}

TEST_F(OwnMetricsRun, RankTheSnapshotsToKeep) {
  const auto train_ranked = [&](const std::string& best_by) {
    train_rated(place().string(), 1,
                {.keep_last = 1, .keep_best = 1, .best_by = best_by, .best_mode = MetricMode::max});
  };
  train_ranked("rating");
  EXPECT_THAT(steps(), testing::UnorderedElementsAre(2, 3));
  forget();
  try {
    train_ranked("score");
    FAIL() << "a run without a score was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(), "snapshot.best_by: an evaluation has no score (it has: loss, rating)");
  }
}

/// A model whose metrics are given by the test.
struct Says : torch::nn::Module {
  Says() { weight = register_parameter("weight", torch::ones({1})); }
  Loss forward(const Batch& batch) {
    return {(weight * batch.targets).sum(), metrics ? metrics(++calls) : std::vector<NamedSum>{}};
  }
  at::Tensor weight;
  int calls = 0;
  std::function<std::vector<NamedSum>(int call)> metrics;
};
const std::vector<Batch>& batches() {
  static const std::vector<Batch> all{Tokens{}.batch(std::vector<std::int64_t>{1, 2}),
                                      Tokens{}.batch(std::vector<std::int64_t>{3, 4})};
  return all;
}
NamedSum one(const std::string& name) { return {name, torch::ones({})}; }
/// The error of a run of `steps` steps with two micro-batches each.
std::string error_of(Group& group, int steps, std::function<std::vector<NamedSum>(int call)> metrics, Errc code) {
  auto model = std::make_shared<Says>();
  model->metrics = std::move(metrics);
  TrainStep<Says, SGD> step{group, model, {.optimizer = {.learning_rate = 1e-3}}};
  try {
    for (int i = 0; i < steps; ++i) step.step(batches());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "none";
}

TEST(OwnMetrics, ThatDifferBetweenTheRanksEndAllOfThemAfterTheFirstStep) {
  spawn_ranks(3, [&](Group& group) {
    const auto metrics = [&](int) {
      std::vector<NamedSum> metrics{one("accuracy")};
      if (group.rank() == 1) metrics.push_back(one("top5"));
      return metrics;
    };
    EXPECT_EQ(error_of(group, 1, metrics, Errc::peer),
              "the model returned different metrics on different ranks: [accuracy] on ranks 0, 2, [accuracy, top5] on "
              "rank 1; return the same names in the same order on every rank");
  });
  spawn_ranks(2, [&](Group& group) {
    const auto metrics = [&](int) {
      return group.rank() == 0 ? std::vector<NamedSum>{} : std::vector<NamedSum>{one("accuracy")};
    };
    EXPECT_THAT(error_of(group, 1, metrics, Errc::peer), HasSubstr("[] on rank 0, [accuracy] on rank 1"));
  });
}

TEST(OwnMetrics, ThatDifferBetweenStepsOrMicroBatchesAreRefused) {
  Group alone;
  const auto from_call = [](int first) {
    return [first](int call) {
      return call < first ? std::vector<NamedSum>{one("a"), one("b")} : std::vector<NamedSum>{one("b"), one("a")};
    };
  };
  EXPECT_EQ(error_of(alone, 3, from_call(5), Errc::config),
            "the model returned the metrics [b, a] in step 3, but [a, b] in step 1: return the same names in the same "
            "order in each step");
  EXPECT_THAT(error_of(alone, 3, from_call(4), Errc::config),
              HasSubstr("[b, a] for a batch, but [a, b] for an earlier one: return the same names"));
}

TEST(OwnMetrics, ThatDifferInOneStepEndItBeforeAParameterChanges) {
  Group alone;
  auto model = std::make_shared<Says>();
  model->metrics = [](int call) {
    const bool is_third_step = call == 5 || call == 6;
    return is_third_step ? std::vector<NamedSum>{} : std::vector<NamedSum>{one("a"), one("b")};
  };
  TrainStep<Says, SGD> step{alone, model, {.optimizer = {.learning_rate = 1e-2}}};
  std::vector<StepDone> rows;
  const auto keep = [&](const CompletedStep& done) { rows.push_back(done.row); };
  const auto take_two_steps = [&] {
    for (int i = 0; i < 2; ++i)
      if (const auto done = step.step(batches())) keep(*done);
  };
  take_two_steps();
  const auto weight = model->weight.detach().clone();
  EXPECT_THROW(step.step(batches()), Error);
  EXPECT_TRUE(at::equal(model->weight, weight));
  EXPECT_TRUE(step.can_try_again());
  take_two_steps();
  step.read_all(keep);
  ASSERT_EQ(rows.size(), 4U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, static_cast<std::int64_t>(i) + 1);
    ASSERT_EQ(rows[i].metrics.size(), 2U);
    EXPECT_EQ(rows[i].metrics[1].value, rows[0].metrics[1].value) << "each batch adds 1, over equally many targets";
  }
}

TEST(OwnMetrics, ThatHaveNoUsableNameOrSumAreRefused) {
  Group alone;
  const auto refusal = [&](std::vector<NamedSum> metrics) {
    return error_of(
        alone, 1, [&](int) { return metrics; }, Errc::config);
  };
  EXPECT_THAT(refusal({one("")}), HasSubstr("empty: give it a name"));
  EXPECT_THAT(refusal({one("a\nb")}), HasSubstr("leave them out"));
  EXPECT_THAT(refusal({one("a,b")}), HasSubstr("leave them out"));
  EXPECT_THAT(refusal({one("a\xFF")}), HasSubstr("which is not UTF-8"));
  EXPECT_THAT(refusal({one("a\\b")}), HasSubstr("a backslash or a control character: leave them out"));
  for (const auto* name : {"=A1", "+A1", "-A1", "@A1"})
    EXPECT_THAT(refusal({one(name)}), HasSubstr("as a formula: begin it with another character"));
  for (const auto* name : {"loss", "data_ms", "gpu_allocated_bytes", "gpu_reserved_bytes", "gpu_peak_bytes",
                           "gpu_retries", "slowest_rank", "slowest_rank_ms", "median_rank_ms"})
    EXPECT_THAT(refusal({one(name)}), HasSubstr("which is the name of another number")) << name;
  EXPECT_THAT(refusal({one("val_x")}), HasSubstr("choose another one"));
  EXPECT_THAT(refusal({one("x"), one("x")}), HasSubstr("'x', twice"));
  EXPECT_THAT(refusal({{"x", torch::ones({2})}}), HasSubstr("the metric x of the model needs a sum"));
  EXPECT_THAT(refusal({{"x", {}}}), HasSubstr("0-dim"));
}

TEST(OwnMetrics, OfThePartsOfABatchHaveEqualNamesAndCounts) {
  const auto refusal = [](std::vector<NamedSum> first, std::vector<NamedSum> second) {
    std::vector<std::vector<NamedSum>> parts{std::move(first), std::move(second)};
    try {
      join_metrics(parts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return std::string{error.what()};
    }
    return std::string{"none"};
  };
  const NamedSum counted{"a", torch::ones({}), torch::ones({})};
  EXPECT_EQ(refusal({one("a"), counted}, {one("a"), counted}), "none");
  EXPECT_EQ(refusal({one("a"), one("b")}, {one("a")}),
            "the model returned the metrics [a, b] for one part of a batch, but [a] for another: return the same names "
            "in the same order, each always with or always without a count");
  EXPECT_THAT(refusal({one("a")}, {counted}), HasSubstr("each always with or always without a count"));
  EXPECT_EQ(refusal({one("a")}, {{"a", torch::ones({2})}}),
            "the metric a of the model needs a sum over the batch as a 0-dim tensor, and a count, if it has one, as "
            "another: write for example x.sum()");
}

TEST(OwnMetrics, AreSumsOfAllRanksAndNoNumberWhereNothingWasCounted) {
  spawn_ranks(2, [&](Group& group) {
    auto model = std::make_shared<Says>();
    model->metrics = [&](int call) {
      const auto auxiliary = (model->weight * call).sum();  // the metric has a gradient, which must be ignored
      return std::vector<NamedSum>{{"share", torch::ones({}) * group.rank(), torch::tensor(2)},
                                   {"nothing", torch::zeros({}), torch::zeros({})},
                                   {"auxiliary", auxiliary, torch::ones({})}};
    };
    TrainStep<Says, SGD> step{group, model, {.grad_norm_clip = 0, .optimizer = {.learning_rate = 0.0}}};
    std::vector<StepDone> rows;
    const auto keep = [&](const CompletedStep& done) { rows.push_back(done.row); };
    for (int i = 0; i < 2; ++i)
      if (const auto done = step.step(batches())) keep(*done);
    step.read_all(keep);
    if (const auto done = step.step(batches())) keep(*done);
    step.read_all(keep);
    ASSERT_EQ(rows.size(), 3U);
    for (const auto& row : rows) {
      ASSERT_EQ(row.metrics.size(), 3U);
      EXPECT_EQ(row.metrics[0].value, 0.25) << "one rank has 2 of 4, the other 0 of 4";
      EXPECT_TRUE(std::isnan(row.metrics[1].value));
    }
    EXPECT_EQ(rows[0].metrics[2].value, 1.5) << "expected the mean of calls 1 and 2 on each rank";
    EXPECT_EQ(rows[2].metrics[2].value, 5.5);
    EXPECT_GT(rows[2].loss, 0);
  });
}

TEST(OwnMetrics, LeaveTheNumbersOfTheStepAsTheyAre) {
  Group alone;
  const auto losses = [&](bool with) {
    auto model = std::make_shared<Says>();
    if (with) model->metrics = [](int) { return std::vector<NamedSum>{one("a")}; };
    TrainStep<Says, SGD> step{alone, model, {.optimizer = {.learning_rate = 1e-2}}};
    std::vector<double> numbers;
    for (int i = 0; i < 4; ++i) step.step(batches());
    step.read_all([&](const CompletedStep& done) {
      numbers.push_back(done.row.loss);
      numbers.push_back(done.row.grad_norm);
    });
    return numbers;
  };
  EXPECT_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace ddpxx::own_metrics_test
