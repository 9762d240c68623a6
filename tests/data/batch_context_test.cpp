#include <cstdint>
#include <set>

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch_context.hpp>

namespace ddpxx::batch_context_test {
namespace {

TEST(BatchContext, HasOneGeneratorForEachSeedEpochAndSample) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::int64_t epoch = 0; epoch < 10; ++epoch)
      for (std::int64_t index = 0; index < 10; ++index)
        seeds.insert(BatchContext{.seed = seed, .epoch = epoch}.seed_of(index));
  EXPECT_EQ(seeds.size(), 1000U);
}

TEST(BatchContext, GeneratesTheSameNumbersAgain) {
  const BatchContext context{.seed = 5, .epoch = 2};
  const auto numbers = at::rand({4}, context.generator(7));
  EXPECT_TRUE(at::equal(at::rand({4}, context.generator(7)), numbers));
  EXPECT_FALSE(at::equal(at::rand({4}, context.generator(8)), numbers));
}

TEST(BatchContext, KeepsItsSeedsSinceResumedRunsRelyOnThem) {
  EXPECT_EQ(BatchContext{}.seed_of(0), 0x238275BC38FCBE91U);
  EXPECT_EQ((BatchContext{.seed = 5, .epoch = 2}.seed_of(7)), 0x86962F1CA0C50760U);
}

}  // namespace
}  // namespace ddpxx::batch_context_test
