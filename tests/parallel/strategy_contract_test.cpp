// One contract, every strategy.
#include <optional>
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx {
namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t width = 3) {
    at::manual_seed(7);
    weight = register_parameter("weight", at::rand({width, 4}));
    bias = register_parameter("bias", at::rand({width}));
    count = register_buffer("count", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias).square().sum(); }
  at::Tensor weight, bias, count;
};

at::Tensor share(const at::Tensor& batch, const Group& group) {
  return batch.view({group.size(), -1, 4}).select(0, group.rank());
}

/// What one process gets for the whole batch.
std::vector<at::Tensor> reference_gradients(const at::Tensor& batch, int world_size) {
  Net net;
  (net.forward(batch) / world_size).backward();
  return {net.weight.grad(), net.bias.grad()};
}

template <class S>
class StrategyContract : public testing::Test {
 public:
  /// Runs body(strategy, flat model, net, group) in every world that the strategy can live in.
  template <class Body>
  static void in_every_world(Body body, const typename S::Config& config = {}) {
    for (const int world_size : {1, 2, 3}) {
      if (std::is_same_v<S, SingleDevice> && world_size > 1) continue;
      spawn_ranks(world_size, [&](Group& group) {
        Net net;
        FlatModel flat{net};
        S strategy{config, group};
        strategy.attach(flat);
        body(strategy, flat, net, group);
      });
    }
  }
};
using Strategies = testing::Types<SingleDevice, DDP>;
TYPED_TEST_SUITE(StrategyContract, Strategies);

TYPED_TEST(StrategyContract, SlicesHoldEveryElementExactlyOnce) {
  this->in_every_world([](auto& strategy, FlatModel& flat, Net&, Group&) {
    std::int64_t end = 0;
    for (const auto& slice : strategy.slices()) {
      EXPECT_EQ(slice.begin, end);
      EXPECT_EQ(slice.values.numel(), slice.end - slice.begin);
      EXPECT_EQ(slice.gradients.numel(), slice.end - slice.begin);
      end = slice.end;
    }
    EXPECT_EQ(end, flat.trainable().values().numel());
  });
}

TYPED_TEST(StrategyContract, GradientsAreTheMeanOverTheRanks) {
  this->in_every_world([](auto& strategy, FlatModel&, Net& net, Group& group) {
    for (int step = 0; step < 2; ++step) {
      const auto batch = at::arange(group.size() * 2 * 4, at::kFloat).view({-1, 4}) * (step + 1);
      strategy.begin_backward(Sync::now);
      net.forward(share(batch, group)).backward();
      strategy.finish_backward();
      const auto expected = reference_gradients(batch, group.size());
      EXPECT_TRUE(at::allclose(net.weight.grad(), expected[0], 1e-5));
      EXPECT_TRUE(at::allclose(net.bias.grad(), expected[1], 1e-5));
    }
  });
}

TYPED_TEST(StrategyContract, DeferredBackwardPassesAddUp) {
  this->in_every_world([](auto& strategy, FlatModel&, Net& net, Group& group) {
    const auto batch = at::rand({group.size() * 6, 4});
    broadcast(batch, group);
    const auto mine = share(batch, group).chunk(3);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      strategy.begin_backward(i + 1 == mine.size() ? Sync::now : Sync::defer);
      net.forward(mine[i]).backward();
      strategy.finish_backward();
    }
    EXPECT_TRUE(at::allclose(net.weight.grad(), reference_gradients(batch, group.size())[0], 1e-5));
  });
}

TYPED_TEST(StrategyContract, AllRanksEndWithTheSameBits) {
  this->in_every_world([](auto& strategy, FlatModel& flat, Net& net, Group& group) {
    at::manual_seed(static_cast<std::uint64_t>(group.rank()));
    strategy.begin_backward(Sync::now);
    net.forward(at::rand({5, 4})).backward();
    strategy.finish_backward();
    auto root = flat.trainable().gradients().clone();
    broadcast(root, group);
    EXPECT_TRUE(at::equal(root, flat.trainable().gradients()));
  });
}

TYPED_TEST(StrategyContract, GradientsGoStraightIntoTheSlices) {
  this->in_every_world([](auto& strategy, FlatModel&, Net& net, Group&) {
    strategy.begin_backward(Sync::now);
    net.forward(at::ones({2, 4})).backward();
    strategy.finish_backward();
    EXPECT_TRUE(net.weight.grad().storage().is_alias_of(strategy.slices()[0].gradients.storage()));
  });
}

TEST(SingleDevice, RefusesAWorldOfTwo) {
  spawn_ranks(2, [](Group& group) { EXPECT_THROW((SingleDevice{{}, group}), Error); });
}

TEST(DDP, GivesAllRanksTheParametersAndBuffersOfRankZero) {
  spawn_ranks(2, [](Group& group) {
    Net net;
    if (group.rank() == 1) {
      const c10::NoGradGuard no_grad;
      net.weight.zero_();
      net.count.fill_(5);
    }
    FlatModel flat{net};
    DDP ddp{{}, group};
    ddp.attach(flat);
    EXPECT_TRUE(at::equal(net.weight, Net{}.weight));
    EXPECT_EQ(net.count.item<float>(), 0.0F);
    if (group.rank() == 0) net.count.fill_(3);
    ddp.begin_backward(Sync::now);
    net.forward(at::ones({2, 4})).backward();
    ddp.finish_backward();
    ddp.begin_backward(Sync::now);
    EXPECT_EQ(net.count.item<float>(), 3.0F) << "buffers are given again before each step";
    net.forward(at::ones({2, 4})).backward();
    ddp.finish_backward();
  });
}

TEST(DDP, NamesTheFirstParameterThatDiffersBetweenRanks) {
  try {
    spawn_ranks(3, [](Group& group) {
      Net net{group.rank() == 2 ? 5 : 3};
      FlatModel flat{net};
      DDP ddp{{}, group};
      ddp.attach(flat);
    });
    FAIL() << "different models went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    const std::string text = error.what();
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "})
      EXPECT_NE(
          text.find(std::string{rank} + "the ranks hold different models: rank 0 has \"bias [3] Float\" where rank 2 "
                                        "has \"bias [5] Float\""),
          std::string::npos)
          << text;
  }
}

TEST(DDP, AFrozenParameterGetsNoGradientAndIsNoError) {
  spawn_ranks(2, [](Group& group) {
    Net net;
    net.bias.set_requires_grad(false);
    FlatModel flat{net};
    DDP ddp{{}, group};
    ddp.attach(flat);
    ddp.begin_backward(Sync::now);
    net.forward(at::ones({2, 4})).backward();
    ddp.finish_backward();
    EXPECT_FALSE(net.bias.grad().defined());
    EXPECT_TRUE(net.weight.grad().defined());
  });
}

}  // namespace
}  // namespace ddpxx
