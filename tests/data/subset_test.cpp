#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/random_split.hpp>
#include <ddpxx/data/subset.hpp>

#include "numbers_dataset.hpp"

namespace ddpxx::subset_test {
namespace {

static_assert(MapDataset<Subset<NumbersDataset>>);
static_assert(MapDataset<Subset<Subset<NumbersDataset>>>);

using Indices = std::vector<std::int64_t>;

TEST(Subset, RenumbersTheSamplesOfItsPart) {
  const auto dataset = std::make_shared<const NumbersDataset>(10);
  const auto parts = random_split({7, 3}, 0);  // {4, 1, 7, 5, 3, 9, 0}, {8, 6, 2}
  const Subset train{dataset, parts[0]};
  const Subset test{dataset, parts[1]};
  EXPECT_EQ(train.size(), 7);
  EXPECT_EQ(test.size(), 3);
  EXPECT_EQ(numbers(train.batch(Indices{0, 6, 2})), (Indices{4, 0, 7}));
  EXPECT_EQ(numbers(test.batch(Indices{2, 0})), (Indices{2, 8}));
  EXPECT_EQ(&train.dataset(), dataset.get());
}

TEST(Subset, RefusesSamplesThatAreNotThere) {
  const auto dataset = std::make_shared<const NumbersDataset>(10);
  const auto parts = random_split({7, 3}, 0);
  const Subset test{dataset, parts[1]};
  EXPECT_THROW(test.batch(Indices{3}), Error);
  EXPECT_THROW(test.batch(Indices{-1}), Error);
  const auto smaller = std::make_shared<const NumbersDataset>(8);
  EXPECT_THROW((Subset{smaller, parts[1]}), Error);  // the parts were made for 10 samples
  EXPECT_NO_THROW((Subset{smaller, random_split({8}, 0)[0]}));
}

TEST(Subset, TakesARangeInSteps) {
  const auto dataset = std::make_shared<const NumbersDataset>(10);
  const Subset range{dataset, SampleRange{.first = 2, .count = 3, .stride = 3}};
  EXPECT_EQ(range.size(), 3);
  EXPECT_EQ(numbers(range.batch(Indices{2, 0, 1})), (Indices{8, 2, 5}));
  EXPECT_THROW(range.batch(Indices{3}), Error);
  EXPECT_EQ((Subset{dataset, SampleRange{.first = 10, .count = 0}}.size()), 0);
  for (const auto& wrong : {SampleRange{.first = 2, .count = 4, .stride = 3}, SampleRange{.first = -1, .count = 1},
                            SampleRange{.count = -1}, SampleRange{.count = 1, .stride = 0}})
    EXPECT_THROW((Subset{dataset, wrong}), Error);
}

}  // namespace
}  // namespace ddpxx::subset_test
