// Training steps compared with Python's: DistributedDataParallel, AdamW(fused=True) and clip_grad_norm_ over the same
// ATen operations, from the same initial weights.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/data/random_split.hpp>
#include <ddpxx/data/subset.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "python.hpp"

namespace ddpxx::training_test {
namespace {

using Text = Subset<CharDataset>;
using Train = Trainer<GPT, Text, AdamW, Float32, DDP>;

constexpr auto kSeed = 5;
constexpr auto kGlobalBatch = 8;
constexpr auto kSteps = 50;

/// The run of both languages, on the headers of the C++ standard library. 50 steps need more than the 378 samples: an
/// epoch ends with a smaller batch, and another one begins.
class Parity : public testing::Test {
 protected:
  static constexpr double kTrainSplit = 0.019;

  std::shared_ptr<GPT> model(GPTLayout layout) const {
    at::manual_seed(kSeed);
    return std::make_shared<GPT>(
        GPTConfig{.dropout = 0.0, .layout = layout, .bias = bias_, .gelu = gelu_, .tied_head = tied_head_},
        text_->vocab_size(), text_->block_size());
  }

  Train trainer(Group& group, GPTLayout layout, TrainingConfig training) const {
    const auto size = static_cast<std::int64_t>(static_cast<double>(text_->size()) * kTrainSplit);
    training.max_epochs = 0;
    if (training.max_steps == 0) training.max_steps = 1;  // a run needs an end, even if step() drives it
    training.seed = kSeed;
    const auto samples = random_split({size, text_->size() - size}, kSeed)[0];
    return Train{group,
                 model(layout),
                 std::make_shared<const Text>(text_, samples),
                 {.batch_size = kGlobalBatch / group.size(),
                  .training = training,
                  .optimizer = {.learning_rate = 1e-3, .weight_decay = 0.1, .beta2 = 0.95}}};
  }

  /// Runs the reference from this model's initial weights.
  void run_reference(int world_size, GPTLayout layout, const std::string& task) const {
    NamedTensors weights;
    for (const auto& item : model(layout)->named_parameters())
      weights.emplace("model." + item.key(), item.value().detach());
    write_safetensors(folder_ / "weights.safetensors", weights, {});
    run_python(
        "reference.py",
        {"data.path=" + config_.path, "data.max_bytes=" + std::to_string(config_.max_bytes),
         "data.block_size=" + std::to_string(config_.block_size), "data.train_split=" + std::to_string(kTrainSplit),
         "data.batch_size=" + std::to_string(kGlobalBatch / world_size), "model.dropout=0",
         std::string{"model.layout="} + (layout == GPTLayout::gpt2 ? "gpt2" : "mingpt_ddp"),
         std::string{"model.bias="} + (bias_ ? "true" : "false"),
         std::string{"model.gelu="} + (!gelu_                     ? ""
                                       : *gelu_ == GELUForm::tanh ? "tanh"
                                                                  : "exact"),
         std::string{"model.tied_head="} + (tied_head_ ? "true" : "false"), "optimizer.learning_rate=1e-3",
         "training.seed=" + std::to_string(kSeed), "training.max_steps=" + std::to_string(kSteps),
         "world_size=" + std::to_string(world_size), "weights=" + (folder_ / "weights.safetensors").string(), task});
  }

  /// What Python computes in one step: logits, and gradients before and after the average over the ranks.
  NamedTensors probe_reference(int world_size, GPTLayout layout) const {
    const auto path = folder_ / "probe.safetensors";
    run_reference(world_size, layout, "probe=" + path.string());
    return read_safetensors(path, Checksum::optional).tensors;
  }

  /// The rows of a run's metrics file.
  static std::vector<nlohmann::json> rows(const std::filesystem::path& path) {
    std::vector<nlohmann::json> rows;
    std::ifstream file{path};
    for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  // Several tests compare with the same training, which is run once.
  std::vector<nlohmann::json> train(int world_size, bool fused_clip = false) const {
    static std::map<std::tuple<int, bool, bool>, std::vector<nlohmann::json>> done;
    auto& found = done[{world_size, tied_head_, fused_clip}];
    if (found.empty()) {
      const auto path = folder_ / ("ours_" + std::to_string(world_size));
      spawn_ranks(world_size, [&](Group& group) {
        const TrainingConfig training{.max_steps = kSteps, .fused_clip = fused_clip, .metrics = path.string()};
        trainer(group, GPTLayout::gpt2, training).fit();
      });
      found = rows(path);
    }
    return found;
  }
  std::vector<nlohmann::json> train_reference(int world_size) const {
    static std::map<std::tuple<int, bool>, std::vector<nlohmann::json>> done;
    auto& found = done[{world_size, tied_head_}];
    if (found.empty()) {
      const auto path = folder_ / ("python_" + std::to_string(world_size));
      run_reference(world_size, GPTLayout::gpt2, "training.metrics=" + path.string());
      found = rows(path);
    }
    return found;
  }

  static void expect_same_course(const std::vector<nlohmann::json>& run, const std::vector<nlohmann::json>& other) {
    ASSERT_EQ(run.size(), kSteps);
    ASSERT_EQ(other.size(), kSteps);
    const auto number = [](const nlohmann::json& row, const char* key) { return row.at(key).get<double>(); };
    for (std::size_t i = 0; i < run.size(); ++i) {
      const auto loss = number(other[i], "loss"), norm = number(other[i], "grad_norm");
      EXPECT_NEAR(number(run[i], "loss"), loss, 1e-5 * loss) << "step " << i + 1;
      EXPECT_NEAR(number(run[i], "grad_norm"), norm, 1e-4 * norm) << "step " << i + 1;
    }
    EXPECT_LT(number(run.back(), "loss"), 0.8 * number(run.front(), "loss")) << "the model has not learned";
  }

  void expect_logits_and_gradients_of_python(GPTLayout layout) const {
    const auto python = probe_reference(2, layout);
    spawn_ranks(2, [&](Group& group) {
      auto train = trainer(group, layout, {.grad_norm_clip = 0});
      PlainCall plain;
      LayerRunner run{plain};
      EXPECT_TRUE(at::equal(train.model().logits(run, python.at("inputs")), python.at("logits")));
      train.step();
      for (const auto& entry : train.strategy().trainable().entries())
        EXPECT_TRUE(at::equal(entry.gradient, python.at("gradient." + entry.name))) << entry.name;
    });
  }

  bool bias_ = true;
  std::optional<GELUForm> gelu_ = {};
  bool tied_head_ = false;
  TemporaryFolder folder_;
  CharDatasetConfig config_{.path = "/usr/include/c++", .block_size = 64, .max_bytes = 20'000};
  std::shared_ptr<const CharDataset> text_ = std::make_shared<const CharDataset>(config_);
};

class ParityOfLayout : public Parity, public testing::WithParamInterface<GPTLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ParityOfLayout, testing::Values(GPTLayout::gpt2, GPTLayout::mingpt_ddp),
                         [](const auto& layout) { return layout.param == GPTLayout::gpt2 ? "gpt2" : "mingpt_ddp"; });

TEST_P(ParityOfLayout, LogitsAndGradientsOfTwoRanksAreBitForBitThoseOfPython) {
  expect_logits_and_gradients_of_python(GetParam());
}

TEST_P(ParityOfLayout, GradientsOfFourRanksAreThoseOfPythonButForTheOrderOfTheSum) {
  const auto python = probe_reference(4, GetParam());
  spawn_ranks(4, [&](Group& group) {
    auto train = trainer(group, GetParam(), {.grad_norm_clip = 0});
    train.step();
    for (const auto& entry : train.strategy().trainable().entries()) {
      auto magnitude = at::zeros_like(entry.gradient, at::kDouble);
      for (int rank = 0; rank < 4; ++rank)
        magnitude += python.at("local." + std::to_string(rank) + "." + entry.name).abs() / 4.0;
      const auto difference = (entry.gradient.to(at::kDouble) - python.at("gradient." + entry.name)).abs();
      EXPECT_TRUE((difference <= 4 * std::ldexp(1.0, -24) * magnitude).all().item<bool>()) << entry.name;
    }
  });
}

TEST_P(ParityOfLayout, ATiedHeadHasTheLogitsAndGradientsOfPythonBitForBit) {
  tied_head_ = true;
  expect_logits_and_gradients_of_python(GetParam());
}

TEST_P(ParityOfLayout, WithoutBiasesAndWithTheOtherGELUHasTheLogitsAndGradientsOfPythonBitForBit) {
  bias_ = false;
  gelu_ = GetParam() == GPTLayout::gpt2 ? GELUForm::exact : GELUForm::tanh;
  expect_logits_and_gradients_of_python(GetParam());
}

TEST_F(Parity, FiftyStepsOfATiedHeadHavePythonsLosses) {
  tied_head_ = true;
  expect_same_course(train(2), train_reference(2));
}

TEST_F(Parity, FiftyStepsOfOneRankHavePythonsLosses) { expect_same_course(train(1), train_reference(1)); }

TEST_F(Parity, FiftyStepsOfTwoRanksHavePythonsLosses) { expect_same_course(train(2), train_reference(2)); }

TEST_F(Parity, FiftyStepsClippedInTheOptimizerHavePythonsLosses) {
  expect_same_course(train(2, /*fused_clip=*/true), train_reference(2));
}

TEST_F(Parity, TwoRanksHaveTheLossesOfOneWithTheSameGlobalBatch) { expect_same_course(train(2), train(1)); }

}  // namespace
}  // namespace ddpxx::training_test
