#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

#include "../counted_operations.hpp"

namespace ddpxx::reducer_test {
namespace {

std::vector<NamedParameter> parameters(int count, std::int64_t numel = 16) {
  std::vector<NamedParameter> list;
  for (int i = 0; i < count; ++i) list.push_back({"p" + std::to_string(i), at::zeros({numel}).set_requires_grad(true)});
  return list;
}

TEST(Reducer, AveragesOverTheRanksWhateverTheOrder) {
  spawn_ranks(3, [](Group& group) {
    Arena arena{parameters(4)};
    Reducer reducer{arena, group, {.first_bucket_bytes = 64, .bucket_bytes = 128}};
    for (int step = 1; step <= 3; ++step) {
      for (std::size_t k = 0; k < arena.size(); ++k) {
        const auto i = (k + static_cast<std::size_t>(group.rank())) % arena.size();  // each rank uses another order
        at::Tensor{arena[i].gradient}.fill_((group.rank() + 1.0) * step);
        reducer.ready(i);
      }
      reducer.finish();
      for (const auto& entry : arena.entries())
        EXPECT_TRUE(at::allclose(entry.gradient, at::full({16}, 2.0 * step))) << entry.name;
    }
  });
}

TEST(Reducer, ScalesBeforeItSumsAsPyTorchDoes) {
  spawn_ranks(2, [](Group& group) {
    Arena arena{parameters(1)};
    Reducer reducer{arena, group};
    const auto mine = at::full({16}, group.rank() == 0 ? 0.1 : 0.7),
               other = at::full({16}, group.rank() == 0 ? 0.7 : 0.1);
    reducer.ready(0, mine);
    reducer.finish();
    EXPECT_TRUE(at::equal(arena[0].gradient, mine * 0.5 + other * 0.5));
  });
}

TEST(Reducer, ScalesNeighboursThatNeedItByOneOperation) {
  spawn_ranks(3, [](Group& group) {
    Arena arena{parameters(6, 5)};  // with gaps between the parameters
    Reducer reducer{arena, group};
    for (int step = 1; step <= 2; ++step) {
      const auto value = [&](std::size_t i) { return static_cast<double>(i + 1) * step; };
      const auto write = [&](std::size_t i) { at::Tensor{arena[i].gradient}.fill_(value(i)); };
      reducer.begin();
      reducer.defer(1, at::full({5}, value(1)));
      const CountedOperations multiplications{"aten::mul_"};
      write(0);
      reducer.ready(0);
      reducer.ready(1, at::zeros({5}));  // added to the deferred one
      reducer.ready(2, at::full({5}, value(2)));
      write(3);
      reducer.ready(3, arena[3].gradient);
      write(4);
      reducer.ready(4);
      reducer.ready(5, at::Tensor{});
      reducer.finish();
      EXPECT_EQ(CountedOperations::count(), 2) << "for 0 and 1, and for 3 and 4; 2 was scaled when it was copied";
      for (std::size_t i = 0; i < 5; ++i)
        EXPECT_TRUE(at::allclose(arena[i].gradient, at::full({5}, value(i)))) << i << " in step " << step;
      EXPECT_TRUE(at::equal(arena[5].gradient, at::zeros({5})));
    }
  });
}

TEST(Reducer, CutsASmallFirstBucketAndLargerOnes) {
  Group alone;
  Arena arena{parameters(6)};  // 64 bytes each
  const Reducer reducer{arena, alone, {.first_bucket_bytes = 64, .bucket_bytes = 192}};
  const std::vector<std::pair<std::size_t, std::size_t>> expected{{0, 1}, {1, 4}, {4, 6}};
  EXPECT_EQ(reducer.buckets(), expected);
}

TEST(Reducer, CutsBucketsOfTheSizesOfAListWhoseLastOneRepeats) {
  Group alone;
  Arena arena{parameters(8)};  // 64 bytes each
  const Reducer reducer{arena, alone, {.first_bucket_bytes = 1, .bucket_bytes_list = {128, 64, 192}}};
  const std::vector<std::pair<std::size_t, std::size_t>> expected{{0, 2}, {2, 3}, {3, 6}, {6, 8}};
  EXPECT_EQ(reducer.buckets(), expected);
  EXPECT_THROW((Reducer{arena, alone, {.bucket_bytes_list = {64, 64, 0}}}), Error);
}

TEST(Reducer, StartsBucketsInOrderAndFinishesThemInOrder) {
  Group alone;
  Arena arena{parameters(3)};
  std::string calls;
  Reducer reducer{arena,
                  alone,
                  {.bucket_bytes_list = {1},
                   .start =
                       [&](std::size_t i, const at::Tensor&) {
                         calls += " start " + std::to_string(i);
                         return Pending{};
                       },
                   .finish =
                       [&](std::size_t i, const at::Tensor& memory) {
                         calls += " finish " + std::to_string(i) + ":" + std::to_string(memory[0].item<int>());
                       }}};
  reducer.ready(2, at::full({16}, 3.0));
  reducer.ready(0, at::full({16}, 1.0));
  calls += " |";
  reducer.ready(1, at::full({16}, 2.0));
  reducer.finish();
  EXPECT_EQ(calls, " start 0 | start 1 start 2 finish 0:1 finish 1:2 finish 2:3");
}

TEST(Reducer, MultipliesByAnotherScaleThanOneOverTheRanksWhenTold) {
  spawn_ranks(3, [](Group& group) {
    Arena arena{parameters(1)};
    Reducer reducer{arena, group};
    reducer.set_scale(0.5);
    reducer.ready(0, at::ones({16}));
    reducer.finish();
    EXPECT_TRUE(at::equal(arena[0].gradient, at::full({16}, 1.5)));
  });
}

// PyTorch multiplies gradients in 16 bits by the scale in float32.
TEST(Reducer, ScalesGradientsIn16BitsByANumberThatIsNotRounded) {
  Group alone;
  std::vector<NamedParameter> list;
  for (const std::int64_t numel : {1000, 1000, 40'000})
    list.push_back({"p" + std::to_string(list.size()), at::zeros({numel}, at::kBFloat16).set_requires_grad(true)});
  Arena arena{list};
  Reducer reducer{arena, alone};
  reducer.set_scale(0.3);
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < arena.size(); ++i) {
    const auto gradient = at::randn({arena[i].numel}, at::kBFloat16);
    expected.push_back((gradient.to(at::kFloat) * 0.3F).to(at::kBFloat16));
    const bool is_copied = i == 0;  // the others lie in their places, one of which is scaled by an operation of its own
    if (!is_copied) at::Tensor{arena[i].gradient}.copy_(gradient);
    reducer.ready(i, is_copied ? gradient : arena[i].gradient);
  }
  reducer.finish();
  for (std::size_t i = 0; i < arena.size(); ++i) EXPECT_TRUE(at::equal(arena[i].gradient, expected[i])) << i;
}

TEST(Reducer, ARankThatSitsOutGivesZerosOrWhatItHadDeferred) {
  spawn_ranks(3, [](Group& group) {
    Arena arena{parameters(2)};
    Reducer reducer{arena, group};
    if (group.rank() == 0) {
      reducer.ready(0, at::full({16}, 6.0)), reducer.ready(1, at::full({16}, 9.0));
      reducer.finish();
    } else {
      if (group.rank() == 1) reducer.defer(1, at::full({16}, 3.0));
      reducer.sit_out();
    }
    EXPECT_TRUE(at::allclose(arena[0].gradient, at::full({16}, 2.0)));
    EXPECT_TRUE(at::allclose(arena[1].gradient, at::full({16}, 4.0)));
  });
}

TEST(Reducer, SumsMicroStepsAndSendsOnlyTheLast) {
  spawn_ranks(2, [](Group& group) {
    Arena arena{parameters(2)};
    Reducer reducer{arena, group};
    reducer.defer(0, at::full({16}, 1.0));
    reducer.defer(1, at::full({16}, 10.0));
    reducer.ready(0, at::full({16}, 2.0));
    reducer.finish();  // no error, although only the first micro-step used parameter 1
    EXPECT_TRUE(at::equal(arena[0].gradient, at::full({16}, 3.0)));
    EXPECT_TRUE(at::equal(arena[1].gradient, at::full({16}, 10.0)));
  });
}

TEST(Reducer, NamesUnusedParametersAndLeavesNoRankHanging) {
  try {
    spawn_ranks(2, [](Group& group) {
      Arena arena{parameters(3)};
      Reducer reducer{arena, group};
      reducer.ready(0, at::ones({16}));
      if (group.rank() == 0) reducer.ready(1, at::ones({16})), reducer.ready(2, at::ones({16}));
      reducer.finish();
    });
    FAIL() << "unused parameters were not reported";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(
        std::string{error.what()}.find("rank 1: no gradient came for p1, p2: use them in the loss, freeze them, or "
                                       "set find_unused_parameters=true; rank=1"),
        std::string::npos)
        << error.what();
  }
}

TEST(Reducer, FindsUnusedParametersWhenAsked) {
  spawn_ranks(2, [](Group& group) {
    Arena arena{parameters(2)};
    Reducer reducer{arena, group, {.unused = UnusedParameters::find}};
    for (int step = 0; step < 2; ++step) {
      reducer.ready(0, at::ones({16}));
      if (group.rank() == 0) reducer.ready(1, at::full({16}, 4.0));
      reducer.finish();
      EXPECT_TRUE(at::equal(arena[0].gradient, at::ones({16})));
      EXPECT_TRUE(at::equal(arena[1].gradient, at::full({16}, 2.0)));
    }
  });
}

/// One step of a reducer that learns unused parameters: rank 0 alone uses parameter 1, and no rank uses parameter 3.
void learned_step(Reducer& reducer, const Group& group, double value) {
  for (const std::size_t i : {0U, 1U, 2U, 4U})
    if (i != 1 || group.rank() == 0) reducer.ready(i, at::full({16}, value));
}

TEST(Reducer, LearnsUnusedParametersInTheFirstStepAndThenDoesNotWaitForThem) {
  spawn_ranks(2, [](Group& group) {
    Arena arena{parameters(5)};
    std::vector<std::size_t> started;
    Reducer reducer{
        arena,
        group,
        {.bucket_bytes_list = {1}, .unused = UnusedParameters::learn, .start = [&](std::size_t i, auto memory) {
           started.push_back(i);
           return start_all_reduce(memory, group);
         }}};
    for (int step = 0; step < 3; ++step) {
      started.clear();
      learned_step(reducer, group, step + 1.0);
      const std::size_t first = group.rank() == 0 ? 3 : 1;  // the buckets before that of the first unused parameter
      EXPECT_EQ(started.size(), step == 0 ? first : 5) << "step " << step;
      reducer.finish();
      for (const std::size_t i : {0U, 2U, 4U}) EXPECT_TRUE(at::equal(arena[i].gradient, at::full({16}, step + 1.0)));
      EXPECT_TRUE(at::equal(arena[1].gradient, at::full({16}, (step + 1.0) / 2)))
          << "both ranks must receive the average of rank 0's gradient and of a zero";
      EXPECT_TRUE(at::equal(arena[3].gradient, at::zeros({16})));
    }
  });
}

TEST(Reducer, LearnsNothingFromAStepThatBroughtNoGradient) {
  Group alone;
  Arena arena{parameters(2)};
  Reducer reducer{arena, alone, {.unused = UnusedParameters::learn}};
  EXPECT_THROW(reducer.finish(), Error);  // as if forward had thrown an exception
  reducer.sit_out();
  reducer.ready(0, at::ones({16}));
  reducer.finish();
  reducer.ready(0, at::ones({16}));
  reducer.finish();
}

TEST(Reducer, NamesAParameterWhoseUseChangesAfterItWasLearned) {
  Group alone;
  Arena arena{parameters(3)};
  const auto message = [](auto&& act) {
    try {
      act();
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{"no error"};
  };
  Reducer reducer{arena, alone, {.unused = UnusedParameters::learn}};
  reducer.ready(0, at::ones({16})), reducer.ready(1, at::ones({16}));
  reducer.finish();
  EXPECT_EQ(message([&] { reducer.ready(2, at::ones({16})); }),
            "a gradient came for p2, which the first step did not use: set static_graph=false, and "
            "find_unused_parameters=true if some steps leave it out; rank=0");
  EXPECT_EQ(message([&] { reducer.defer(2, at::ones({16})); }).substr(0, 27), "a gradient came for p2, whi");
  reducer.ready(0, at::ones({16}));
  EXPECT_EQ(message([&] { reducer.finish(); }),
            "no gradient came for p1, used in the first step: set static_graph=false and find_unused_parameters=true; "
            "rank=0");
}

/// A model with a parameter that is never used.
struct HalfUsed : torch::nn::Module {
  HalfUsed() {
    used = register_parameter("used", at::ones({4}));
    unused = register_parameter("unused", at::ones({4}));
  }
  at::Tensor used, unused;
};

TEST(DDP, WithAStaticGraphTakesAnUnusedParameterAsZeros) {
  spawn_ranks(2, [](Group& group) {
    HalfUsed model;
    FlatModel flat{model};
    DDP ddp{{.bucket_bytes_list = {1}, .static_graph = true}, group};
    ddp.attach(flat);
    for (int step = 0; step < 3; ++step) {
      for (const auto sync : {Sync::defer, Sync::now}) {
        ddp.begin_backward(sync);
        (model.used * (group.rank() + 1.0)).sum().backward();
        ddp.finish_backward();
      }
      EXPECT_TRUE(at::equal(model.used.grad(), at::full({4}, 3.0)));
      EXPECT_TRUE(at::equal(model.unused.grad(), at::zeros({4})));
    }
  });
}

template <class Strategy>
void expect_a_place(const typename Strategy::Config& config, bool expected) {
  HalfUsed model;
  FlatModel flat{model};
  Group alone;
  Strategy strategy{config, alone};
  strategy.attach(flat);
  strategy.begin_backward(Sync::now);
  const auto place = GradientHooks::place_of(model.used);
  ASSERT_EQ(place.defined(), expected);
  model.used.sum().backward();
  strategy.finish_backward();
  if (expected) EXPECT_EQ(place.const_data_ptr(), model.used.grad().const_data_ptr());
}

TEST(PlaceOfAGradient, IsOfferedWhereTheArenaHoldsWholeGradients) {
  expect_a_place<SingleDevice>({}, true);
  expect_a_place<DDP>({.find_unused_parameters = true}, true);
  expect_a_place<ZeRO1>({.find_unused_parameters = true}, true);
  expect_a_place<ZeRO2>({.find_unused_parameters = true}, false);
}

TEST(Reducer, RefusesAGradientThatIsReadyTwice) {
  Group alone;
  Arena arena{parameters(2)};
  Reducer reducer{arena, alone};
  reducer.ready(0);
  EXPECT_THROW(reducer.ready(0), Error);
}

}  // namespace
}  // namespace ddpxx::reducer_test
