// Spellings from the guides, minGPT-ddp and Hydra set the right field.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::vocabulary_test {
namespace {

using namespace detail;

struct Data {
  std::string path;
  std::int64_t block_size = 64;
  double train_split = 0.9;
  double truncate = 1;
  std::int64_t batch_size = 8;
  std::int64_t workers = 1;
};
struct Model {
  std::string model_type = "gpt-nano";
  std::optional<std::int64_t> n_layer;
  std::optional<std::int64_t> n_head;
  std::optional<std::int64_t> n_embd;
  double dropout = 0.1;
};
struct Optimizer {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
};
struct Training {
  std::int64_t max_epochs = 1;
  double grad_norm_clip = 1;
  std::string save_dir;
  std::int64_t save_every = 0;
};
struct Config {
  Data data;
  Model model;
  Optimizer optimizer;
  Training training;

  static constexpr auto aliases() {
    return std::array{Alias{"data.dataset", "data.path"},
                      Alias{"training.learning_rate", "optimizer.learning_rate"},
                      Alias{"data_config", "data"},
                      Alias{"gpt_config", "model"},
                      Alias{"optimizer_config", "optimizer"},
                      Alias{"trainer_config", "training"},
                      Alias{"trainer_config.batch_size", "data.batch_size"},
                      Alias{"trainer_config.data_loader_workers", "data.workers"},
                      Alias{"trainer_config.snapshot_path", "training.save_dir"},
                      Alias{"trainer", "trainer_config"}};
  }
  static constexpr auto ignored() {
    return std::array{Ignored{"hydra", "the working directory is never changed"},
                      Ignored{"trainer_config.use_amp", "the precision is chosen by `precision`"}};
  }
};

TEST(Vocabulary, OfTheGuideParses) {
  const auto filled = fill<Config>(R"(data:
  dataset: "shakespeare"
  batch_size: 64
model:
  n_layer: 12
  n_head: 12
  n_embd: 768
training:
  max_epochs: 10
  learning_rate: 0.0003
  save_dir: "s3://my-bucket/training-checkpoints/"
)");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(
      print_yaml(filled.config),
      "data:\n  path: \"shakespeare\"\n  block_size: 64\n  train_split: 0.9\n  truncate: 1.0\n  batch_size: 64\n"
      "  workers: 1\nmodel:\n  model_type: \"gpt-nano\"\n  n_layer: 12\n  n_head: 12\n  n_embd: 768\n  dropout: 0.1\n"
      "optimizer:\n  learning_rate: 0.0003\n  weight_decay: 0.1\ntraining:\n  max_epochs: 10\n  grad_norm_clip: 1.0\n"
      "  save_dir: \"s3://my-bucket/training-checkpoints/\"\n  save_every: 0\n");
}

TEST(Vocabulary, OfMinGptDdpParses) {
  const auto filled = fill<Config>(R"(gpt_config:
  n_layer: 8
  n_head: 8
  n_embd: 512
trainer_config:
  max_epochs: 10
  batch_size: 216
  data_loader_workers: 4
  grad_norm_clip: 1.0
  snapshot_path: gpt_snapshot.pt
  save_every: 3
  use_amp: True
data_config:
  path: ./data/input.txt
  block_size: 128
  train_split: 0.9
  truncate: 0.05
optimizer_config:
  weight_decay: 0.1
  learning_rate: 0.0003
hydra:
  run:
    dir: ./
)");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.notices,
            "t.yaml:12:3: trainer_config.use_amp: the precision is chosen by `precision`\n"
            "t.yaml:21:1: hydra: the working directory is never changed\n");
  EXPECT_EQ(
      print_yaml(filled.config),
      "data:\n  path: \"./data/input.txt\"\n  block_size: 128\n  train_split: 0.9\n  truncate: 0.05\n  batch_size: "
      "216\n"
      "  workers: 4\nmodel:\n  model_type: \"gpt-nano\"\n  n_layer: 8\n  n_head: 8\n  n_embd: 512\n  dropout: 0.1\n"
      "optimizer:\n  learning_rate: 0.0003\n  weight_decay: 0.1\ntraining:\n  max_epochs: 10\n  grad_norm_clip: 1.0\n"
      "  save_dir: \"gpt_snapshot.pt\"\n  save_every: 3\n");
}

struct Spelling {
  std::vector<const char*> arguments;
  std::string key;
  std::string printed;
};

class Spellings : public testing::TestWithParam<Spelling> {};

TEST_P(Spellings, LandInTheField) {
  const auto filled = fill<Config>("", GetParam().arguments);
  const auto& table = table_of<Config>();
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(table.print(*table.find(GetParam().key), &filled.config), GetParam().printed);
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, Spellings,
    testing::Values(Spelling{{"data.path=input.txt"}, "data.path", "\"input.txt\""},
                    Spelling{{"data.dataset=shakespeare"}, "data.path", "\"shakespeare\""},
                    Spelling{{"data_config.dataset=x"}, "data.path", "\"x\""},
                    Spelling{{"data_config.truncate=0.05"}, "data.truncate", "0.05"},
                    Spelling{{"gpt_config.n_layer=8"}, "model.n_layer", "8"},
                    Spelling{{"--model.n_layer=10"}, "model.n_layer", "10"},
                    Spelling{{"--trainer.batch_size=32"}, "data.batch_size", "32"},
                    Spelling{{"trainer_config.batch_size=216"}, "data.batch_size", "216"},
                    Spelling{{"trainer_config.max_epochs=10"}, "training.max_epochs", "10"},
                    Spelling{{"trainer_config.grad_norm_clip=1.0"}, "training.grad_norm_clip", "1.0"},
                    Spelling{{"trainer_config.snapshot_path=s3://b/gpt_snapshot.pt"},
                             "training.save_dir",
                             "\"s3://b/gpt_snapshot.pt\""},
                    Spelling{{"optimizer_config.learning_rate=3e-4"}, "optimizer.learning_rate", "0.0003"},
                    Spelling{{"training.learning_rate=3e-4"}, "optimizer.learning_rate", "0.0003"},
                    Spelling{{"trainer_config.learning_rate=3e-4"}, "optimizer.learning_rate", "0.0003"},
                    Spelling{{"--training.max-epochs", "1e1"}, "training.max_epochs", "10"},
                    Spelling{{"training.save_dir=s3://my-bucket/training-checkpoints/"},
                             "training.save_dir",
                             "\"s3://my-bucket/training-checkpoints/\""},
                    Spelling{{"hydra.run.dir=./"}, "training.max_epochs", "1"}));

}  // namespace
}  // namespace ddpxx::vocabulary_test
