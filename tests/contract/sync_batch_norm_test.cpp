// A run of several ranks with batch norm over all of them is a run of one rank with the whole batches, under each
// strategy and with layers that are run again.
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
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/sync_batch_norm.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

constexpr std::int64_t kWidth = 6;

/// Sample i is a row of numbers that depends only on i.
struct Rows {
  std::int64_t size() const { return 32; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto inputs = ((rows * 5 + at::arange(kWidth) * 3) % 13 - 6).to(at::kFloat) / 13;
    return {inputs, inputs.square().sum(1), rows.size(0)};
  }
};

struct Block : torch::nn::Module, Layer {
  explicit Block(const Group& statistics)
      : norm{register_module("norm", std::make_shared<SyncBatchNorm>(kWidth, statistics))} {}
  at::Tensor forward(const at::Tensor& x) { return x + norm->forward(linear(x)).tanh(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear{kWidth, kWidth});
  std::shared_ptr<SyncBatchNorm> norm;
};
struct Network : torch::nn::Module {
  explicit Network(const Group& statistics) {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(statistics)));
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    return {(out(run(blocks, batch.inputs)).squeeze(1) - batch.targets).square().sum()};
  }
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear out = register_module("out", torch::nn::Linear{kWidth, 1});
};

enum class Statistics { own, shared };

struct Course {
  std::vector<double> losses;
  Snapshot snapshot;
};

template <class S>
Course train(int world_size, Statistics statistics = Statistics::shared) {
  const TemporaryFolder folder;
  spawn_ranks(world_size, [&](Group& group) {
    using Train = Trainer<Network, Rows, SGD, Float32, S>;
    typename Train::Config config;
    config.batch_size = 8 / group.size();
    config.training = {.max_steps = 8,
                       .max_epochs = 0,
                       .seed = 5,
                       .accumulation_steps = 2,
                       .save_dir = (folder / "run").string(),
                       .eval_every = 4,
                       .metrics = (folder / "metrics.jsonl").string()};
    config.optimizer.learning_rate = 1e-2;
    at::manual_seed(3);
    const Group alone;
    const auto model = std::make_shared<Network>(statistics == Statistics::shared ? group : alone);
    Train{group, model, std::make_shared<const Rows>(), config, {}, {.validation = std::make_shared<const Rows>()}}
        .fit();
  });
  Course course{{}, load_snapshot(folder / "run").value()};
  std::ifstream file{folder / "metrics.jsonl"};
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const char* key : {"loss", "val_loss"})
      if (row.contains(key)) course.losses.push_back(row[key]);
  }
  return course;
}

template <class S>
class SyncBatchNormUnder : public testing::Test {};
using Strategies = testing::Types<DDP, ZeRO2, FSDP>;
TYPED_TEST_SUITE(SyncBatchNormUnder, Strategies);

TYPED_TEST(SyncBatchNormUnder, TwoRanksAreOneRankWithTheWholeBatch) {
  const auto one = train<SingleDevice>(1), two = train<TypeParam>(2);
  const auto losses = [](const Course& course) { return at::tensor(course.losses, at::kDouble); };
  ASSERT_EQ(two.losses.size(), 10U);
  EXPECT_TRUE(at::allclose(losses(two), losses(one), 1e-5, 0)) << losses(two) << losses(one);
  for (const auto& [name, tensor] : one.snapshot.tensors)
    if (name.starts_with("model."))
      EXPECT_TRUE(at::allclose(two.snapshot.tensors.at(name), tensor, 1e-4, 1e-5)) << name;

  const auto apart = train<TypeParam>(2, Statistics::own);
  EXPECT_GT((losses(apart) - losses(one)).abs().max().template item<double>(), 1e-3);
}

TYPED_TEST(SyncBatchNormUnder, LayersThatRunAgainCountEachBatchOnceBitForBit) {
  const auto plain = train<TypeParam>(2), again = train<Recompute<TypeParam>>(2);
  EXPECT_EQ(again.losses, plain.losses);
  ASSERT_EQ(again.snapshot.tensors.size(), plain.snapshot.tensors.size());
  for (const auto& [name, tensor] : plain.snapshot.tensors)
    EXPECT_TRUE(at::equal(again.snapshot.tensors.at(name), tensor)) << name;
  EXPECT_EQ(again.snapshot.tensors.at("model.block0.norm.num_batches_tracked").template item<std::int64_t>(), 16);
}

}  // namespace
}  // namespace ddpxx
