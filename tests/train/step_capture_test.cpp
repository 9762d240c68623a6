// Steps that are captured and replayed take the course of plain steps, bit for bit.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer.hpp>

#include "recorded_capture.hpp"
#include "training_run.hpp"

namespace ddpxx::step_capture_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A GPT that reports how often a token is predicted, and how often it calls forward.
class CountsHits : public GPT {
 public:
  using GPT::GPT;
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    ++num_forward;
    const auto scores = logits(run, batch.inputs).flatten(0, 1).to(at::kFloat);
    const auto targets = batch.targets.reshape({-1});
    const auto counted = targets.ne(-1);
    const auto hits = scores.argmax(-1).eq(targets).sum();
    return {at::cross_entropy_loss(scores, targets, {}, at::Reduction::Sum, /*ignore_index=*/-1),
            {{"hits", hits}, {"share", hits, counted.sum()}}};
  }
  std::int64_t num_forward = 0;
};

/// Some samples, of whose targets the first few do not count.
Batch make_batch(std::int64_t first, std::int64_t samples, std::int64_t left_out) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < samples; ++i) indices.push_back((first + i) % Tokens{}.size());
  auto batch = Tokens{}.batch(indices);
  batch.targets = batch.targets.clone();
  batch.targets.view(-1).narrow(0, 0, left_out).fill_(-1);
  batch.num_tokens -= left_out;
  return batch;
}

struct Course {
  std::vector<std::vector<double>> rows;
  std::vector<at::Tensor> values;
  std::int64_t num_forward = 0;
};

constexpr int kSteps = 14;

/// The samples of the micro-batches of a step: two steps differ from the others.
std::vector<Batch> batches_of(int step) {
  if (step == 7) return {make_batch(9, 3, 0)};  // as the last one of an epoch
  if (step == 9) return {make_batch(2, 4, 1), make_batch(30, 4, 0)};
  return {make_batch(5 * step, 4, step % 3)};
}

/// Trains a GPT of this strategy and precision; `change` may change the gradients.
template <class Optimizer, class Precision, class Strategy>
Course train(typename TrainStep<CountsHits, Optimizer, Precision, Strategy>::Config config, double dropout = 0.0,
             const SliceHook& change = {}) {
  at::manual_seed(3);
  const auto model =
      std::make_shared<CountsHits>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = dropout}, 11, 8);
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.schedule = Schedule::cosine;
  config.optimizer.warmup_steps = 4;
  config.optimizer.decay_steps = kSteps;
  config.parameter_groups.learning_rate = {{"transformer.wte.*", 3e-3}};
  Group alone;
  TrainStep<CountsHits, Optimizer, Precision, Strategy> step{alone, model, config};
  if (change) step.before_optimizer_step(change);
  Course course;
  const auto keep = [&](const CompletedStep& done) {
    course.rows.push_back({done.row.loss, done.row.grad_norm, done.row.loss_scale.value_or(0), done.targets});
    for (const auto& metric : done.row.metrics) course.rows.back().push_back(metric.value);
  };
  seed_random(at::kCPU, 11);
  for (int i = 0; i < kSteps; ++i)
    if (const auto done = step.step(batches_of(i))) keep(*done);
  step.read_all(keep);
  for (const auto& parameter : model->parameters()) course.values.push_back(parameter.detach().clone());
  for (const auto& part : step.state().whole) course.values.push_back(part.second.detach().clone());
  step.show_average();
  for (const auto& parameter : model->parameters()) course.values.push_back(parameter.detach().clone());
  course.num_forward = model->num_forward;
  return course;
}

template <class Optimizer = AdamW, class Precision = Float32, class Strategy = SingleDevice>
void expect_same_course(
    typename TrainStep<CountsHits, Optimizer, Precision, Strategy>::Config config = {}, double dropout = 0.0,
    const std::function<SliceHook()>& change = [] { return SliceHook{}; }) {
  const auto plain = train<Optimizer, Precision, Strategy>(config, dropout, change());
  const auto counts = std::make_shared<RecordedCapture::Counts>();
  config.capture = record_steps(counts);
  const auto captured = train<Optimizer, Precision, Strategy>(config, dropout, change());
  EXPECT_EQ(captured.rows, plain.rows);
  ASSERT_EQ(captured.values.size(), plain.values.size());
  for (std::size_t i = 0; i < plain.values.size(); ++i)
    EXPECT_TRUE(at::equal(captured.values[i], plain.values[i])) << i;
  EXPECT_EQ(counts->runs, kSteps);
  EXPECT_EQ(counts->captures, 2) << "forward with backward, and the optimizer's step";
  EXPECT_EQ(counts->replays, 2 * (kSteps - 3 - 1 - 2)) << "without plain steps, the capture and two other steps";
  EXPECT_EQ(captured.num_forward, 3 + 1 + 3) << "a replay must not run the model's code";
  EXPECT_EQ(plain.num_forward, kSteps + 1);
}

TEST(StepCapture, TakesTheCourseOfPlainSteps) {
  expect_same_course();
  expect_same_course({.grad_norm_clip = 0, .grad_value_clip = 1e-3, .ema_decay = 0.9});
  expect_same_course({.grad_norm_clip = 0.1, .fused_clip = true});
  expect_same_course<Adam>();
  expect_same_course<AdamW, Float32, Recompute<SingleDevice>>(
      {.strategy = {.recompute = {.policy = RecomputeConfig::Policy::none}}});
}

TEST(StepCapture, DrawsNewRandomNumbersInEachReplay) { expect_same_course({}, /*dropout=*/0.3); }

TEST(StepCapture, TakesTheCourseOfPlainStepsInEachPrecision) {
  expect_same_course<AdamW, AutocastBF16>();
  expect_same_course<AdamW, LowPrecision<>>();
  // The scale is too large in the first steps, and grows again while steps are replayed.
  expect_same_course<AdamW, AutocastFP16>({.precision = {.scaler = {.initial_scale = 1e9, .growth_interval = 2}}});
}

TEST(StepCapture, RunsHooksInEachStep) {
  const auto make_change = [] {
    return [count = 0](std::span<const Slice> slices) mutable {
      ++count;
      for (const auto& slice : slices) slice.gradients.mul_(1.0 / count).add_(slice.gradients.sum().item<double>());
    };
  };
  expect_same_course({}, 0.0, make_change);
}

TEST(StepCapture, GoesOnFromAStateThatWasReadIntoIt) {
  Group alone;
  const auto run = [&](const MakeStepCapture& capture) {
    at::manual_seed(3);
    const auto model =
        std::make_shared<CountsHits>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8);
    TrainStep<CountsHits, AdamW, Float32, SingleDevice> step{alone, model, {.capture = capture}};
    for (int i = 0; i < 6; ++i) step.step(std::vector{make_batch(i, 4, 0)});
    step.read_all([](const CompletedStep&) {});
    for (const auto& slice : step.strategy().slices()) {
      const c10::NoGradGuard no_grad;
      slice.values.mul_(0.5);
    }
    step.resume_at(2, 64, {});
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) step.step(std::vector{make_batch(i, 4, 0)});
    step.read_all([&](const CompletedStep& done) { losses.push_back(done.row.loss); });
    return losses;
  };
  EXPECT_EQ(run(record_steps()), run({}));
}

TEST(StepCapture, LeavesBatchesAsTheyAre) {
  Group alone;
  const auto model =
      std::make_shared<CountsHits>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8);
  TrainStep<CountsHits, AdamW, Float32, SingleDevice> step{alone, model, {.capture = record_steps()}};
  std::vector<Batch> given, expected;
  for (int i = 0; i < 6; ++i) {
    given.push_back(make_batch(i, 4, 1));
    expected.push_back(make_batch(i, 4, 1));
  }
  for (const auto& batch : given) step.step(std::span{&batch, 1});
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_TRUE(at::equal(given[i].inputs, expected[i].inputs)) << i;
    EXPECT_TRUE(at::equal(given[i].targets, expected[i].targets)) << i;
  }
}

TEST(StepCapture, IsOfTheLargestBatchSoFar) {
  Group alone;
  const auto run = [&](const MakeStepCapture& capture) {
    at::manual_seed(3);
    const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8);
    TrainStep<GPT, AdamW, Float32, SingleDevice> step{alone, model, {.capture = capture}};
    std::vector<double> losses;
    // After three plain steps comes a short batch; the captured steps are the fifth, and the seventh with a larger one.
    for (const std::int64_t samples : {4, 4, 4, 3, 4, 4, 5, 5, 4}) step.step(std::vector{make_batch(1, samples, 0)});
    step.read_all([&](const CompletedStep& done) { losses.push_back(done.row.loss); });
    return losses;
  };
  const auto counts = std::make_shared<RecordedCapture::Counts>();
  EXPECT_EQ(run(record_steps(counts)), run({}));
  EXPECT_EQ(counts->captures, 2 * 2);
  EXPECT_EQ(counts->replays, 2 * 2);
}

/// Throws once when the backward pass of forward call number `fails_at` has nearly ended.
class FailsInBackward : public GPT {
 public:
  explicit FailsInBackward(std::int64_t fails_at)
      : GPT{GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8}, fails_at_{fails_at} {
    parameters().front().register_hook([this](const at::Tensor&) {
      if (calls_ == fails_at_) throw Error{Errc::data, "in backward"};
    });
  }
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    ++calls_;
    return GPT::forward(run, batch);
  }

 private:
  std::int64_t calls_ = 0, fails_at_;
};

TEST(StepCapture, AStepThatFailedInBackwardMayBeTriedAgain) {
  Group alone;
  const auto run = [&](std::int64_t fails_at, const MakeStepCapture& capture) {
    at::manual_seed(3);
    const auto model = std::make_shared<FailsInBackward>(fails_at);
    TrainStep<FailsInBackward, AdamW, Float32, SingleDevice> step{alone, model, {.capture = capture}};
    int failures = 0;
    for (int i = 0; i < 7; ++i) {
      std::vector<Batch> batches{make_batch(5 * i, 4, 0)};
      if (i == 1) batches.push_back(make_batch(40, 4, 0));
      for (bool done = false; !done;) try {
          step.step(batches);
          done = true;
        } catch (const Error&) {
          ++failures;
        }
    }
    EXPECT_EQ(failures, fails_at > 0 ? 1 : 0);
    std::vector<double> losses;
    step.read_all([&](const CompletedStep& done) { losses.push_back(done.row.loss); });
    return losses;
  };
  const auto expected = run(0, {});
  for (const std::int64_t fails_at : {1, 2, 3, 4, 5}) {  // 2 and 3 are the micro-batches of a step
    EXPECT_EQ(run(fails_at, {}), expected) << fails_at;
    EXPECT_EQ(run(fails_at, record_steps()), expected) << fails_at;
  }
}

void expect_refused(const std::function<void()>& body, const std::vector<std::string>& words) {
  try {
    body();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    for (const auto& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

TEST(StepCapture, RefusesWhatCannotBeCaptured) {
  using Plain = TrainStep<GPT, AdamW, Float32, SingleDevice>;
  EXPECT_NO_THROW(Plain::check({.capture = record_steps()}));
  expect_refused([] { TrainStep<GPT, AdamW, Float32, DDP>::check({.capture = record_steps()}); },
                 {"training.cuda_graph", "DDP", "choose SingleDevice alone"});
  expect_refused(
      [] {
        TrainStep<GPT, AdamW, Float32, StepInBackward<SingleDevice>>::check(
            {.grad_norm_clip = 0, .capture = record_steps()});
      },
      {"StepInBackward", "choose SingleDevice alone"});
  expect_refused([] { TrainStep<GPT, AdamW, Float32, Recompute<SingleDevice>>::check({.capture = record_steps()}); },
                 {"Recompute", "computes layers again"});
  expect_refused([] { TrainStep<GPT, SGD, Float32, SingleDevice>::check({.capture = record_steps()}); },
                 {"training.cuda_graph", "SGD", "choose AdamW or Adam"});
  const std::vector<FieldError> errors = TrainingConfig{.accumulation_steps = 2, .cuda_graph = true}.check();
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].field, "cuda_graph");
  EXPECT_THAT(errors[0].text, HasSubstr("set accumulation_steps=1"));
}

TEST(StepCapture, RefusesAParameterThatIsFrozenLater) {
  Group alone;
  for (const int first : {1, 6}) {  // before the capture, and among the replays
    const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16}, 11, 8);
    TrainStep<GPT, AdamW, Float32, SingleDevice> step{alone, model, {.capture = record_steps()}};
    for (int i = 0; i < first; ++i) step.step(std::vector{make_batch(i, 4, 0)});
    auto frozen = model->parameters().front();
    frozen.set_requires_grad(false);
    expect_refused([&] { step.step(std::vector{make_batch(7, 4, 0)}); }, {"was frozen after the trainer had taken"});
    frozen.set_requires_grad(true);
    EXPECT_NO_THROW(step.step(std::vector{make_batch(7, 4, 0)}));
  }
}

TEST(StepCapture, RefusesACUDAGraphOnACPU) {
  using Train = Trainer<GPT, Tokens, AdamW, Float32, SingleDevice>;
  Train::Config config;
  config.training = {.max_steps = 1, .max_epochs = 0, .cuda_graph = true};
  Group alone;
  expect_refused(
      [&] {
        const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16}, 11, 8);
        Train{alone, model, std::make_shared<Tokens>(), config};
      },
      {"training.cuda_graph", "cpu", "needs a GPU"});
}

/// A model that reads its loss on the host at first.
class ReadsItsLoss : public GPT {
 public:
  using GPT::GPT;
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    auto loss = GPT::forward(run, batch);
    if (reads && std::isnan(loss.sum.template item<double>())) throw Error{Errc::numerics, "no number"};
    return loss;
  }
  bool reads = true;
};

TEST(StepCapture, RefusesAModelThatReadsNumbersAndMayBeTriedAgain) {
  Group alone;
  const auto counts = std::make_shared<RecordedCapture::Counts>();
  const auto model = std::make_shared<ReadsItsLoss>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16}, 11, 8);
  TrainStep<ReadsItsLoss, AdamW, Float32, SingleDevice> step{alone, model, {.capture = record_steps(counts)}};
  for (int i = 0; i < 3; ++i) step.step(std::vector{make_batch(i, 4, 0)});
  for (int attempt = 0; attempt < 2; ++attempt)
    expect_refused([&] { step.step(std::vector{make_batch(3, 4, 0)}); }, {"the host waits for"});
  step.step(std::vector{make_batch(3, 3, 0), make_batch(4, 3, 0)});  // two micro-batches are not captured
  EXPECT_EQ(step.steps_done(), 4);
  model->reads = false;
  for (int i = 0; i < 3; ++i) step.step(std::vector{make_batch(i, 4, 0)});
  EXPECT_EQ(counts->captures, 2 + 2);
  EXPECT_EQ(counts->replays, 2 * 2);
}

/// A batch that does not show its tensors.
struct Hidden {
  Batch rows;
  std::int64_t num_tokens = 0;
  Hidden to(at::Device device) const { return {rows.to(device), num_tokens}; }
};
struct OfHidden : torch::nn::Module {
  OfHidden() { weight = register_parameter("weight", torch::ones({8})); }
  Loss forward(const Hidden& batch) { return {(weight * batch.rows.inputs).sum()}; }
  at::Tensor weight;
};

TEST(StepCapture, RefusesBatchesWhoseTensorsItDoesNotSee) {
  Group alone;
  TrainStep<OfHidden, AdamW, Float32, SingleDevice> step{
      alone, std::make_shared<OfHidden>(), {.capture = record_steps()}};
  expect_refused([&] { step.step(std::vector{Hidden{make_batch(0, 2, 0), 2}}); }, {"Hidden", "each_tensor"});
}

}  // namespace
}  // namespace ddpxx::step_capture_test
