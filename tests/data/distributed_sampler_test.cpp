#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/distributed_sampler.hpp>

namespace ddpxx::distributed_sampler_test {
namespace {

using Indices = std::vector<std::int64_t>;

Indices all_of(DistributedSampler sampler, std::int64_t epoch = 0, std::int64_t position = 0) {
  sampler.set_epoch(epoch);
  sampler.seek(position);
  Indices indices(sampler.begin(), sampler.end());
  EXPECT_EQ(std::ssize(indices), sampler.size());
  return indices;
}

/// The indices that all ranks take, in the order in which they take them.
Indices of_all_ranks(std::int64_t size, DistributedSamplerConfig config, std::int64_t epoch, std::int64_t position) {
  std::vector<Indices> of_rank;
  for (config.rank = 0; config.rank < config.world_size; ++config.rank)
    of_rank.push_back(all_of({size, config}, epoch, position));
  Indices merged;
  for (std::size_t round = 0; round < of_rank[0].size(); ++round)
    for (const auto& indices : of_rank) merged.push_back(indices[round]);
  return merged;
}

TEST(DistributedSampler, DealsWhatPyTorchDeals) {
  struct Golden {
    std::int64_t size, world_size;
    std::uint64_t seed;
    std::int64_t epoch;
    bool drop_last;
    std::vector<Indices> ranks;
  };
  const std::vector<Golden> goldens{
      {10, 3, 0, 0, false, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
      {10, 3, 0, 1, false, {{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}},
      {10, 3, 0, 0, true, {{4, 5, 0}, {1, 3, 8}, {7, 9, 6}}},
      {2, 5, 0, 0, false, {{0}, {1}, {0}, {1}, {0}}},
      {12, 4, 7, 3, true, {{5, 1, 3}, {2, 9, 8}, {4, 11, 10}, {7, 0, 6}}},
  };
  for (const auto& golden : goldens)
    for (std::int64_t rank = 0; rank < golden.world_size; ++rank) {
      const DistributedSampler sampler{
          golden.size,
          {.rank = rank, .world_size = golden.world_size, .seed = golden.seed, .drop_last = golden.drop_last}};
      EXPECT_EQ(all_of(sampler, golden.epoch), golden.ranks[static_cast<std::size_t>(rank)]) << golden.size << rank;
    }
  const auto first = all_of({2048, {}});
  EXPECT_EQ(Indices(first.begin(), first.begin() + 4), (Indices{684, 1316, 1939, 2013}));
}

TEST(DistributedSampler, KeepsTheOrderOfTheDataWithoutShuffle) {
  EXPECT_EQ(all_of({7, {.rank = 1, .world_size = 3, .shuffle = false}}), (Indices{1, 4, 0}));
  EXPECT_EQ(all_of({7, {.rank = 1, .world_size = 3, .shuffle = false, .drop_last = true}}), (Indices{1, 4}));
  // This sampler must take no memory for its order: stored, the order would take eight terabytes.
  DistributedSampler sampler{std::int64_t{1} << 40, {.rank = 1, .world_size = 2, .shuffle = false}};
  EXPECT_EQ(*(sampler.begin() + (std::int64_t{1} << 38)), (std::int64_t{1} << 39) + 1);
}

TEST(ComputedPermutation, HasEachNumberOnceForEverySizeAndSeed) {
  for (std::int64_t size = 1; size < 300; ++size)
    for (const std::uint64_t seed : {0U, 1U, 77U}) {
      const ComputedPermutation order{size, seed};
      std::vector<int> uses(static_cast<std::size_t>(size));
      for (std::int64_t place = 0; place < size; ++place) ++uses.at(static_cast<std::size_t>(order[place]));
      ASSERT_EQ(uses, std::vector<int>(uses.size(), 1)) << size;
    }
}

TEST(ComputedPermutation, PutsEachNumberAtEachPlaceAboutEquallyOften) {
  constexpr std::int64_t kSize = 21, kSeeds = 4200;  // the test expects 200 of each, with a standard deviation of 14
  std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
  int neighbours = 0;  // pairs i, i+1 that stand side by side: (kSize - 1) / kSize expected in each order
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const ComputedPermutation order{kSize, seed};
    for (std::int64_t place = 0; place < kSize; ++place) ++counts[{place, order[place]}];
    for (std::int64_t place = 1; place < kSize; ++place) neighbours += order[place] == order[place - 1] + 1 ? 1 : 0;
  }
  EXPECT_EQ(counts.size(), static_cast<std::size_t>(kSize * kSize));
  for (const auto& [where, count] : counts) EXPECT_NEAR(count, 200, 6 * 14) << where.first << ' ' << where.second;
  EXPECT_NEAR(neighbours, 4200 * 20 / 21, 400);
}

TEST(ComputedPermutation, IsTheSameForEver) {
  Indices order, large;
  for (std::int64_t place = 0; place < 10; ++place) order.push_back(ComputedPermutation{10, 3}[place]);
  EXPECT_EQ(order, (Indices{5, 6, 4, 0, 7, 3, 9, 1, 8, 2}));
  for (std::int64_t place = 0; place < 3; ++place)
    large.push_back(ComputedPermutation{std::int64_t{1} << 40, 3}[place]);
  EXPECT_EQ(large, (Indices{671346277150, 399405867433, 846429364475}));
}

TEST(DistributedSampler, ComputesTheOrderOfALargeDatasetAndTakesNoMemoryForIt) {
  for (const std::int64_t world_size : {1, 3}) {
    const DistributedSamplerConfig config{.world_size = world_size, .seed = 9, .max_stored = 100};
    auto indices = of_all_ranks(102, config, 1, 0);
    EXPECT_NE(indices, of_all_ranks(102, config, 2, 0)) << "another epoch, another order";
    EXPECT_EQ(Indices(indices.begin() + 30, indices.end()), of_all_ranks(102, config, 1, 30))
        << "a sampler that starts at position 30 must continue the epoch";
    std::sort(indices.begin(), indices.end());
    Indices all(102);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(indices, all);
  }
  // The stored order would take eight terabytes.
  DistributedSampler sampler{std::int64_t{1} << 40, {.rank = 1, .world_size = 2}};
  EXPECT_NE(*(sampler.begin() + (std::int64_t{1} << 38)), *sampler.begin());
  EXPECT_EQ(sampler.order_name(), "computed, 8 rounds");
  EXPECT_EQ((DistributedSampler{std::int64_t{1} << 24, {}}.order_name()), "torch.randperm");
}

TEST(DistributedSampler, CanBeIteratedAgainAndCopied) {
  DistributedSampler sampler{100, {.rank = 1, .world_size = 3, .seed = 5}};
  sampler.set_epoch(2);
  const Indices once(sampler.begin(), sampler.end());
  auto copy = sampler;
  Indices again;
  for (const std::int64_t index : copy) again.push_back(index);
  EXPECT_EQ(again, once);
  sampler.set_epoch(3);
  EXPECT_NE(Indices(sampler.begin(), sampler.end()), once);
  sampler.set_epoch(2);
  EXPECT_EQ(Indices(sampler.begin(), sampler.end()), once);
}

TEST(DistributedSampler, GoesOnWhereTheSameRanksStopped) {
  for (const bool drop_last : {false, true})
    for (const std::int64_t size : {1, 2, 3, 10, 23, 24})
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        const DistributedSampler sampler{size, {.rank = rank, .world_size = 3, .seed = 1, .drop_last = drop_last}};
        const auto whole = all_of(sampler, 4);
        for (std::int64_t rounds = 0; rounds <= std::ssize(whole); ++rounds)
          EXPECT_EQ(all_of(sampler, 4, 3 * rounds), Indices(whole.begin() + rounds, whole.end())) << size << rounds;
      }
}

TEST(DistributedSampler, CoversTheEpochOnceWhenTheNumberOfRanksChangesOnTheWay) {
  constexpr std::int64_t kSize = 101;
  const auto before = of_all_ranks(kSize, {.world_size = 4, .seed = 9}, 1, 0);
  for (const std::int64_t world_size : {1, 2, 3, 8}) {
    constexpr std::int64_t kConsumed = 40;
    const auto after = of_all_ranks(kSize, {.world_size = world_size, .seed = 9}, 1, kConsumed);
    std::map<std::int64_t, int> uses;
    for (auto index = before.begin(); index != before.begin() + kConsumed; ++index) ++uses[*index];
    for (const auto index : after) ++uses[index];
    EXPECT_EQ(std::ssize(uses), kSize);
    const auto padding = (world_size - (kSize - kConsumed) % world_size) % world_size;
    EXPECT_EQ(std::accumulate(uses.begin(), uses.end(), 0, [](int sum, const auto& use) { return sum + use.second; }),
              kSize + padding);
  }
}

TEST(DistributedSampler, HasNothingLeftAtAndBeyondTheEnd) {
  for (const std::int64_t position : {10, 12, 1000}) EXPECT_TRUE(all_of({10, {.world_size = 3}}, 0, position).empty());
  EXPECT_TRUE(all_of({0, {.rank = 1, .world_size = 2}}).empty());
  EXPECT_TRUE(all_of({1, {.rank = 1, .world_size = 2, .drop_last = true}}).empty());
}

TEST(DistributedSampler, BeginsEachEpochWithAllSamples) {
  DistributedSampler sampler{10, {}};
  sampler.seek(7);
  EXPECT_EQ(sampler.size(), 3);
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.size(), 10);
}

TEST(DistributedSampler, RefusesWhatMakesNoSense) {
  const auto refuses = [](std::int64_t size, const DistributedSamplerConfig& config) {
    try {
      const DistributedSampler sampler{size, config};
    } catch (const Error& error) {
      return error.code() == Errc::config;
    }
    return false;
  };
  EXPECT_TRUE(refuses(10, {.rank = 2, .world_size = 2}));
  EXPECT_TRUE(refuses(10, {.rank = -1, .world_size = 2}));
  EXPECT_TRUE(refuses(10, {.rank = 0, .world_size = 0}));
  EXPECT_TRUE(refuses(-1, {}));
  EXPECT_THROW((DistributedSampler{10, {}}.seek(-1)), Error);
}

}  // namespace
}  // namespace ddpxx::distributed_sampler_test
