// Floating-point inputs where parameters are held in bfloat16, compared with fully_shard with
// MixedPrecisionPolicy(param_dtype=bfloat16, cast_forward_inputs=True, output_dtype=float32).
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "python.hpp"

namespace ddpxx::features_test {
namespace {

/// Numbers that are not exact in bfloat16.
at::Tensor pattern(std::int64_t rows, std::int64_t columns) {
  return ((at::arange(rows).unsqueeze(1) * 5 + at::arange(columns) * 3) % 13 - 6) / 13;
}

struct Features {
  at::Tensor inputs = pattern(8, 6), targets = inputs.square().sum(1);
  std::int64_t size() const { return 8; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong);
    return {inputs.index_select(0, rows), targets.index_select(0, rows), rows.size(0)};
  }
};

struct Network : torch::nn::Module {
  Network() {
    widen = register_parameter("widen", pattern(16, 6));
    narrow = register_parameter("narrow", pattern(1, 16));
  }
  Loss forward(const Batch& batch) {
    const auto y = at::linear(at::linear(batch.inputs, widen).tanh(), narrow).squeeze(1);
    return {(y.to(at::kFloat) - batch.targets).square().sum()};
  }
  at::Tensor widen, narrow;
};

// Measured difference of losses and norms: 1e-7, because Python adds them up in another order.
TEST(FeaturesParity, FSDPInBFloat16CastsThemAsMixedPrecisionPolicyDoes) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    using Train = Trainer<Network, Features, AdamW, LowPrecision<>, FSDP>;
    typename Train::Config config;
    config.batch_size = 4;
    config.training = {.max_steps = 10,
                       .max_epochs = 0,
                       .seed = 5,
                       .grad_norm_clip = 0,
                       .save_dir = (folder / "run").string(),
                       .metrics = (folder / "metrics.jsonl").string()};
    config.optimizer = {.learning_rate = 0.02, .weight_decay = 0.1, .beta2 = 0.95};
    Train{group, std::make_shared<Network>(), std::make_shared<const Features>(), config}.fit();
  });
  const auto python = nlohmann::json::parse(run_python("features.py", {}));
  std::ifstream file{folder / "metrics.jsonl"};
  std::size_t step = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("loss")) continue;  // the row is about a snapshot
    const double loss = python.at("losses").at(step), norm = python.at("norms").at(step);
    EXPECT_NEAR(row.at("loss"), loss, 1e-6 * loss) << "step " << step + 1;
    EXPECT_NEAR(row.at("grad_norm"), norm, 1e-6 * norm) << "step " << step + 1;
    ++step;
  }
  EXPECT_EQ(step, python.at("losses").size());
  EXPECT_LT(python.at("losses").back(), 0.7 * python.at("losses").front().get<double>());
  const auto snapshot = load_snapshot(folder / "run").value();
  const auto expect_bits = [&](const char* name, const nlohmann::json& weights) {
    EXPECT_TRUE(at::equal(snapshot.tensors.at(name).flatten(), at::tensor(weights.get<std::vector<float>>()))) << name;
  };
  expect_bits("model.widen", python.at("weights").at(0));
  expect_bits("model.narrow", python.at("weights").at(1));
}

}  // namespace
}  // namespace ddpxx::features_test
