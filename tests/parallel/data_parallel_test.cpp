// The replicas of DataParallel share parameters and buffers with the model that they are copies of.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"

namespace ddpxx::data_parallel_test {
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
  Recompute<DataParallel> strategy{{.inner = {.replicas = 3}}, alone};
  strategy.recompute_if(note);
  strategy.attach(flat);
  backward(strategy, net);
  EXPECT_EQ(asked, (std::map<std::size_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

/// Records the type of each replica's product.
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

TEST(DataParallel, ReplicasHaveFrozenParametersAndModesAsTheModelHas) {
  Group alone;
  Net net;
  net.blocks[1]->weight.set_requires_grad(false);
  FlatModel flat{net};
  Recompute<DataParallel> strategy{{.inner = {.replicas = 3}}, alone};
  strategy.attach(flat);
  net.blocks[2]->eval();
  for (int step = 0; step < 2; ++step) {
    backward(strategy, net);
    const auto replicas = strategy.layers_of_replicas();
    ASSERT_EQ(replicas.size(), 2U);
    for (const auto& layers : replicas)
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto& block = dynamic_cast<const Block&>(*layers[i]);
        EXPECT_EQ(block.weight.requires_grad(), i != 1) << i;
        EXPECT_EQ(block.is_training(), i != 2) << i;
      }
  }
}

TEST(DataParallel, ReplicasComputeWithWhatTheProgramHasChangedBetweenTwoSteps) {
  Group alone;
  Net net;
  FlatModel flat{net};
  Recompute<DataParallel> strategy{{.inner = {.replicas = 3}}, alone};
  strategy.attach(flat);
  const auto change = [&net](double value) {
    const c10::NoGradGuard no_grad;
    net.blocks[2]->weight.fill_(value);
  };
  change(0.05);
  backward(strategy, net);
  strategy.finish_step();
  change(0.1);
  const auto loss = backward(strategy, net).item<double>();
  auto x = at::ones({6, 4});
  for (const auto& block : net.blocks) x = block->forward(x);
  EXPECT_NEAR(loss, x.square().sum().item<double>(), 1e-5);
}

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

/// Applies dropout, and keeps the mask.
struct Dropping : torch::nn::Cloneable<Dropping>, Layer {
  Dropping() { reset(); }
  void reset() override { weight = register_parameter("weight", at::full({64, 64}, 0.1)); }
  at::Tensor forward(const at::Tensor& x) { return at::dropout(at::matmul(x, weight), 0.5, is_training()); }
  at::Tensor weight;
};
struct DroppingNet : torch::nn::Cloneable<DroppingNet> {
  DroppingNet() { reset(); }
  void reset() override { layer = register_module("layer", std::make_shared<Dropping>()); }
  template <class Run>
  at::Tensor forward(Run& run, const Batch& batch) {
    return run(*layer, run(*layer, batch.inputs)).square().sum();
  }
  std::shared_ptr<Dropping> layer;
};

template <class Strategy>
at::Tensor gradient_of_dropping(const typename Strategy::Config& config) {
  Group alone;
  DroppingNet net;
  FlatModel flat{net};
  Strategy strategy{config, alone};
  strategy.attach(flat);
  at::manual_seed(3);
  strategy.begin_backward(Sync::now);
  const Batch batch{at::ones({64, 64}), at::zeros({64}), 64};
  strategy.forward(net, batch, [](auto& model, auto& run, const auto& part) { return model.forward(run, part); })
      .backward();
  strategy.finish_backward();
  return strategy.trainable()[0].gradient.clone();
}

TEST(DataParallel, DropoutOnACpuRepeatsAndIsTheSameInALayerThatIsRunAgain) {
  const auto first = gradient_of_dropping<DataParallel>({.replicas = 4});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(gradient_of_dropping<DataParallel>({.replicas = 4}), first)) << i;
  EXPECT_TRUE(at::equal(gradient_of_dropping<Recompute<DataParallel>>({.inner = {.replicas = 4}}), first));
}

TEST(DataParallel, RefusesReplicasWithoutNumberBeforeItMakesOne) {
  for (const std::int64_t replicas : {std::int64_t{-1}, std::int64_t{257}, std::int64_t{1} << 40}) try {
      Group alone;
      const DataParallel strategy{{.replicas = replicas}, alone};
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_EQ(error.what(), "strategy dp: replicas=" + std::to_string(replicas) + " is not between 0 and 256");
    }
}

struct First : torch::nn::Cloneable<First> {
  First() { reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({4, 4})); }
  at::Tensor weight;
};
struct Last : torch::nn::Cloneable<Last> {
  explicit Last(std::shared_ptr<First> owner) : first{std::move(owner)} { reset(); }
  void reset() override { weight = register_parameter("weight", first->weight); }
  std::shared_ptr<First> first;
  at::Tensor weight;
};
/// Two modules that share a parameter.
struct Tied : torch::nn::Cloneable<Tied> {
  Tied() { reset(); }
  void reset() override {
    const auto first = register_module("first", std::make_shared<First>());
    register_module("last", std::make_shared<Last>(first));
  }
};

TEST(DataParallel, RefusesParametersThatItsCopiesWouldNotShare) {
  Group alone;
  Tied net;
  FlatModel flat{net};
  ASSERT_EQ(flat.trainable().size(), 1U);
  DataParallel strategy{{.replicas = 2}, alone};
  try {
    strategy.attach(flat);
    FAIL() << "the parameters of the replica are not one";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("does not copy a parameter that modules share"));
  }
}

TEST(DataParallel, RefusesAGroupOfSeveralRanks) {
  spawn_ranks(2, [](Group& group) {
    const auto make = [&] { const DataParallel strategy{{}, group}; };
    EXPECT_EQ(code_of(make), Errc::config);
    EXPECT_EQ(error_of(make),
              "strategy dp runs one process on all devices, but this group has 2; choose ddp, or start one process");
  });
}

/// A model that clone() cannot copy, since it is no torch::nn::Cloneable.
struct Single : torch::nn::Module {
  Single() { weight = register_parameter("weight", at::ones({4, 4})); }
  at::Tensor weight;
};

TEST(DataParallel, RefusesAModelThatCannotBeCopied) {
  Group alone;
  Single net;
  FlatModel flat{net};
  const auto attach = [&](std::int64_t replicas) {
    DataParallel strategy{{.replicas = replicas}, alone};
    strategy.attach(flat);
  };
  EXPECT_EQ(code_of([&] { attach(2); }), Errc::config);
  EXPECT_EQ(error_of([&] { attach(2); }),
            "DataParallel copies the model: derive it, and every module in it, from torch::nn::Cloneable, or choose "
            "another strategy");
  attach(1);
}

TEST(DataParallel, RefusesAModuleThatItsCopiesDoNotHave) {
  Group alone;
  Net net;
  FlatModel flat{net};
  Recompute<DataParallel> strategy{{.inner = {.replicas = 2}}, alone};
  strategy.attach(flat);
  net.blocks[1]->register_module("later", std::make_shared<torch::nn::DropoutImpl>());
  EXPECT_EQ(code_of([&] { backward(strategy, net); }), Errc::config);
  EXPECT_EQ(error_of([&] { backward(strategy, net); }),
            "a module was added to the model after DataParallel had copied it: add all modules before the trainer "
            "takes the model");
}

}  // namespace
}  // namespace ddpxx::data_parallel_test
