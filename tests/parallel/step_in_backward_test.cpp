// A strategy that steps in backward: which segments are stepped, in which order, and how much gradient memory is in
// use.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/in_parts.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/join.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>
#include <ddpxx/parallel/wraps_strategy.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::step_in_backward_test {
namespace {

constexpr double kRate = 0.125;

template <class Work>
void expect_config_error(Work&& work, const std::string& text) {
  try {
    work();
    ADD_FAILURE() << "no error says: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

struct Block : torch::nn::Module, Layer {
  Block() { weight = register_parameter("weight", at::rand({16, 16}) * 0.2); }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight).tanh(); }
  at::Tensor weight;
};

/// Layers with one bucket each.
struct Net : torch::nn::Module {
  Net() {
    at::manual_seed(7);
    for (int i = 0; i < 6; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return run(blocks, x).square().sum();
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

/// A wrapper that changes gradients after backward, and so must not be stepped in backward.
struct ChangesGradients : WrapsStrategy<DDP> {
  using WrapsStrategy<DDP>::WrapsStrategy;
  void step_in_backward(StepSegment step) = delete;
};
static_assert(explain_strategy<ChangesGradients>() && !OffersStepInBackward<ChangesGradients>);

template <class S>
typename S::Config with_a_bucket_each() {
  typename S::Config config;
  if constexpr (requires { config.unit_bytes; }) config.unit_bytes = 0;
  if constexpr (requires { config.bucket_bytes; }) config.first_bucket_bytes = config.bucket_bytes = 1024;
  if constexpr (requires { config.ddp; }) config.ddp.first_bucket_bytes = config.ddp.bucket_bytes = 1024;
  if constexpr (requires { config.hook; }) config.hook = {.start_step = 0, .min_compression_rate = 1.0};
  return config;
}

/// A net that is stepped in backward by plain gradient descent.
template <class S, class Model = Net>
struct Trained {
  explicit Trained(Group& group, typename S::Config config = with_a_bucket_each<S>())
      : flat{net}, strategy{config, group} {
    strategy.step_in_backward([this](std::size_t segment) { step(segment); });
    strategy.attach(flat);
  }
  void step(std::size_t segment) {
    const auto& segments = strategy.trainable().segments();
    int in_memory = 0;
    for (const auto& each : segments) in_memory += each.gradient.storage().nbytes() > 0 ? 1 : 0;
    most_in_memory = std::max(most_in_memory, in_memory);
    stepped.push_back(segment);
    for (const auto& slice : strategy.slices())
      if (slice.begin >= segments[segment].begin && slice.end <= segments[segment].end)
        at::Tensor{slice.values}.sub_(slice.gradients, kRate);
  }
  void backward(const at::Tensor& x, Sync sync = Sync::now) {
    strategy.begin_backward(sync);
    strategy.forward(net, x, [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch); })
        .backward();
    strategy.finish_backward();
  }

  Model net;
  FlatModel flat;
  StepInBackward<S> strategy;
  std::vector<std::size_t> stepped;
  int most_in_memory = 0;
};

template <class S>
class StepsInBackward : public testing::Test {
 public:
  template <class Body>
  static void in_every_world(Body body) {
    for (const int world : {1, 2, 3})
      if (world == 1 || !std::is_same_v<S, SingleDevice>) spawn_ranks(world, body);
  }
};
using Strategies = testing::Types<SingleDevice, DDP, DDPWith<PowerSGD>, ZeRO1, ZeRO2, FSDP>;
TYPED_TEST_SUITE(StepsInBackward, Strategies);

TYPED_TEST(StepsInBackward, EverySegmentOnceAStepInBucketOrder) {
  this->in_every_world([](Group& group) {
    Trained<TypeParam> trained{group};
    const auto segments = trained.strategy.trainable().segments().size();
    EXPECT_EQ(segments, (std::is_same_v<TypeParam, SingleDevice> ? 1U : 6U));
    for (int step = 0; step < 2; ++step) {
      trained.backward(at::rand({4, 16}), Sync::defer);
      EXPECT_TRUE(trained.stepped.empty()) << "a deferred backward must step nothing";
      trained.backward(at::rand({4, 16}));
      trained.strategy.finish_step();
      std::vector<std::size_t> all(segments);
      for (std::size_t i = 0; i < segments; ++i) all[i] = i;
      if (std::is_same_v<TypeParam, FSDP>) std::sort(trained.stepped.begin(), trained.stepped.end());
      EXPECT_EQ(std::exchange(trained.stepped, {}), all);
    }
  });
}

TYPED_TEST(StepsInBackward, AtMostTwoSegmentsHaveGradientMemoryAndNoneHasAfterwards) {
  this->in_every_world([](Group& group) {
    Trained<TypeParam> trained{group};
    for (int step = 0; step < 3; ++step) {
      trained.backward(at::rand({4, 16}));
      trained.strategy.finish_step();
      for (const auto& segment : trained.strategy.trainable().segments())
        EXPECT_EQ(segment.gradient.storage().nbytes(), 0U);
      for (const auto& block : trained.net.blocks) EXPECT_FALSE(block->weight.grad().defined());
    }
    EXPECT_GE(trained.most_in_memory, 1);
    EXPECT_LE(trained.most_in_memory, 2);
    EXPECT_EQ(trained.strategy.trainable().gradients().numel(), 0);
  });
}

/// Layers whose weights have 240, 210, 182 and 156 elements.
struct Narrowing : torch::nn::Module {
  struct Block : torch::nn::Module, Layer {
    explicit Block(std::int64_t width) { weight = register_parameter("weight", at::rand({width, width - 1})); }
    at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight).tanh(); }
    at::Tensor weight;
  };
  Narrowing() {
    for (std::int64_t width = 16; width > 12; --width)
      blocks.push_back(register_module("block" + std::to_string(width), std::make_shared<Block>(width)));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    auto y = x;
    for (const auto& block : blocks) y = run(*block, y);
    return y.square().sum();
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

template <class S>
class StepsInBackwardOfBuckets : public testing::Test {};
using OfBuckets = testing::Types<DDP, ZeRO1>;
TYPED_TEST_SUITE(StepsInBackwardOfBuckets, OfBuckets);

TYPED_TEST(StepsInBackwardOfBuckets, OfAboutOneSizeShareTwoBuffers) {
  Group alone;
  Trained<TypeParam, Narrowing> trained{alone};
  ASSERT_EQ(trained.strategy.trainable().segments().size(), 4U);
  const auto x = at::rand({4, 16});
  LiveBytes live;
  for (int step = 0; step < 3; ++step) {
    trained.backward(x);
    trained.strategy.finish_step();
    EXPECT_EQ(live.current(), 2 * 4 * 240) << "expected two buffers of the largest layer's size";
  }
}

/// A layer whose only parameter has no elements.
struct Hollow : Net {
  struct Nothing : torch::nn::Module, Layer {
    Nothing() { weight = register_parameter("weight", at::zeros({0, 16})); }
    at::Tensor forward(const at::Tensor& x) { return x + weight.sum(); }
    at::Tensor weight;
  };
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return run(blocks, run(*nothing, x)).square().sum();
  }
  std::shared_ptr<Nothing> nothing = register_module("nothing", std::make_shared<Nothing>());
};

TYPED_TEST(StepsInBackward, AParameterWithoutElementsIsAccepted) {
  if constexpr (!std::is_same_v<TypeParam, DDPWith<PowerSGD>>)
    this->in_every_world([](Group& group) {
      Trained<TypeParam, Hollow> trained{group};
      for (int step = 0; step < 2; ++step) {
        trained.backward(at::rand({4, 16}));
        trained.strategy.finish_step();
      }
      EXPECT_EQ(trained.stepped.size(), 2 * trained.strategy.trainable().segments().size());
    });
}

/// The number of the segment without elements: the first one or the last one.
class OptimizersInParts : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(HollowSegment, OptimizersInParts, testing::Values(0, 2));

TEST_P(OptimizersInParts, DoWithoutStateWhereASegmentHasNoElements) {
  const auto hollow = static_cast<std::size_t>(GetParam());
  const auto make_arena = [&] {
    std::vector<NamedParameter> parameters;
    for (int unit = 0; unit < 3; ++unit) {
      const std::int64_t size = unit == GetParam() ? 0 : 20;
      parameters.push_back({"parameter" + std::to_string(unit), at::ones({size}).requires_grad_(), unit});
    }
    Arena arena{parameters, {.cut = CutAt::units}};
    at::Tensor{arena.gradients()}.fill_(0.5);
    return arena;
  };
  const Arena parts_arena = make_arena(), whole_arena = make_arena();
  ASSERT_EQ(parts_arena.segments().size(), 3U);
  ASSERT_EQ(parts_arena.segments()[hollow].size(), 0);
  OptimizerInParts<AdamW> parts{{}, parts_arena};
  AdamW whole{{}, whole_arena.slices()};
  EXPECT_TRUE(parts.slices(hollow).empty());
  const auto step = [&] {
    for (std::size_t segment = 0; segment < 3; ++segment) parts.step(segment, 0.1);
    whole.step(0.1);
    EXPECT_TRUE(at::equal(parts.step_count(), whole.step_count()));
  };
  step();
  at::Tensor{parts.step_count()}.fill_(7);  // as reading a snapshot does
  at::Tensor{whole.step_count()}.fill_(7);
  parts.resume_at(7);
  step();
  for (std::size_t i = 0; i < whole_arena.slices().size(); ++i)
    EXPECT_TRUE(at::equal(parts_arena.slices()[i].values, whole_arena.slices()[i].values));
  ASSERT_EQ(parts.moments().size(), whole.moments().size());
  for (std::size_t i = 0; i < whole.moments().size(); ++i)
    EXPECT_EQ(parts.moments()[i].slices.size(), whole.moments()[i].slices.size());
}

/// A view of gradients can be made only while they have memory.
TEST(OptimizerInParts, StepsParametersWithGapsWhoseGradientsHaveNoMemoryBetweenSteps) {
  const auto make_arena = [] {
    at::manual_seed(4);
    std::vector<NamedParameter> parameters;
    for (const std::int64_t size : {20, 35, 7, 48}) {
      const auto i = parameters.size();
      parameters.push_back(
          {"parameter" + std::to_string(i), at::randn({size}).requires_grad_(), static_cast<int>(i / 2)});
    }
    return Arena{parameters, {.cut = CutAt::units}};
  };
  Arena parts_arena = make_arena();
  const Arena whole_arena = make_arena();
  std::optional<OptimizerInParts<AdamW>> parts;
  SteppedSegments segments{parts_arena, [&](std::size_t segment) { parts->step(segment, 0.1); }};
  parts.emplace(AdamWConfig{}, parts_arena);
  AdamW whole{{}, whole_arena.slices()};
  for (int step = 0; step < 3; ++step) {
    for (std::size_t s = 0; s < parts_arena.segments().size(); ++s) {
      segments.open(s);
      for (auto i = parts_arena.segments()[s].first; i < parts_arena.segments()[s].last; ++i) {
        const auto gradient = at::randn(parts_arena[i].shape);
        at::Tensor{parts_arena[i].gradient}.copy_(gradient);
        at::Tensor{whole_arena[i].gradient}.copy_(gradient);
      }
      segments.step(s);
    }
    whole.step(0.1);
  }
  for (std::size_t i = 0; i < whole_arena.size(); ++i)
    EXPECT_TRUE(at::equal(parts_arena[i].parameter, whole_arena[i].parameter)) << i;
}

TYPED_TEST(StepsInBackward, NeedAFunctionThatSteps) {
  Group alone;
  Net net;
  FlatModel flat{net};
  StepInBackward<TypeParam> strategy{{}, alone};
  expect_config_error([&] { strategy.attach(flat); },
                      "StepInBackward: nothing steps the segments: call step_in_backward() before attach()");
}

/// Skips the layer in the middle when `whole` is false.
struct Shortened : Net {
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    auto y = x;
    for (const auto& block : blocks)
      if (whole || block != blocks[3]) y = run(*block, y);
    return y.square().sum();
  }
  bool whole = true;
};

TYPED_TEST(StepsInBackward, ALayerThatTheLastOfSeveralPassesLeavesOutIsSteppedToo) {
  if constexpr (!std::is_same_v<TypeParam, DDPWith<PowerSGD>>)
    this->in_every_world([](Group& group) {
      Trained<TypeParam, Shortened> trained{group};
      trained.backward(at::rand({4, 16}), Sync::defer);
      trained.net.whole = false;
      trained.backward(at::rand({4, 16}));
      trained.strategy.finish_step();
      [[maybe_unused]] const auto whole = trained.strategy.gathered();
      EXPECT_FALSE(at::equal(trained.net.blocks[3]->weight, Shortened{}.blocks[3]->weight));
      EXPECT_EQ(trained.stepped.size(), trained.strategy.trainable().segments().size());
    });
}

template <class S>
class StepsInBackwardRefusing : public testing::Test {};
using Refusing = testing::Types<DDP, ZeRO1, ZeRO2>;
TYPED_TEST_SUITE(StepsInBackwardRefusing, Refusing);

TYPED_TEST(StepsInBackwardRefusing, AParameterWithoutAGradientStopsTheSteps) {
  spawn_ranks(2, [](Group& group) {
    Trained<TypeParam, Shortened> trained{group};
    trained.net.whole = false;
    expect_config_error([&] { trained.backward(at::rand({4, 16})); }, "no gradient came for block3.weight: ");
    EXPECT_LE(trained.stepped.size(), 2U) << "only segments before the missing gradient may be stepped";
    for (const auto& segment : trained.strategy.trainable().segments())
      EXPECT_EQ(segment.gradient.storage().nbytes(), 0U);
  });
}

/// Three parameters of 6 MB.
struct Wide : torch::nn::Module {
  Wide() {
    for (const char* name : {"a", "b", "c"}) register_parameter(name, at::ones({1'500'000}));
  }
  template <class Run>
  at::Tensor forward(Run&, const at::Tensor& x) {
    auto sum = at::zeros({});
    for (const auto& parameter : parameters()) sum = sum + (parameter * x).sum();
    return sum;
  }
};

TEST(StepsInBackwardOfASingleDevice, CutAModelInPartsOfAFewMegabytes) {
  Group alone;
  Trained<SingleDevice, Wide> trained{alone};
  trained.backward(at::full({1}, 2.0));
  EXPECT_EQ(trained.stepped, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(trained.most_in_memory, 2);
  for (const auto& parameter : trained.net.parameters())
    EXPECT_TRUE(at::equal(parameter, at::full({1'500'000}, 1 - 2 * kRate)));
}

TEST(StepsInBackwardOfDDP, HaveNoListOfBucketSizes) {
  Group alone;
  StepInBackward<DDP> strategy{{.bucket_bytes_list = {1024}}, alone};
  expect_config_error([&] { strategy.step_in_backward([](std::size_t) {}); },
                      "bucket_bytes_list: StepInBackward cuts buckets by first_bucket_bytes and bucket_bytes");
}

TEST(StepsInBackwardOfDDP, AreJoinedByARankThatHasRunOut) {
  spawn_ranks(2, [](Group& group) {
    Trained<DDP> trained{group};
    Join<AllReduce> join{trained.strategy};
    at::manual_seed(static_cast<std::uint64_t>(group.rank()));
    for (int step = 0; step < 2 + group.rank(); ++step) {
      join.step();
      trained.backward(at::rand({4, 16}));
    }
    if (group.rank() == 0) {
      EXPECT_TRUE(join.shadow());
    }
    EXPECT_EQ(trained.stepped.size(), 3U * 6U);
    // Compare before the last shadow(), which copies the model of one rank to all.
    for (const auto& block : trained.net.blocks) {
      auto weight = block->weight.detach().clone();
      broadcast(weight, group, /*root=*/1);
      EXPECT_TRUE(at::equal(weight, block->weight));
    }
    EXPECT_FALSE(join.shadow());
  });
}

TEST(StepsInBackwardOfFSDP, RefuseGradientsOfASegmentThatHasBeenStepped) {
  Group alone;
  Trained<FSDP> trained{alone};
  trained.strategy.begin_backward(Sync::now);
  const auto pass = [&] {
    trained.strategy
        .forward(trained.net, at::rand({4, 16}),
                 [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch); })
        .backward();
  };
  pass();
  expect_config_error(pass, "got gradients after it was stepped in backward: run one backward pass a step");
}

}  // namespace
}  // namespace ddpxx::step_in_backward_test
