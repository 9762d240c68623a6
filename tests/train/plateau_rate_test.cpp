// A trainer lowers its learning rate where evaluations stop improving, and goes on with that when it is resumed.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"
#include "training_run.hpp"

namespace ddpxx::plateau_rate_test {
namespace {

using testing::HasSubstr;

/// The learning rates of the steps.
struct Rates : Observer {
  std::string name() const override { return "the rates"; }
  Verdict on_step(const StepDone& step) override {
    of_step[step.step] = step.learning_rate;
    return Verdict::go_on;
  }
  std::map<std::int64_t, double> of_step;
};

template <class Strategy>
using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

/// The loss of an evaluation falls, so that it never improves for a plateau whose metric is to grow.
template <class Strategy>
typename Train<Strategy>::Config make_config(const Group& group, std::int64_t max_steps, const std::string& save_dir) {
  typename Train<Strategy>::Config config;
  config.batch_size = kGlobalBatch / group.size();
  config.training = {.max_steps = max_steps,
                     .max_epochs = 0,
                     .seed = 5,
                     .grad_norm_clip = 0,
                     .save_dir = save_dir,
                     .save_every = 5,
                     .eval_every = 1};
  config.optimizer.learning_rate = 1e-2;
  config.plateau = {.metric = "val_loss", .mode = MetricMode::max, .factor = 0.5, .patience = 1};
  return config;
}

template <class Strategy>
std::map<std::int64_t, double> rates_of(Group& group, std::int64_t max_steps, const std::string& save_dir,
                                        at::Tensor* weights = nullptr,
                                        const std::function<void(typename Train<Strategy>::Config&)>& change = {}) {
  at::manual_seed(3);
  const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8, .dropout = 0}, 11, 8);
  const auto data = std::make_shared<const Tokens>();
  auto config = make_config<Strategy>(group, max_steps, save_dir);
  if (change) change(config);
  Train<Strategy> trainer{group, model, data, config, {}, {.validation = data}};
  const auto rates = std::make_shared<Rates>();
  trainer.add(rates);
  trainer.fit([&] {
    while (!trainer.finished()) {
      trainer.step();
      for (int times = 0; times < 2 && trainer.steps_done() % config.training.eval_every == 0; ++times)
        trainer.evaluate();  // the second evaluation of a step does not count
      if (trainer.evaluation_due()) trainer.evaluate();
      if (trainer.save_due()) trainer.save();
    }
  });
  if (weights != nullptr) *weights = model->parameters().front().detach().clone();
  return rates->of_step;
}

template <class Strategy>
class PlateauRate : public testing::Test {};
using Strategies = testing::Types<DDP, FSDP, StepInBackward<DDP>>;
TYPED_TEST_SUITE(PlateauRate, Strategies);

TYPED_TEST(PlateauRate, FallsOnAllRanksAndGoesOnAfterAResume) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    at::Tensor whole, resumed;
    const auto rates = rates_of<TypeParam>(group, 8, (folder / "whole").string(), &whole);
    // The first evaluation is the best one; of the others each second one lowers the rate.
    const std::map<std::int64_t, double> expected{{1, 1e-2}, {2, 1e-2},   {3, 1e-2},   {4, 5e-3},
                                                  {5, 5e-3}, {6, 2.5e-3}, {7, 2.5e-3}, {8, 1.25e-3}};
    EXPECT_EQ(rates, expected);
    auto in_parts = rates_of<TypeParam>(group, 4, (folder / "parts").string());
    for (const auto& [step, rate] : rates_of<TypeParam>(group, 8, (folder / "parts").string(), &resumed))
      in_parts[step] = rate;
    EXPECT_EQ(in_parts, expected);
    EXPECT_TRUE(at::equal(whole, resumed));
  });
}

TEST(PlateauRateOfARunInParts, DoesNotDependOnWhereThePartsEnd) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    const auto rarely = [](Train<DDP>::Config& config) {
      config.training.eval_every = 3;
      config.plateau.patience = 0;
    };
    const auto whole = rates_of<DDP>(group, 14, (folder / "whole").string(), nullptr, rarely);
    EXPECT_EQ(whole.at(14), 1e-2 / 8) << "evaluated after steps 3, 6, 9 and 12";
    std::map<std::int64_t, double> in_parts;
    for (const std::int64_t end : {4, 8, 14})  // each start evaluates when it ends
      for (const auto& [step, rate] : rates_of<DDP>(group, end, (folder / "parts").string(), nullptr, rarely))
        in_parts[step] = rate;
    EXPECT_EQ(in_parts, whole);
  });
}

TEST(PlateauRateOfAResumedRun, CountsAnewIfTheSnapshotHasNoCountsAndForgetsThemWithoutTheSetting) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    const auto place = (folder / "run").string();
    const auto without = [](Train<DDP>::Config& config) { config.plateau = {}; };
    for (const auto& [step, rate] : rates_of<DDP>(group, 4, place, nullptr, without)) EXPECT_EQ(rate, 1e-2) << step;
    const std::map<std::int64_t, double> counted_anew{{5, 1e-2}, {6, 1e-2}, {7, 1e-2}, {8, 5e-3}};
    EXPECT_EQ(rates_of<DDP>(group, 8, place), counted_anew);
    for (const auto& [step, rate] : rates_of<DDP>(group, 10, place, nullptr, without)) EXPECT_EQ(rate, 1e-2) << step;
  });
}

TEST(PlateauRateLine, IsWrittenOnRankZeroWhenTheRateFalls) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    std::string said;
    set_log_sink([&](const LogLine& line) { said += line.text; });
    rates_of<DDP>(group, 4, (folder / "run").string());
    set_log_sink({});
    const auto line = HasSubstr("step 3  val_loss does not improve: the learning rate falls to 0.005");
    if (group.rank() == 0)
      EXPECT_THAT(said, line);
    else
      EXPECT_THAT(said, testing::Not(line));
  });
}

TEST(PlateauSettings, AreRefusedWithoutEvaluationsAndForAnUnknownMetric) {
  Group alone;
  auto config = make_config<DDP>(alone, 2, "");
  config.training.save_every = 0;
  config.plateau.metric = "val_los";
  const auto data = std::make_shared<const Tokens>();
  Train<DDP> trainer{alone, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8}, 11, 8),
                     data,  config,
                     {},    {.validation = data}};
  EXPECT_THAT(error_of([&] { trainer.fit(); }),
              HasSubstr("plateau.metric: an evaluation has no val_los (it has: val_loss)"));
  config.training.eval_every = 0;
  EXPECT_THAT(error_of([&] { Train<DDP>::check(config); }), HasSubstr("plateau.metric: nothing is evaluated: set "));
}

}  // namespace
}  // namespace ddpxx::plateau_rate_test
