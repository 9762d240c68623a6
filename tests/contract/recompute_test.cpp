// A layer that is run again in backward leaves its buffers as one run does: the running statistics of batch norm, and
// buffers that change by random numbers.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

#include "rows_run.hpp"

namespace ddpxx::recompute_test {
namespace {

/// Has a buffer that each forward pass changes by random numbers and reads, and a buffer that backward needs unchanged.
struct Block : torch::nn::Module, Layer {
  Block() {
    noise = register_buffer("noise", at::zeros({Rows::kWidth}));
    mask = register_buffer("mask", (at::arange(Rows::kWidth) % 3 > 0).to(at::kFloat));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) {
      const torch::NoGradGuard no_grad;
      noise.lerp_(at::randn({Rows::kWidth}), 0.3);
    }
    return x + (norm(linear(x)) * mask + 0.1 * noise).tanh();
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear{Rows::kWidth, Rows::kWidth});
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d{Rows::kWidth});
  at::Tensor noise, mask;
};
struct Network : torch::nn::Module {
  Network() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    auto x = run(blocks, batch.inputs);
    x = run(*blocks[1], x);  // calls this layer a second time
    return {(out(x).squeeze(1) - batch.targets).square().sum()};
  }
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear out = register_module("out", torch::nn::Linear{Rows::kWidth, 1});
};

template <class S>
RowsCourse train(int world_size, const typename S::Config& strategy) {
  return train_on_rows<S>(
      world_size, [](const Group&) { return std::make_shared<Network>(); }, strategy);
}

template <class S>
class RecomputedBuffers : public testing::Test {};
using Strategies = testing::Types<SingleDevice, DDP, ZeRO2, FSDP>;
TYPED_TEST_SUITE(RecomputedBuffers, Strategies);

TYPED_TEST(RecomputedBuffers, EqualThoseOfOneRunBitForBit) {
  using Policy = RecomputeConfig::Policy;
  const int world_size = std::is_same_v<TypeParam, SingleDevice> ? 1 : 2;
  const auto plain = train<TypeParam>(world_size, {});
  EXPECT_GT(plain.snapshot.tensors.at("model.block0.noise").norm().template item<double>(), 0);
  EXPECT_EQ(plain.snapshot.tensors.at("model.block0.norm.num_batches_tracked").template item<std::int64_t>(), 16);
  EXPECT_EQ(plain.snapshot.tensors.at("model.block1.norm.num_batches_tracked").template item<std::int64_t>(), 32);
  for (const auto& recompute : {RecomputeConfig{}, RecomputeConfig{.policy = Policy::segments, .count = 2}}) {
    const auto again = train<Recompute<TypeParam>>(world_size, {.recompute = recompute});
    EXPECT_EQ(again.losses, plain.losses);
    ASSERT_EQ(again.snapshot.tensors.size(), plain.snapshot.tensors.size());
    for (const auto& [name, tensor] : plain.snapshot.tensors)
      EXPECT_TRUE(at::equal(again.snapshot.tensors.at(name), tensor)) << name;
  }
}

}  // namespace
}  // namespace ddpxx::recompute_test
