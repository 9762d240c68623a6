// Mistakes of models, batches and settings of a program's own that a trainer tells of.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/loss.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"
#include "ones_and_line.hpp"

namespace ddpxx::model_mistakes_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A layer, and what makes the loss of its results.
struct Net : torch::nn::Module {
  using MakeLoss = std::function<at::Tensor(const at::Tensor&)>;
  explicit Net(MakeLoss make) : make_loss{std::move(make)} {}
  Loss forward(const Batch& batch) { return {make_loss(layer(batch.inputs))}; }

  torch::nn::Linear layer{register_module("layer", torch::nn::Linear{2, 1})};
  MakeLoss make_loss;
};

Batch batch_of(std::int64_t num_tokens) { return {torch::ones({3, 2}), torch::zeros({3, 1}), num_tokens}; }

template <class Strategy = SingleDevice>
void step_once(Net::MakeLoss make_loss, std::int64_t num_tokens = 3) {
  Group alone;
  TrainStep<Net, SGD, Float32, Strategy> step{alone, std::make_shared<Net>(std::move(make_loss)), {}};
  step.step(std::vector{batch_of(num_tokens)});
}

std::string refusal(Net::MakeLoss make_loss, std::int64_t num_tokens = 3) {
  return error_of([&] { step_once(std::move(make_loss), num_tokens); });
}

const Net::MakeLoss kSum = [](const at::Tensor& x) { return x.sum(); };

TEST(AModel, IsToldThatItsLossIsNoSum) {
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x; }),
              AllOf(HasSubstr("has returned a loss of the sizes [3, 1]"), HasSubstr("as a 0-dim tensor")));
  EXPECT_THAT(refusal([](const at::Tensor&) { return at::Tensor{}; }), HasSubstr("has returned no loss"));
  EXPECT_EQ(refusal(kSum), "no error");
}

TEST(AModel, IsToldThatNoGradientFollowsFromItsLoss) {
  EXPECT_THAT(refusal([](const at::Tensor& x) { return x.detach().sum(); }),
              HasSubstr("does not depend on a parameter that trains: it was detached"));
}

TEST(ABatch, WithANegativeNumberOfTargetsIsRefused) {
  EXPECT_THAT(refusal(kSum, -3), HasSubstr("step 1: a batch has num_tokens=-3"));
}

/// The lines that `body` logs.
std::string lines_of(const std::function<void()>& body) {
  std::mutex mutex;
  std::string lines;
  set_log_sink([&](const LogLine& line) {
    const std::lock_guard lock{mutex};
    lines.append(line.text) += '\n';
  });
  body();
  set_log_sink({});
  return lines;
}

template <class Strategy>
std::string lines_of_step(Net::MakeLoss make_loss) {
  return lines_of([&] { step_once<Strategy>(std::move(make_loss)); });
}

template <class Strategy>
void expect_warning_of_unregistered() {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  const auto forgotten = at::ones({1, 5}).requires_grad_();
  EXPECT_THAT(lines_of_step<Strategy>([&](const at::Tensor& x) { return x.mm(forgotten).sum(); }),
              AllOf(HasSubstr("depends on a tensor [1, 5]"), HasSubstr("register_module()")));
  EXPECT_EQ(lines_of_step<Strategy>([&](const at::Tensor& x) { return x.mm(forgotten.detach()).sum(); }), "");
}

/// A layer that DataParallel can copy.
struct Copied : torch::nn::Cloneable<Copied> {
  Copied() { reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear{2, 1}); }
  Loss forward(const Batch& batch) { return {layer(batch.inputs).sum()}; }
  torch::nn::Linear layer{nullptr};
};

TEST(AModel, IsNotToldOfTheParametersOfItsCopies) {
  const auto lines = lines_of([] {
    Group alone;
    TrainStep<Copied, SGD, Float32, DataParallel> step{
        alone, std::make_shared<Copied>(), {.strategy = {.replicas = 2}}};
    step.step(std::vector{batch_of(3)});
  });
  EXPECT_EQ(lines, "");
}

TEST(AModel, IsToldOfAParameterThatItHasNotRegistered) {
  expect_warning_of_unregistered<SingleDevice>();
  expect_warning_of_unregistered<DDP>();
  expect_warning_of_unregistered<FSDP>();
}

/// Returns a metric `mae`.
struct MeasuredLine : Line {
  Loss forward(const Batch& batch) {
    const auto errors = line(batch.inputs) - batch.targets;
    return {errors.square().sum(), {{"mae", errors.detach().abs().sum()}}};
  }
};

TEST(ATraining, SavesItsStepsWhereASettingNamesAMetricThatEvaluationsDoNotHave) {
  using Train = Trainer<MeasuredLine, Ones, SGD, Float32, SingleDevice>;
  const auto train = [](const std::function<void(Train::Config&)>& change) {
    const TemporaryFolder folder;
    const auto place = (folder / "run").string();
    Train::Config config;
    config.batch_size = 4;
    config.training = {.max_steps = 3, .max_epochs = 0, .save_dir = place, .eval_every = 3};
    change(config);
    std::string error;
    auto lines = lines_of([&] {
      Group alone;
      const auto data = std::make_shared<Ones>();
      std::ostringstream screen;
      Train trainer{alone, std::make_shared<MeasuredLine>(), data, config, {}, {.validation = data, .screen = &screen}};
      error = error_of([&] { trainer.fit(); });
    });
    const auto storage = open_storage(place);
    return std::tuple{lines, error, Snapshots{*storage}.list().size()};
  };
  const auto [lines, error, saved] = train([](auto& config) { config.early_stopping.metric = "mae"; });
  EXPECT_THAT(lines, HasSubstr("early_stopping.metric=mae is no number of an evaluation, if that has the metrics of a "
                               "step: val_loss, val_mae"));
  EXPECT_THAT(error, HasSubstr("early_stopping.metric: an evaluation has no mae (it has: val_loss, val_mae)"));
  EXPECT_EQ(saved, 1U) << "three steps are lost";
  const auto [no_lines, no_error, saved_too] = train([](auto& config) {
    config.early_stopping.metric = config.plateau.metric = "val_mae";
    config.snapshot.keep_best = 1;
    config.snapshot.best_by = "mae";
  });
  EXPECT_EQ(no_error, "no error");
  EXPECT_EQ(no_lines.find("is no number"), std::string::npos) << no_lines;
  EXPECT_EQ(saved_too, 1U);
  EXPECT_THAT(std::get<1>(train([](auto& config) { config.plateau.metric = "val_acc"; })),
              HasSubstr("plateau.metric: an evaluation has no val_acc"));
}

TEST(ATraining, TellsOfAnEvaluationWithoutAFiniteLoss) {
  using Train = Trainer<Line, Ones, SGD, Float32, SingleDevice>;
  Train::Config config;
  config.batch_size = 4;
  config.training = {.max_steps = 2, .max_epochs = 0, .eval_every = 1};
  const auto model = std::make_shared<Line>();
  const auto lines = lines_of([&] {
    Group alone;
    const auto data = std::make_shared<Ones>();
    std::ostringstream screen;
    Train trainer{alone, model, data, config, {}, {.validation = data, .screen = &screen}};
    trainer.fit([&] {
      trainer.step();
      {
        const c10::NoGradGuard no_grad;
        model->line->bias.fill_(std::numeric_limits<float>::infinity());
      }
      trainer.evaluate();
    });
  });
  EXPECT_THAT(lines, HasSubstr("warning: the evaluation after step 1 has no finite loss"));
}

}  // namespace
}  // namespace ddpxx::model_mistakes_test
