// Join: training on ranks with different numbers of batches.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/parallel/hooks/compress.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/join.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::join_test {
namespace {

constexpr int kWorld = 3;
constexpr double kRate = 0.25;
using Counts = std::array<int, kWorld>;
constexpr Counts kBatches{2, 3, 5};

/// A weight whose gradient is the batch, and a buffer that counts this rank's batches.
struct Net : torch::nn::Module {
  Net() {
    weight = register_parameter("weight", at::zeros({12, 8}));
    bias = register_parameter("bias", at::zeros({8}));
    seen = register_buffer("seen", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) {
    seen += 1;
    return (weight * x).sum() + (bias * x[0]).sum();
  }
  at::Tensor weight, bias, seen;
};

at::Tensor batch_of(int rank, int step) {
  at::manual_seed(static_cast<std::uint64_t>(10 * rank + step));
  return at::randn({12, 8});
}

/// Plain gradient descent with momentum: an optimizer with state that could differ between ranks.
struct Momentum {
  void step() {
    std::size_t i = 0;
    for (const auto& slice : slices) {
      if (moments.size() <= i) moments.push_back(at::zeros_like(slice.values));
      moments[i].mul_(0.5).add_(slice.gradients);
      at::Tensor{slice.values}.sub_(moments[i++], kRate);
    }
  }
  std::span<const Slice> slices;
  std::vector<at::Tensor> moments = {};
};

template <class Hook = AllReduce>
struct Trained {
  explicit Trained(Group& group, const typename DDPWith<Hook>::Config& config = {})
      : flat{net}, ddp{config, group}, rank{group.rank()} {
    ddp.attach(flat);
    optimizer.slices = ddp.slices();
  }
  void backward(const at::Tensor& x, Sync sync = Sync::now) {
    ddp.begin_backward(sync);
    net.forward(x).backward();
    ddp.finish_backward();
  }
  void train(Join<Hook>& join, const Counts& counts = kBatches) {
    for (int step = 0; step < counts[static_cast<std::size_t>(rank)]; ++step) {
      join.step();
      backward(batch_of(rank, step));
      optimizer.step();
      ddp.finish_step();
    }
  }

  Net net;
  FlatModel flat;
  DDPWith<Hook> ddp;
  Momentum optimizer;
  int rank;
};

/// The expected gradient of `weight` in a step: the average over the ranks that have a batch.
at::Tensor expected_gradient(int step, DivideBy divide_by, const Counts& counts = kBatches) {
  auto sum = at::zeros({12, 8});
  int active = 0;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (step >= counts[static_cast<std::size_t>(rank)]) continue;
    sum += batch_of(rank, step);
    ++active;
  }
  return sum / (divide_by == DivideBy::all_ranks ? kWorld : active);
}

at::Tensor expected_weight(int steps, DivideBy divide_by, const Counts& counts = kBatches) {
  auto weight = at::zeros({12, 8}), moment = at::zeros({12, 8});
  for (int step = 0; step < steps; ++step) {
    moment = moment * 0.5 + expected_gradient(step, divide_by, counts);
    weight = weight - kRate * moment;
  }
  return weight;
}

void expect_same_everywhere(const at::Tensor& tensor, Group& group) {
  auto bits = tensor.detach().clone();
  broadcast(bits, group);
  EXPECT_TRUE(at::equal(bits, tensor));
}

class JoinBothWays : public testing::TestWithParam<DivideBy> {};
INSTANTIATE_TEST_SUITE_P(DivideBy, JoinBothWays, testing::Values(DivideBy::all_ranks, DivideBy::active_ranks));

TEST_P(JoinBothWays, GradientsAreThoseOfTheRanksThatHaveABatch) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp, {.divide_by = GetParam()}};
    for (int step = 0; step < 5; ++step) {
      if (step < kBatches[static_cast<std::size_t>(group.rank())]) {
        join.step();
        trained.backward(batch_of(group.rank(), step));
      } else {
        EXPECT_TRUE(join.shadow());
      }
      EXPECT_TRUE(at::allclose(trained.net.weight.grad(), expected_gradient(step, GetParam()), 1e-5, 1e-6)) << step;
    }
    EXPECT_FALSE(join.shadow());
    EXPECT_FALSE(join.shadow()) << "calling shadow() again must do no harm";
  });
}

TEST_P(JoinBothWays, AllRanksEndWithTheModelOfOneThatFinishedLast) {
  for (const Counts& counts : {Counts{2, 3, 5}, Counts{5, 0, 2}, Counts{1, 4, 4}, Counts{2, 2, 2}})
    spawn_ranks(kWorld, [&](Group& group) {
      Trained trained{group};
      Join join{trained.ddp, {.divide_by = GetParam()}};
      trained.train(join, counts);
      while (join.shadow()) {
      }
      const auto last = *std::max_element(counts.begin(), counts.end());
      EXPECT_TRUE(at::allclose(trained.net.weight, expected_weight(last, GetParam(), counts), 1e-5, 1e-6));
      for (const auto& tensor : {trained.net.weight, trained.net.bias, trained.net.seen})
        expect_same_everywhere(tensor, group);
    });
}

TEST(Join, ARankThatStepsAlongStaysEqualToTheLastBitWithItsOptimizer) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp};
    trained.train(join);
    for (int step = kBatches[static_cast<std::size_t>(group.rank())]; step < 5; ++step) {
      ASSERT_TRUE(join.shadow());
      trained.optimizer.step();
      trained.ddp.finish_step();
    }
    // Compare before the last shadow(), which copies the model of one rank to all.
    expect_same_everywhere(trained.net.weight, group);
    for (const auto& moment : trained.optimizer.moments) expect_same_everywhere(moment, group);
    EXPECT_FALSE(join.shadow());
  });
}

TEST(Join, BuffersGoOnFromARankThatHasBatches) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp};
    trained.train(join);  // rank 0 runs out of batches first
    while (join.shadow()) {
    }
    EXPECT_EQ(trained.net.seen.item<float>(), 5.0F);
  });
}

TEST(Join, AfterwardsTrainingGoesOnOverAllRanks) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join first{trained.ddp, {.divide_by = DivideBy::active_ranks}};
    trained.train(first);
    while (first.shadow()) {
    }
    trained.backward(batch_of(group.rank(), 0));
    EXPECT_TRUE(at::allclose(trained.net.weight.grad(), expected_gradient(0, DivideBy::all_ranks), 1e-5, 1e-6));
    Join second{trained.ddp};
    trained.train(second);
    while (second.shadow()) {
    }
    expect_same_everywhere(trained.net.weight, group);
  });
}

TEST(Join, AStepMayAddUpMicroBatches) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp};
    if (group.rank() == 2) {
      join.step();
      trained.backward(batch_of(2, 0), Sync::defer);
      trained.backward(batch_of(2, 1));
    } else {
      ASSERT_TRUE(join.shadow());
    }
    const auto expected = (batch_of(2, 0) + batch_of(2, 1)) / kWorld;
    EXPECT_TRUE(at::allclose(trained.net.weight.grad(), expected, 1e-5, 1e-6));
    EXPECT_FALSE(join.shadow());
  });
}

TEST(Join, ThrowsOnAllRanksInTheSameStepWhereThatIsAsked) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp, {.throw_on_early_termination = true}};
    int steps = 0;
    try {
      for (; steps < kBatches[static_cast<std::size_t>(group.rank())]; ++steps) {
        join.step();
        trained.backward(batch_of(group.rank(), steps));
      }
      join.shadow();
      ADD_FAILURE() << "uneven batches were not reported";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data);
      EXPECT_NE(std::string{error.what()}.find("ranks out of batches while others have more: 0;"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(steps, 2);
  });
}

TEST(Join, ThrowsNothingWhereAllRunOutTogether) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained trained{group};
    Join join{trained.ddp, {.throw_on_early_termination = true}};
    trained.train(join, {2, 2, 2});
    EXPECT_FALSE(join.shadow());
  });
}

TEST(Join, IsOverOnceAllRanksHaveRunOut) {
  Group alone;
  Trained trained{alone};
  Join join{trained.ddp};
  join.step();
  trained.backward(batch_of(0, 0));
  EXPECT_FALSE(join.shadow());
  EXPECT_THROW(join.step(), Error);
}

struct Block : torch::nn::Module, Layer {
  Block() { weight = register_parameter("weight", at::full({8, 8}, 0.1)); }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight).tanh(); }
  at::Tensor weight;
};
struct Deep : torch::nn::Module {
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return run(*second, run(*first, x)).square().sum();
  }
  std::shared_ptr<Block> first = register_module("first", std::make_shared<Block>()),
                         second = register_module("second", std::make_shared<Block>());
};

/// The final weights of two layers, on ranks that run out of batches one after the other.
template <class Strategy>
std::vector<at::Tensor> trained_in_turn(Group& group) {
  Deep net;
  FlatModel flat{net};
  Strategy strategy{{}, group};
  strategy.attach(flat);
  Join join{strategy};
  const auto step = [&] {
    for (const auto& slice : strategy.slices()) at::Tensor{slice.values}.sub_(slice.gradients, kRate);
    strategy.finish_step();
  };
  for (int i = 0; i < kBatches[static_cast<std::size_t>(group.rank())]; ++i) {
    join.step();
    strategy.begin_backward(Sync::now);
    strategy
        .forward(net, batch_of(group.rank(), i),
                 [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch); })
        .backward();
    strategy.finish_backward();
    step();
  }
  while (join.shadow()) step();
  return {net.first->weight.detach().clone(), net.second->weight.detach().clone()};
}

TEST(Join, StandsInForRecomputedLayersAsForOthers) {
  spawn_ranks(kWorld, [](Group& group) {
    const auto plain = trained_in_turn<DDP>(group), recomputed = trained_in_turn<Recompute<DDP>>(group);
    EXPECT_FALSE(at::equal(plain[0], at::full({8, 8}, 0.1)));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(at::equal(recomputed[i], plain[i]));
      expect_same_everywhere(recomputed[i], group);
    }
  });
}

// Join finds the DDP inside the strategies that wrap it.
static_assert(std::same_as<decltype(Join{std::declval<StepInBackward<Recompute<DDP>>&>()}), Join<AllReduce>>);
static_assert(std::same_as<decltype(Join{std::declval<Recompute<DDPWith<PowerSGD>>&>()}), Join<PowerSGD>>);

TEST(Join, AHookContinuesWithItsOwnState) {
  spawn_ranks(kWorld, [](Group& group) {
    Trained<Compress<at::kHalf, PowerSGD>> compressed{group, {.hook = {.start_step = 1, .min_compression_rate = 1.0}}};
    Join join{compressed.ddp};
    for (int step = 0; step < kBatches[static_cast<std::size_t>(group.rank())]; ++step) {
      join.step();
      compressed.backward(batch_of(group.rank(), step));
      expect_same_everywhere(compressed.net.weight.grad(), group);
    }
    while (join.shadow()) expect_same_everywhere(compressed.net.weight.grad(), group);
  });
}

}  // namespace
}  // namespace ddpxx::join_test
