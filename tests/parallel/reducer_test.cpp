#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx {
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
        const auto i = (k + static_cast<std::size_t>(group.rank())) % arena.size();  // every rank another order
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

TEST(Reducer, CutsASmallFirstBucketAndLargerOnes) {
  Group alone;
  Arena arena{parameters(6)};  // 64 bytes each
  const Reducer reducer{arena, alone, {.first_bucket_bytes = 64, .bucket_bytes = 192}};
  const std::vector<std::pair<std::size_t, std::size_t>> expected{{0, 1}, {1, 4}, {4, 6}};
  EXPECT_EQ(reducer.buckets(), expected);
}

TEST(Reducer, SumsMicroStepsAndSendsOnlyTheLast) {
  spawn_ranks(2, [](Group& group) {
    Arena arena{parameters(2)};
    Reducer reducer{arena, group};
    reducer.defer(0, at::full({16}, 1.0));
    reducer.defer(1, at::full({16}, 10.0));
    reducer.ready(0, at::full({16}, 2.0));
    reducer.finish();  // parameter 1 took part in the first micro-step only, which is no error
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
    FAIL() << "unused parameters went unnoticed";
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

TEST(Reducer, RefusesAGradientThatIsReadyTwice) {
  Group alone;
  Arena arena{parameters(2)};
  Reducer reducer{arena, alone};
  reducer.ready(0);
  EXPECT_THROW(reducer.ready(0), Error);
}

}  // namespace
}  // namespace ddpxx
