// Validation on held-out text: a model that only memorises its training text must not get better and better losses.
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/held_out_text.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::held_out_text_test {
namespace {

class Overfitting : public testing::Test {
 protected:
  /// Trains on these parts until the text is memorised; returns the validation losses of the run.
  std::vector<double> validation_losses(const TextParts& parts) const {
    const auto metrics = folder_ / "metrics.jsonl";
    spawn_ranks(1, [&](Group& group) {
      using Train = Trainer<GPT, Subset<CharDataset>, AdamW, Float32, SingleDevice>;
      Train::Config config;
      config.batch_size = 16;
      config.training = {.max_steps = 120, .max_epochs = 0, .eval_every = 20, .metrics = metrics.string()};
      config.optimizer.learning_rate = 1e-2;
      at::manual_seed(3);
      const GPTConfig sizes{.n_layer = 2, .n_head = 2, .n_embd = 32, .dropout = 0.0};
      const auto& text = parts.train->dataset();
      auto model = std::make_shared<GPT>(sizes, text.vocab_size(), text.block_size());
      Train{group, model, parts.train, config, {}, {.validation = parts.validation}}.fit();
    });
    std::vector<double> losses;
    std::ifstream file{metrics};
    for (std::string line; std::getline(file, line);)
      if (const auto row = nlohmann::json::parse(line); row.contains("val_loss")) losses.push_back(row["val_loss"]);
    return losses;
  }

  /// Characters drawn at random: some of them carry no information about the others.
  std::shared_ptr<const CharDataset> text() const {
    std::mt19937 draw{7};
    std::string letters;
    for (int i = 0; i < 300; ++i) letters += static_cast<char>('!' + draw() % 90);
    return std::make_shared<const CharDataset>(
        CharDatasetConfig{.path = folder_.file("text", letters), .block_size = 8});
  }

  TemporaryFolder folder_;
};

TEST_F(Overfitting, MakesTheLossOnHeldOutTextRise) {
  const auto losses = validation_losses(hold_out_tail(text(), 0.7));
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_GT(losses.front(), 4.0) << "expected about log(90), the loss for 90 random characters";
  EXPECT_GT(losses.back(), 1.2 * losses.front());
}

TEST_F(Overfitting, GoesUnseenWhereWindowsAreSplitAtRandom) {
  const auto losses = validation_losses(hold_out_random(text(), 0.7, 5));
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
}

}  // namespace
}  // namespace ddpxx::held_out_text_test
