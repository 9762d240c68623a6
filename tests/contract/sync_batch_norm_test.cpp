// A run of several ranks with batch norm over all of them is a run of one rank with the whole batches, under each
// strategy and with layers that are run again.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/sync_batch_norm.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

#include "rows_run.hpp"

namespace ddpxx::sync_batch_norm_test {
namespace {

struct Block : torch::nn::Module, Layer {
  explicit Block(const Group& statistics)
      : norm{register_module("norm", std::make_shared<SyncBatchNorm>(Rows::kWidth, statistics))} {}
  at::Tensor forward(const at::Tensor& x) { return x + norm->forward(linear(x)).tanh(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear{Rows::kWidth, Rows::kWidth});
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
  torch::nn::Linear out = register_module("out", torch::nn::Linear{Rows::kWidth, 1});
};

enum class Statistics { own, shared };

template <class S>
RowsCourse train(int world_size, Statistics statistics = Statistics::shared) {
  const Group alone;
  return train_on_rows<S>(world_size, [&](const Group& group) {
    return std::make_shared<Network>(statistics == Statistics::shared ? group : alone);
  });
}

template <class S>
class SyncBatchNormUnder : public testing::Test {};
using Strategies = testing::Types<DDP, ZeRO2, FSDP>;
TYPED_TEST_SUITE(SyncBatchNormUnder, Strategies);

TYPED_TEST(SyncBatchNormUnder, TwoRanksAreOneRankWithTheWholeBatch) {
  const auto one = train<SingleDevice>(1), two = train<TypeParam>(2);
  const auto losses = [](const RowsCourse& course) { return at::tensor(course.losses, at::kDouble); };
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
}  // namespace ddpxx::sync_batch_norm_test
