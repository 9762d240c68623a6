// tests/train/training_run.hpp — a short training of a tiny GPT that saves and resumes, and access to the files that it
// leaves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {

inline constexpr std::int64_t kGlobalBatch = 12;

/// Sample i is a short run of tokens that depends only on i.
struct Tokens {
  std::int64_t size() const { return 4 * kGlobalBatch; }
  Batch batch(std::span<const std::int64_t> indices) const {
    auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start * 7 + at::arange(9, at::kLong) * (start % 3 + 1)) % 11;
    return {ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), ids.size(0) * 8};
  }
};

/// Tokens that call `operation` before each batch.
struct Watched : Tokens {
  std::function<void()> operation;
  Batch batch(std::span<const std::int64_t> indices) const {
    operation();
    return Tokens::batch(indices);
  }
};

struct RunOptions {
  std::int64_t max_steps = 0;
  std::int64_t save_every = 0;
  double dropout = 0.0;
  SnapshotConfig snapshot = {};
  std::string failpoint = {};  ///< Reached by the rank below.
  int failing_rank = 0;
  double save_every_time = 0.0;  ///< On rank 0.
  double save_every_time_of_others = 0.0;
  std::int64_t n_embd = 16;
  double grad_norm_clip = TrainingConfig{}.grad_norm_clip;
};

class TrainingRun : public testing::Test {
 protected:
  std::filesystem::path place() const { return folder_ / "run"; }

  /// Trains up to a step, resuming from the snapshot in `place()` if there is one. The global batch is the same for all
  /// world sizes.
  template <class Strategy, class Data = Tokens>
  void train(int world_size, const RunOptions& options, const typename Strategy::Config& strategy = {},
             const std::shared_ptr<const Data>& data = std::make_shared<Data>()) {
    spawn_ranks(world_size, [&](Group& group) {
      if (!options.failpoint.empty() && group.rank() == options.failing_rank)
        ::setenv("DDPXX_FAILPOINT", options.failpoint.c_str(), 1);
      using Train = Trainer<GPT, Data, AdamW, Float32, Strategy>;
      typename Train::Config config;
      config.batch_size = kGlobalBatch / group.size();
      config.strategy = strategy;
      config.training = {
          .max_steps = options.max_steps,
          .max_epochs = 0,
          .seed = 5,
          .grad_norm_clip = options.grad_norm_clip,
          .ema_decay = 0.9,
          .save_dir = place().string(),
          .save_every = options.save_every,
          .save_every_time = group.rank() == 0 ? options.save_every_time : options.save_every_time_of_others,
          .metrics = (folder_ / "metrics.jsonl").string()};
      config.snapshot = options.snapshot;
      config.optimizer.learning_rate = 1e-2;
      // The gradient of attention's key bias is zero except for rounding, which differs between processors and world
      // sizes. With the default epsilon AdamW would turn that rounding into full steps.
      config.optimizer.epsilon = 1e-4;
      at::manual_seed(3);
      const GPTConfig model{.n_layer = 2, .n_head = 2, .n_embd = options.n_embd, .dropout = options.dropout};
      Train{group, std::make_shared<GPT>(model, 11, 8), data, config}.fit();
    });
  }

  template <class Strategy>
  void train_watched(int world_size, const RunOptions& options, std::function<void()> operation) {
    auto data = std::make_shared<Watched>();
    data->operation = std::move(operation);
    train<Strategy, Watched>(world_size, options, {}, data);
  }

  /// The rows of the metrics file that have this key.
  std::vector<nlohmann::json> rows_with(const char* key) const {
    std::vector<nlohmann::json> rows;
    std::ifstream file{folder_ / "metrics.jsonl"};
    for (std::string line; std::getline(file, line);)
      if (auto row = nlohmann::json::parse(line); row.contains(key)) rows.push_back(std::move(row));
    return rows;
  }
  std::vector<double> losses() const {
    std::map<std::int64_t, double> losses;
    for (const auto& row : rows_with("loss")) losses[row["step"]] = row["loss"];
    std::vector<double> values;
    for (const auto& [step, loss] : losses) values.push_back(loss);
    return values;
  }
  Snapshot snapshot() const { return load_snapshot(place()).value(); }
  std::vector<std::int64_t> steps() const {
    Folder storage{place()};
    std::vector<std::int64_t> steps;
    for (const auto& stored : Snapshots{storage}.list())
      if (stored.committed) steps.push_back(stored.step);
    return steps;
  }
  void forget() {
    std::filesystem::remove_all(place());
    std::filesystem::remove(folder_ / "metrics.jsonl");
  }

 private:
  TemporaryFolder folder_;
};

inline void expect_same_bits(const Snapshot& got, const Snapshot& expected) {
  EXPECT_EQ(got.run.step, expected.run.step);
  EXPECT_EQ(got.run.position, expected.run.position);
  ASSERT_EQ(got.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(at::equal(got.tensors.at(name), tensor)) << name;
}

}  // namespace ddpxx
