// The contract of strategies, tested with every strategy.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

#include "assemble.hpp"

namespace ddpxx::strategy_contract_test {
namespace {

struct Block : torch::nn::Module, Layer {
  explicit Block(std::int64_t width) {
    weight = register_parameter("weight", at::rand({width, width}));
    bias = register_parameter("bias", at::rand({width}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias).tanh(); }
  at::Tensor weight, bias;
};

/// Layers that are called through the runner, and parameters and a buffer of the root.
struct Net : torch::nn::Module {
  explicit Net(std::int64_t width = 5) {
    at::manual_seed(7);
    scale = register_parameter("scale", at::rand({4, width}));
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(width)));
    count = register_buffer("count", at::zeros({1}));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return run(blocks, at::matmul(x, scale)).square().sum();
  }
  at::Tensor scale, count;
  std::vector<std::shared_ptr<Block>> blocks;
};

at::Tensor share(const at::Tensor& batch, const Group& group) {
  return batch.view({group.size(), -1, 4}).select(0, group.rank());
}

template <class S>
at::Tensor loss_of(S& strategy, Net& net, const at::Tensor& x) {
  return strategy.forward(net, x, [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch); });
}

using Gradients_ = std::map<std::string, at::Tensor>;

/// Every parameter's whole gradient, joined from the pieces that the ranks hold.
template <class S>
Gradients_ gradients_of(const S& strategy, const Group& group) {
  Gradients_ all;
  for (const auto& segment : strategy.trainable().segments()) {
    const auto whole = assemble(strategy.trainable(), segment.gradient, group);
    for (auto i = segment.first; i < segment.last; ++i) {
      const auto& entry = strategy.trainable()[i];
      all.emplace(entry.name, Arena::part(whole, entry, segment.begin));
    }
  }
  return all;
}

/// The gradients that one process computes for the whole batch.
Gradients_ reference_gradients(const at::Tensor& batch, int world_size) {
  Net net;
  PlainCall plain;
  LayerRunner run{plain};
  (net.forward(run, batch) / world_size).backward();
  Gradients_ all;
  for (const auto& item : net.named_parameters()) all.emplace(item.key(), item.value().grad());
  return all;
}

void expect_close(const Gradients_& got, const Gradients_& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(at::allclose(got.at(name), gradient, 1e-4, 1e-6)) << name;
}

at::Tensor batch_of(int step, const Group& group) {
  return at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * (0.1 * (step + 1));
}

/// One backward pass, in which each rank computes its share of the batch.
template <class S>
void expect_the_gradients_of_one_process(S& strategy, Net& net, const at::Tensor& batch, const Group& group) {
  strategy.begin_backward(Sync::now);
  loss_of(strategy, net, share(batch, group)).backward();
  strategy.finish_backward();
  expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
}

// A strategy that wraps another one has exactly the optional functions of the inner strategy.
static_assert(VerifiesCalls<Recompute<HSDP>> && !VerifiesCalls<Recompute<DDP>>);
static_assert(ResumesAtStep<Recompute<DDPWith<PowerSGD>>> && !ResumesAtStep<Recompute<DDP>>);
static_assert(SharesBuffers<Recompute<HSDP>> && SharesBuffers<StepInBackward<ZeRO1>> &&
              !SharesBuffers<Recompute<SingleDevice>>);
static_assert(LetsRanksDrift<StepInBackward<DDPWith<NoSync>>> && !LetsRanksDrift<StepInBackward<DDP>>);
static_assert(PlansUnits<StepInBackward<HSDP>> && PlansSegments<Recompute<ZeRO1>> && !PlansUnits<Recompute<DDP>>);
static_assert(CopiesLayers<Recompute<DataParallel>> && ChecksConfig<Recompute<DataParallel>>);
static_assert(ChecksStepInBackward<Recompute<DDP>> && !ChecksStepInBackward<Recompute<FSDP>>);

template <class S>
class StrategyContract : public testing::Test {
 public:
  static std::vector<int> worlds() {
    if (std::is_same_v<S, SingleDevice> || std::is_same_v<S, Recompute<SingleDevice>>) return {1};
    return {1, 2, 3};
  }
  /// Runs body(strategy, net, group) with each number of ranks that the strategy supports.
  template <class Body>
  static void in_every_world(Body body, const typename S::Config& config = {}) {
    for (const int world_size : worlds())
      spawn_ranks(world_size, [&](Group& group) {
        Net net;
        FlatModel flat{net};
        S strategy{config, group};
        strategy.attach(flat);
        body(strategy, net, group);
      });
  }
};
/// FSDP with a unit for each of the small layers of this test.
struct FSDPOfSingleLayers : FSDP {
  FSDPOfSingleLayers(Config config, Group& group) : FSDP{alone(std::move(config)), group} {}
  static Config alone(Config config) {
    config.unit_bytes = 0;
    return config;
  }
};

using Strategies =
    testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP, FSDPOfSingleLayers, HSDP, Recompute<SingleDevice>,
                   Recompute<DDP>, Recompute<ZeRO2>, Recompute<FSDP>, Recompute<FSDPOfSingleLayers>>;
TYPED_TEST_SUITE(StrategyContract, Strategies);

TYPED_TEST(StrategyContract, SlicesOfAllRanksHoldEveryElementExactlyOnce) {
  this->in_every_world([](auto& strategy, Net&, Group& group) {
    auto held = at::zeros({strategy.trainable().numel()});
    for (const auto& slice : strategy.slices()) {
      EXPECT_EQ(slice.values.numel(), slice.end - slice.begin);
      EXPECT_EQ(slice.gradients.numel(), slice.end - slice.begin);
      held.narrow(0, slice.begin, slice.end - slice.begin).add_(1);
    }
    all_reduce(held, group);
    const bool sharded = strategy.trainable().pieces() > 1;
    EXPECT_TRUE(at::equal(held, at::full_like(held, sharded ? 1 : group.size())));
  });
}

TYPED_TEST(StrategyContract, GradientsAreTheMeanOverTheRanks) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    for (int step = 0; step < 3; ++step)
      expect_the_gradients_of_one_process(strategy, net, batch_of(step, group), group);
  });
}

TYPED_TEST(StrategyContract, DeferredBackwardPassesAddUp) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    for (int step = 0; step < 2; ++step) {
      const auto batch = at::rand({group.size() * 6, 4});
      broadcast(batch, group);
      const auto mine = share(batch, group).chunk(3);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        strategy.begin_backward(i + 1 == mine.size() ? Sync::now : Sync::defer);
        loss_of(strategy, net, mine[i]).backward();
        strategy.finish_backward();
      }
      expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
    }
  });
}

TYPED_TEST(StrategyContract, WhatIsSteppedIsWhatTheModelComputesWith) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    const auto x = at::ones({2, 4});
    for (int step = 0; step < 2; ++step) {
      strategy.begin_backward(Sync::now);
      loss_of(strategy, net, x).backward();
      strategy.finish_backward();
      for (const auto& slice : strategy.slices()) at::Tensor{slice.values}.sub_(slice.gradients, 0.1);
      strategy.finish_step();
    }
    Net reference;
    PlainCall plain;
    LayerRunner run{plain};
    for (int step = 0; step < 2; ++step) {
      reference.zero_grad();
      reference.forward(run, x).backward();
      const c10::NoGradGuard no_grad;
      for (auto& parameter : reference.parameters()) parameter.sub_(parameter.grad(), 0.1);
    }
    const c10::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(loss_of(strategy, net, x), reference.forward(run, x), 1e-4)) << group.rank();
    [[maybe_unused]] const auto whole = strategy.gathered();
    for (const auto& item : reference.named_parameters())
      EXPECT_TRUE(at::allclose(net.named_parameters()[item.key()], item.value(), 1e-4, 1e-6)) << item.key();
  });
}

TYPED_TEST(StrategyContract, AnEvaluationBetweenStepsChangesNothing) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * 0.1;
    strategy.begin_backward(Sync::now);
    const auto loss = loss_of(strategy, net, share(batch, group));
    {
      const c10::NoGradGuard no_grad;
      loss_of(strategy, net, share(batch, group));
    }
    loss.backward();
    strategy.finish_backward();
    expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
  });
}

TYPED_TEST(StrategyContract, ABackwardPassBetweenStepsChangesNothing) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    for (int step = 0; step < 3; ++step) {
      const auto batch = batch_of(step, group);
      expect_the_gradients_of_one_process(strategy, net, batch, group);
      strategy.finish_step();
      loss_of(strategy, net, share(batch, group)).backward();  // as by a model in which this one is a part
      strategy.wait_pending();
    }
  });
}

TYPED_TEST(StrategyContract, OneRankAloneMayComputeGradientsWhereAllParametersAreWhole) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    {
      [[maybe_unused]] const auto whole = strategy.gathered();
      if (group.rank() == 0)
        for (int i = 0; i < 2; ++i) {
          auto x = at::ones({2, 4}).requires_grad_();
          loss_of(strategy, net, x).backward();
          EXPECT_TRUE(x.grad().defined());
        }
      EXPECT_EQ(net.blocks[1]->weight.sum().numel(), 1) << "parameters are whole to the end of the scope";
    }
    const auto batch = batch_of(1, group);
    expect_the_gradients_of_one_process(strategy, net, batch, group);
  });
}

TYPED_TEST(StrategyContract, AnExceptionInForwardLeavesTheNextStepRight) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    strategy.begin_backward(Sync::now);
    EXPECT_ANY_THROW(loss_of(strategy, net, at::ones({2, 3})));
    try {
      strategy.finish_backward();
    } catch (const Error&) {
      // DDP and ZeRO report that no gradient came.
    }
    const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * 0.1;
    strategy.begin_backward(Sync::now);
    loss_of(strategy, net, share(batch, group)).backward();
    strategy.finish_backward();
    expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
  });
}

TYPED_TEST(StrategyContract, AnExceptionInBackwardLeavesTheNextStepRight) {
  this->in_every_world([](auto& strategy, Net& net, Group& group) {
    const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * 0.1;
    strategy.begin_backward(Sync::defer);
    loss_of(strategy, net, share(batch, group)).backward();
    strategy.finish_backward();
    strategy.begin_backward(Sync::now);
    const auto x = share(batch, group).clone().requires_grad_();
    x.register_hook([](const at::Tensor&) { throw Error{Errc::data, "at the end of backward"}; });
    EXPECT_ANY_THROW(loss_of(strategy, net, x).backward());

    strategy.begin_backward(Sync::now);
    loss_of(strategy, net, share(batch, group)).backward();
    strategy.finish_backward();
    expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
  });
}

TYPED_TEST(StrategyContract, AFrozenParameterGetsNoGradientAndIsNoError) {
  for (const int world_size : this->worlds())
    spawn_ranks(world_size, [&](Group& group) {
      Net net;
      for (auto& parameter : net.blocks[1]->parameters()) parameter.set_requires_grad(false);
      net.blocks[0]->weight.set_requires_grad(false);
      FlatModel flat{net};
      TypeParam strategy{{}, group};
      strategy.attach(flat);
      const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * 0.1;
      for (int step = 0; step < 2; ++step) {
        strategy.begin_backward(Sync::now);
        loss_of(strategy, net, share(batch, group)).backward();
        strategy.finish_backward();
        auto expected = reference_gradients(batch, group.size());
        for (const char* frozen : {"block1.weight", "block1.bias", "block0.weight"}) expected.erase(frozen);
        expect_close(gradients_of(strategy, group), expected);
      }
      EXPECT_FALSE(net.blocks[1]->bias.grad().defined());
    });
}

/// A frozen layer that is called on its own result, and with two inputs of which one is complete before the other.
struct FrozenNet : torch::nn::Module {
  struct Sum : torch::nn::Module, Layer {
    Sum() { weight = register_parameter("weight", at::rand({5, 5}), /*requires_grad=*/false); }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
      return at::linear(at::linear(x, weight).tanh() + y, weight).tanh();
    }
    at::Tensor weight;
  };
  FrozenNet() {
    at::manual_seed(7);
    first = register_module("first", std::make_shared<Block>(5));
    sum = register_module("sum", std::make_shared<Sum>());
    last = register_module("last", std::make_shared<Block>(5));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    const auto y = run(*first, x);
    auto z = run(*sum, y * 2, y);
    z = run(*sum, z * 3, z);
    z = run(*sum, z, y);
    return run(*last, z).square().sum();
  }
  std::shared_ptr<Block> first, last;
  std::shared_ptr<Sum> sum;
};

TYPED_TEST(StrategyContract, AFrozenLayerMayBeCalledOnItsOwnResult) {
  for (const int world_size : this->worlds())
    spawn_ranks(world_size, [&](Group& group) {
      FrozenNet net, reference;
      FlatModel flat{net};
      TypeParam strategy{{}, group};
      strategy.attach(flat);
      const auto batch = at::arange(group.size() * 2 * 5, at::kFloat).view({group.size(), 2, 5}) * 0.1;
      PlainCall plain;
      LayerRunner run{plain};
      (reference.forward(run, batch.flatten(0, 1)) / group.size()).backward();
      Gradients_ expected;
      for (const auto& item : reference.named_parameters())
        if (item.value().requires_grad()) expected.emplace(item.key(), item.value().grad());
      for (int step = 0; step < 2; ++step) {
        strategy.begin_backward(Sync::now);
        strategy
            .forward(net, batch[group.rank()],
                     [](auto& model, auto& runner, const auto& x) { return model.forward(runner, x); })
            .backward();
        strategy.finish_backward();
        expect_close(gradients_of(strategy, group), expected);
      }
    });
}

/// An embedding of eight tokens, whose second backward pass adds to the gradient of the first.
struct Tokens : torch::nn::Module {
  explicit Tokens(bool sparse) {
    at::manual_seed(7);
    embedding = register_module("embedding", torch::nn::Embedding{torch::nn::EmbeddingOptions(8, 3).sparse(sparse)});
  }
  template <class Run>
  at::Tensor forward(Run&, const at::Tensor& tokens) {
    return embedding(tokens).square().sum();
  }
  torch::nn::Embedding embedding = nullptr;
};

TYPED_TEST(StrategyContract, ASparseGradientIsTakenAsTheDenseOne) {
  for (const int world_size : this->worlds())
    spawn_ranks(world_size, [](Group& group) {
      const auto run = [&](bool sparse) {
        Tokens net{sparse};
        FlatModel flat{net};
        TypeParam strategy{{}, group};
        strategy.attach(flat);
        for (const auto sync : {Sync::defer, Sync::now}) {
          strategy.begin_backward(sync);
          const auto tokens = at::tensor({group.rank(), 5, 5, sync == Sync::now ? 1 : 7}, at::kLong);
          strategy
              .forward(net, tokens, [](auto& model, auto& runner, const auto& x) { return model.forward(runner, x); })
              .backward();
          strategy.finish_backward();
        }
        return gradients_of(strategy, group).at("embedding.weight").clone();
      };
      const auto sparse = run(true), dense = run(false);
      EXPECT_TRUE(at::equal(sparse, dense)) << sparse << dense;
    });
}

TYPED_TEST(StrategyContract, AParameterThatLeftTheFlatMemoryIsNamedAtTheNextStep) {
  this->in_every_world([](auto& strategy, Net& net, Group&) {
    net.blocks[2]->bias.set_data(at::zeros({5}));
    try {
      strategy.begin_backward(Sync::now);
      FAIL() << "a parameter outside of the flat memory was not reported";
    } catch (const Error& error) {
      EXPECT_NE(std::string{error.what()}.find("\"block2.bias\" has left the flat memory"), std::string::npos);
    }
  });
}

TYPED_TEST(StrategyContract, AFrozenParameterThatLeftTheFlatMemoryIsNamedAtTheNextStep) {
  for (const int world_size : this->worlds())
    spawn_ranks(world_size, [&](Group& group) {
      Net net;
      net.blocks[1]->bias.set_requires_grad(false);
      FlatModel flat{net};
      TypeParam strategy{{}, group};
      strategy.attach(flat);
      net.blocks[1]->bias.set_data(at::zeros({5}));
      try {
        strategy.begin_backward(Sync::now);
        FAIL() << "a frozen parameter outside of the flat memory was not reported";
      } catch (const Error& error) {
        EXPECT_NE(std::string{error.what()}.find("\"block1.bias\" has left the flat memory"), std::string::npos);
      }
    });
}

TYPED_TEST(StrategyContract, ASecondStrategyOnOneModelIsRefused) {
  this->in_every_world([](auto&, Net& net, Group&) {
    try {
      const FlatModel again{net};
      FAIL() << "a second strategy was attached to the model";
    } catch (const Error& error) {
      EXPECT_NE(std::string{error.what()}.find("a trainer holds this model already"), std::string::npos);
    }
  });
}

TYPED_TEST(StrategyContract, AModelWithoutARunnerIsOneUnit) {
  if constexpr (!recomputes_layers<TypeParam>) {
    struct Ordinary : Net {
      at::Tensor forward(const at::Tensor& x) {
        PlainCall plain;
        LayerRunner run{plain};
        return Net::forward(run, x);
      }
    };
    for (const int world_size : this->worlds())
      spawn_ranks(world_size, [&](Group& group) {
        Ordinary net;
        FlatModel flat{net};
        TypeParam strategy{{}, group};
        strategy.attach(flat);
        const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * 0.1;
        strategy.begin_backward(Sync::now);
        strategy.forward(net, share(batch, group), [](auto& model, auto&, const auto& x) { return model.forward(x); })
            .backward();
        strategy.finish_backward();
        expect_close(gradients_of(strategy, group), reference_gradients(batch, group.size()));
      });
  }
}

TEST(SingleDevice, RefusesAWorldOfTwo) {
  spawn_ranks(2, [](Group& group) { EXPECT_THROW((SingleDevice{{}, group}), Error); });
}

TEST(DDP, GivesAllRanksTheParametersAndBuffersOfRankZero) {
  spawn_ranks(2, [](Group& group) {
    Net net;
    if (group.rank() == 1) {
      const c10::NoGradGuard no_grad;
      net.scale.zero_();
      net.count.fill_(5);
    }
    FlatModel flat{net};
    DDP ddp{{}, group};
    ddp.attach(flat);
    EXPECT_TRUE(at::equal(net.scale, Net{}.scale));
    EXPECT_EQ(net.count.item<float>(), 0.0F);
    if (group.rank() == 0) net.count.fill_(3);
    ddp.begin_backward(Sync::now);
    loss_of(ddp, net, at::ones({2, 4})).backward();
    ddp.finish_backward();
    ddp.begin_backward(Sync::now);
    EXPECT_EQ(net.count.item<float>(), 3.0F) << "rank 0's buffers must be sent before each step";
    loss_of(ddp, net, at::ones({2, 4})).backward();
    ddp.finish_backward();
  });
}

TEST(DDP, NamesTheFirstParameterThatDiffersBetweenRanks) {
  try {
    spawn_ranks(3, [](Group& group) {
      Net net{group.rank() == 2 ? 6 : 5};
      FlatModel flat{net};
      DDP ddp{{}, group};
      ddp.attach(flat);
    });
    FAIL() << "different models were not reported";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    const std::string text = error.what();
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "})
      EXPECT_NE(text.find(std::string{rank} +
                          "the ranks hold different models: rank 0 has \"block2.bias [5] Float\" where rank 2 has "
                          "\"block2.bias [6] Float\""),
                std::string::npos)
          << text;
  }
}

/// A recording backend that records the size of its group when it is shut down.
class ClosingBackend : public detail::RecordingBackend {
 public:
  ClosingBackend(int rank, int size, std::vector<int>* closed)
      : RecordingBackend{rank, size, std::make_shared<Recording>()}, closed_{closed} {}
  void shutdown() override { closed_->push_back(getSize()); }

  static Group group(int rank, int size, std::vector<int>* closed) {
    return Group{c10::make_intrusive<ClosingBackend>(rank, size, closed), c10::make_intrusive<c10d::HashStore>(),
                 at::kCPU, [closed](c10::intrusive_ptr<c10d::Store>, int part_rank, int part_size) {
                   return group(part_rank, part_size, closed);
                 }};
  }

 private:
  std::vector<int>* closed_;
};

// All ranks start the collectives in this order, whose number depends on the model only.
TEST(FSDP, GathersTheNewestValuesAfterAStepThatForwardHasEnded) {
  spawn_ranks(4, [](Group& group) {
    Net net;
    FlatModel flat{net};
    FSDP fsdp{{.unit_bytes = 0, .reshard_after_forward = "2"}, group};
    fsdp.attach(flat);
    for (const double value : {3.0, 4.0}) {
      fsdp.begin_backward(Sync::now);
      static_cast<void>(loss_of(fsdp, net, at::ones({2, 4})));  // and backward never runs
      for (const auto& slice : fsdp.slices()) at::Tensor{slice.values}.fill_(value);
      fsdp.finish_step();
      [[maybe_unused]] const auto whole = fsdp.gathered();
      for (const auto& item : net.named_parameters())
        EXPECT_TRUE(at::equal(item.value(), at::full_like(item.value(), value))) << item.key();
    }
  });
}

TEST(FSDP, SendsTheGradientsOfASegmentOfSmallLayersWithinBackward) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(0, 8, recording);
  Net net;
  FlatModel flat{net};
  Recompute<FSDP> fsdp{{.recompute = {.policy = RecomputeConfig::Policy::segments, .count = 1}}, group};
  fsdp.attach(flat);
  fsdp.begin_backward(Sync::now);
  loss_of(fsdp, net, at::ones({2, 4})).backward();
  EXPECT_EQ(recording->count("reduce_scatter"), 2) << "of the three layers, which share a unit, and of the root";
  fsdp.finish_backward();
  EXPECT_EQ(recording->count("reduce_scatter"), 2);
  group.leave();
}

TEST(HSDP, TheSumOverTheReplicasRunsBesideTheNextReduceScatter) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(0, 8, recording);
  Net net;
  FlatModel flat{net};
  HSDP hsdp{{.shard_size = 4, .fsdp = {.unit_bytes = 0}}, group};
  hsdp.attach(flat);
  recording->calls.clear();
  recording->waits.clear();
  hsdp.begin_backward(Sync::now);
  loss_of(hsdp, net, at::ones({2, 4})).backward();
  hsdp.finish_backward();

  const auto& calls = recording->calls;
  const auto is = [&](std::size_t call, std::string_view op, int ranks) {
    return call < calls.size() && calls[call].op == op && calls[call].ranks == ranks;
  };
  int sums = 0, beside = 0;
  for (const auto& wait : recording->waits) {
    if (!is(wait.call, "all_reduce", 2)) continue;
    ++sums;
    for (auto later = wait.call + 1; later < wait.started; ++later) beside += is(later, "reduce_scatter", 4) ? 1 : 0;
  }
  EXPECT_GT(sums, 1);
  EXPECT_EQ(sums, recording->count("reduce_scatter")) << "each segment is summed over its replicas";
  EXPECT_EQ(beside, sums - 1) << "all but the last sum have a reduce-scatter beside them";
  group.leave();
}

TEST(HSDP, ItsGroupsAreShutDownWithTheOneThatTheyArePartsOf) {
  for (const bool gone : {false, true}) {
    std::vector<int> closed;
    auto group = ClosingBackend::group(5, 24, &closed);
    Net net;
    FlatModel flat{net};
    std::optional<HSDP> hsdp;
    hsdp.emplace(HSDPConfig{.shard_size = 8, .fsdp = {.reshard_after_forward = "2"}}, group);
    hsdp->attach(flat);
    if (gone) hsdp.reset();
    EXPECT_TRUE(closed.empty());
    group.leave();
    EXPECT_EQ(closed, (std::vector<int>{3, 2, 8, 24}))
        << "parts must be shut down before their group, the newest part first";
  }
}

TEST(Group, APartThatHasLeftIsNotShutDownAgain) {
  std::vector<int> closed;
  auto group = ClosingBackend::group(0, 6, &closed);
  auto pair = group.split({.color = 0, .rank = 0, .size = 2});
  auto triple = group.split({.color = 0, .rank = 0, .size = 3});
  pair.leave();
  EXPECT_EQ(closed, (std::vector<int>{2}));
  group.leave();
  EXPECT_EQ(closed, (std::vector<int>{2, 3, 6}));
}

}  // namespace
}  // namespace ddpxx::strategy_contract_test
