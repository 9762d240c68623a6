// What the replicas of one process share with the model they are copies of.
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/autocast_state.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx {
namespace {

struct Block : torch::nn::Cloneable<Block>, Layer {
  Block() { reset(); }
  void reset() override { weight = register_parameter("weight", at::full({4, 4}, 0.3)); }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight).tanh(); }
  at::Tensor weight;
};

struct Net : torch::nn::Cloneable<Net> {
  Net() { reset(); }
  void reset() override {
    blocks.clear();
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  at::Tensor forward(Run& run, const Batch& batch) {
    auto x = batch.inputs;
    for (const auto& child : children()) x = run(dynamic_cast<Block&>(*child), x);
    return x.square().sum();
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

at::Tensor backward(Recompute<DataParallel>& strategy, Net& net) {
  const Batch batch{at::ones({6, 4}), at::zeros({6}), 6};
  strategy.begin_backward(Sync::now);
  auto loss =
      strategy.forward(net, batch, [](auto& model, auto& run, const auto& part) { return model.forward(run, part); });
  loss.backward();
  strategy.finish_backward();
  return loss.detach();
}

TEST(DataParallel, LayersOfReplicasHaveTheNumbersOfTheModelsOwn) {
  Group alone;
  Net net;
  FlatModel flat{net};
  std::mutex mutex;
  std::map<std::size_t, int> asked;
  const auto note = [&](std::size_t layer) {
    const std::lock_guard lock{mutex};
    ++asked[layer];
    return false;
  };
  Recompute<DataParallel> strategy{{.strategy = {.replicas = 3}, .recompute = {.chosen = note}}, alone};
  strategy.attach(flat);
  backward(strategy, net);
  EXPECT_EQ(asked, (std::map<std::size_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

/// Notes the type in which each replica's product comes out.
struct Noting : torch::nn::Cloneable<Noting> {
  Noting() { reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({4, 4})); }
  at::Tensor forward(const Batch& batch) {
    const auto y = at::matmul(batch.inputs, weight);
    type = y.scalar_type();
    return y.sum().to(at::kFloat) * (type == at::kHalf ? 1 : 1000);
  }
  at::Tensor weight;
  at::ScalarType type = at::kFloat;
};

TEST(DataParallel, ReplicasComputeInTheTypeThatAutocastHasBeenGiven) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    Group alone;
    Noting net;
    FlatModel flat{net};
    DataParallel strategy{{.replicas = 3}, alone};
    strategy.attach(flat);
    const Batch batch{at::ones({6, 4}), at::zeros({6}), 6};
    const AutocastScope scope{{.device = at::kCPU, .enabled = true, .type = type, .cache = true}};
    const auto loss =
        strategy.forward(net, batch, [](auto& model, auto&, const auto& part) { return model.forward(part); });
    EXPECT_EQ(loss.item<float>(), type == at::kHalf ? 96 : 96'000);
  }
}

TEST(DataParallel, OnACpuRefusesToRunALayerOfAReplicaAgain) {
  Group alone;
  Net net;
  FlatModel flat{net};
  const RecomputeConfig every_other{.policy = RecomputeConfig::Policy::every, .count = 2};
  Recompute<DataParallel> strategy{{.strategy = {.replicas = 2}, .recompute = every_other}, alone};
  strategy.attach(flat);
  try {
    backward(strategy, net);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::StartsWith("the replicas of DataParallel draw from one generator on a CPU"));
  }
}

}  // namespace
}  // namespace ddpxx
