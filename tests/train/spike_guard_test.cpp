// training.spike_factor: a step whose gradients are not finite, or far larger than those before, is left out by all
// ranks, and changes nothing.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/lion.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/post_local_sgd.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/spike_guard.hpp>
#include <ddpxx/train/train_step.hpp>

#include "../error_of.hpp"
#include "ones_and_line.hpp"
#include "training_run.hpp"

namespace ddpxx::spike_guard_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

/// Which of these norms a guard finds, by their numbers from 0.
std::vector<std::size_t> found_in(const std::vector<double>& norms, double factor = 3) {
  SpikeGuard guard{factor, at::kCPU};
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < norms.size(); ++i)
    if (guard.check(at::scalar_tensor(norms[i])).item<float>() != 0) found.push_back(i);
  return found;
}
std::vector<double> ones_and(std::vector<double> norms) {
  norms.insert(norms.begin(), SpikeGuard::kFirstSteps, 1.0);
  return norms;
}

TEST(SpikeGuard, FindsWhatIsFarAboveTheAverageOrNotFinite) {
  EXPECT_THAT(found_in(ones_and({1, 2.9, 1, 3.4, 0, kNan, 1, kInfinity})), ElementsAre(23, 25, 27));
  EXPECT_THAT(found_in(ones_and({1, 4.9, 6.5}), 5), ElementsAre(22));
}

TEST(SpikeGuard, FindsOnlyWhatIsNotFiniteInTheFirstSteps) {
  EXPECT_THAT(found_in({100, 1, 1, kNan, 50, 1}), ElementsAre(3));
  EXPECT_THAT(found_in({kInfinity, kInfinity}), ElementsAre(0, 1));
}

TEST(SpikeGuard, KeepsNormsThatAreNotFiniteOutOfTheAverage) {
  SpikeGuard guard{3, at::kCPU};
  for (const double norm : {1.0, kNan, 2.0, kInfinity, 3.0}) guard.check(at::scalar_tensor(norm));
  const auto state = guard.state();
  EXPECT_EQ(state[0].second.item<double>(), 2) << "the mean of 1, 2 and 3";
  EXPECT_EQ(state[1].second.item<double>(), 3);
}

TEST(SpikeGuard, LetsNormsPassAfterTheyHaveStayedHigh) {
  const auto found = found_in(ones_and(std::vector<double>(60, 8.0)));
  ASSERT_FALSE(found.empty());
  EXPECT_LT(found.size(), 20U);
  EXPECT_EQ(found.back(), SpikeGuard::kFirstSteps + found.size() - 1) << "a later norm of the same size was found";
}

TEST(SpikeGuard, TakesNoLimitFromAnAverageOfZero) {
  EXPECT_THAT(found_in(std::vector<double>(SpikeGuard::kFirstSteps + 1, 0.0)), ElementsAre());
  auto norms = std::vector<double>(SpikeGuard::kFirstSteps, 0.0);
  norms.insert(norms.end(), 40, 1.0);
  EXPECT_LT(found_in(norms).size(), 30U) << "all steps are left out for ever";
}

/// The loss is the sum of `weight * input` over the batch, so that the gradient is the mean of the inputs.
struct Product : torch::nn::Module {
  Product() { weight = register_parameter("weight", torch::ones({4})); }
  Loss forward(const Batch& batch) { return {(weight * batch.inputs).sum()}; }
  at::Tensor weight;
};

/// 25 ordinary steps, a spike, three ordinary steps, gradients that are no numbers, three ordinary steps.
const std::vector<double>& factors() {
  static const auto all = [] {
    std::vector<double> factors(33, 1.0);
    factors[25] = 1000;
    factors[29] = kNan;
    return factors;
  }();
  return all;
}
constexpr double kNone = 0;

/// Trains over the steps; rank 1's inputs are multiplied by the factors, and steps of another factor than 1 are not
/// done at all where `spike_factor` is 0. Returns the rows, and the weight at the end.
template <class Optimizer, class Strategy, class Precision = Float32>
std::pair<std::vector<StepDone>, at::Tensor> train(Group& group, double spike_factor, bool fused_clip = false) {
  auto model = std::make_shared<Product>();
  TrainStep<Product, Optimizer, Precision, Strategy> step{group,
                                                          model,
                                                          {.grad_value_clip = fused_clip ? 1.5 : 0.0,
                                                           .fused_clip = fused_clip,
                                                           .spike_factor = spike_factor,
                                                           .optimizer = {.learning_rate = 0.01}}};
  std::vector<StepDone> rows;
  const auto keep = [&](const CompletedStep& done) { rows.push_back(done.row); };
  for (std::size_t i = 0; i < factors().size(); ++i) {
    if (spike_factor == kNone && factors()[i] != 1.0) continue;
    const double factor = group.rank() == group.size() - 1 ? factors()[i] : 1.0;
    const auto inputs = torch::tensor({1.0, -2.0, 0.5, 1.0 + 0.01 * static_cast<double>(i)}, at::kFloat) * factor;
    if (const auto done = step.step(std::vector{Batch{inputs.unsqueeze(0), torch::zeros({1}), 1}})) keep(*done);
  }
  step.read_all(keep);
  step.make_whole();
  return {rows, model->weight.detach().clone()};
}

template <class Optimizer, class Strategy>
void expect_no_trace_of_spikes(int ranks, bool fused_clip = false) {
  spawn_ranks(ranks, [=](Group& group) {
    const auto [rows, weight] = train<Optimizer, Strategy>(group, 4, fused_clip);
    const auto [expected_rows, expected] = train<Optimizer, Strategy>(group, kNone, fused_clip);
    EXPECT_TRUE(at::equal(weight, expected)) << weight << expected;
    ASSERT_EQ(rows.size(), 33U);
    EXPECT_EQ(rows[24].skipped_steps, 0);
    EXPECT_EQ(rows[25].skipped_steps, 1);
    EXPECT_GT(rows[25].grad_norm, 100) << "the norm of a spike is told";
    EXPECT_EQ(rows[29].skipped_steps, 2);
    EXPECT_EQ(rows[29].grad_norm, 0);
    EXPECT_EQ(rows[32].skipped_steps, 2);
    EXPECT_EQ(rows[32].loss, expected_rows.back().loss);
    EXPECT_FALSE(expected_rows.back().skipped_steps.has_value()) << "no step can be left out";
  });
}

TEST(Spikes, LeaveNoTraceInTheParametersAndTheOptimizer) {
  expect_no_trace_of_spikes<SGD, SingleDevice>(1);
  expect_no_trace_of_spikes<AdamW, DDP>(2);
  expect_no_trace_of_spikes<AdamW, DDP>(2, true);
  expect_no_trace_of_spikes<Adam, ZeRO2>(2);
  expect_no_trace_of_spikes<Lion, FSDP>(2);
  expect_no_trace_of_spikes<AdamW, HSDP>(2);
}

TEST(Spikes, DoNotLowerTheLossScaleAsAnOverflowDoes) {
  Group alone;
  const auto rows = train<SGD, SingleDevice, AutocastFP16>(alone, 4).first;
  EXPECT_EQ(rows[25].skipped_steps, 1);
  EXPECT_EQ(rows[26].loss_scale, rows[25].loss_scale);
  EXPECT_EQ(rows[29].skipped_steps, 2);
  EXPECT_EQ(*rows[30].loss_scale, *rows[29].loss_scale / 2) << "an overflow halves it";
}

TEST(Spikes, EndTheRunWhereOnlySomeRanksLeaveOutAStep) {
  spawn_ranks(2, [](Group& group) {
    TrainStep<Product, SGD, Float32, DDP> step{group, std::make_shared<Product>(), {.spike_factor = 4}};
    step.before_optimizer_step([&](std::span<const Slice> slices) {
      if (step.steps_done() == 22 && group.rank() == 1)
        for (const auto& slice : slices) at::Tensor{slice.gradients}.mul_(1000);
    });
    const std::vector batches{Batch{torch::ones({1, 4}), torch::zeros({1}), 1}};
    EXPECT_THAT(
        error_of([&] {
          for (int i = 0; i < 30; ++i) step.step(batches);
        }),
        AllOf(HasSubstr("some ranks left out a step"), HasSubstr("step=23"), HasSubstr("ranks_that_left_it_out=1")));
  });
}

TEST(Spikes, EndTheRunAfterAHundredInARow) {
  spawn_ranks(2, [](Group& group) {
    TrainStep<Product, SGD, Float32, DDP> step{group, std::make_shared<Product>(), {.spike_factor = 4}};
    const std::vector batches{Batch{torch::full({1, 4}, group.rank() == 1 ? kNan : 1.0), torch::zeros({1}), 1}};
    EXPECT_THAT(error_of([&] {
                  for (int i = 0; i < 110; ++i) step.step(batches);
                }),
                AllOf(HasSubstr("the last 100 steps were left out"), HasSubstr("set spike_factor=0"),
                      HasSubstr("step=100"), Not(HasSubstr("loss_scale"))));
  });
}

template <class Optimizer, class Strategy>
std::string refusal(double spike_factor = 4, MakeStepCapture capture = {}) {
  Group alone;
  using Step = TrainStep<Product, Optimizer, Float32, Strategy>;
  return error_of([&] {
    typename Step::Config config;
    config.grad_norm_clip = 0;
    config.spike_factor = spike_factor;
    config.capture = capture;
    Step step{alone, std::make_shared<Product>(), config};
  });
}

TEST(Spikes, AreRefusedWhereNoStepCanBeLeftOut) {
  EXPECT_THAT((refusal<LAMB, SingleDevice>()), AllOf(HasSubstr("training.spike_factor: "), HasSubstr("LAMB")));
  EXPECT_EQ((refusal<LAMB, SingleDevice>(0)), "no error");
  EXPECT_THAT((refusal<SGD, StepInBackward<SingleDevice>>()), HasSubstr("StepInBackward has stepped"));
  EXPECT_THAT((refusal<SGD, DDPWith<PostLocalSGD>>()), HasSubstr("each rank has gradients of its own"));
  EXPECT_THAT((refusal<AdamW, SingleDevice>(4, [](at::Device) { return std::unique_ptr<StepCapture>{}; })),
              HasSubstr("a captured step cannot be left out"));
}

/// Steps on the batches of `factors()`, from the step after that of the snapshot to `max_steps`.
class ResumedSpikes : public TrainingRun {
 protected:
  /// Returns what the screen shows, and the weight at the end.
  std::pair<std::string, at::Tensor> run(const std::string& name, std::int64_t max_steps, double spike_factor) {
    Group alone;
    Trainer<Line, Ones, AdamW, Float32, SingleDevice>::Config config;
    config.batch_size = 2;
    config.training = {
        .max_steps = max_steps, .max_epochs = 0, .spike_factor = spike_factor, .save_dir = (place() / name).string()};
    std::ostringstream screen;
    at::manual_seed(3);
    auto model = std::make_shared<Line>();
    Trainer<Line, Ones, AdamW, Float32, SingleDevice> trainer{alone,  model, std::make_shared<Ones>(),
                                                              config, {},    {.screen = &screen}};
    trainer.fit([&] {
      while (!trainer.finished()) {
        const auto factor = factors()[static_cast<std::size_t>(trainer.steps_done())];
        trainer.step(std::vector{Batch{torch::ones({2, 2}) * factor, torch::ones({2, 1}), 2}});
      }
    });
    return {screen.str(), torch::nn::utils::parameters_to_vector(model->parameters()).detach().clone()};
  }
};

TEST_F(ResumedSpikes, AreFoundByTheNormsBeforeTheSnapshot) {
  const auto [said, whole] = run("whole", 33, 4);
  EXPECT_THAT(said, AllOf(HasSubstr("step 26  left out, because the norm of its gradients is "),
                          HasSubstr("step 30  left out, because the norm of its gradients is not finite")));
  run("parts", 24, 4);
  EXPECT_TRUE(at::equal(run("parts", 33, 4).second, whole));
}

TEST_F(ResumedSpikes, AreFoundByARunWhoseSnapshotHasNoNormsAndTheOtherWayRound) {
  run("begun", 24, 0);
  EXPECT_THAT(run("begun", 28, 4).first, Not(HasSubstr("left out"))) << "its first steps have no average";
  EXPECT_THAT(run("begun", 33, 4).first, HasSubstr("step 30  left out"));
  run("ended", 24, 4);
  EXPECT_THAT(run("ended", 28, 0).first, Not(HasSubstr("left out")));
}

}  // namespace
}  // namespace ddpxx::spike_guard_test
