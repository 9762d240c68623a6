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

/// Records one fact of its own.
struct RecordingDataset : NumbersDataset {
  Settings recorded() const { return {{"the numbers", "all", Resume::must_match, {}}}; }
};

TEST(Subset, RecordsWhichSamplesItHas) {
  const auto dataset = std::make_shared<const NumbersDataset>(10);
  const auto fact = [&](const auto& samples) {
    const auto facts = Subset{dataset, samples}.recorded();
    EXPECT_EQ(facts.size(), 1U);
    EXPECT_EQ(facts[0].path, "the samples of the subset");
    EXPECT_EQ(facts[0].resume, Resume::must_match);
    return facts[0].value;
  };
  const auto folds = random_split({5, 5}, 0);
  EXPECT_EQ(fact(folds[0]), fact(random_split({5, 5}, 0)[0]));
  EXPECT_NE(fact(folds[0]), fact(folds[1]));
  EXPECT_EQ(fact(SampleRange{.first = 2, .count = 3, .stride = 2}),
            "3 samples, the first is 2, each 2 behind the one before");
  EXPECT_NE(fact(SampleRange{.first = 2, .count = 3}), fact(SampleRange{.first = 3, .count = 3}));
  EXPECT_NE(fact(SampleRange{.count = 3}), fact(SampleRange{.count = 3, .stride = 2}));
}

TEST(Subset, RecordsThePartsOfAPartAndTheFactsOfTheDataset) {
  const auto dataset = std::make_shared<const RecordingDataset>(RecordingDataset{{.num_samples = 10}});
  using Part = Subset<RecordingDataset>;
  const auto facts = [&](std::int64_t outer, std::int64_t inner) {
    const auto part = std::make_shared<const Part>(dataset, SampleRange{.first = outer, .count = 5});
    return Subset<Part>{part, SampleRange{.first = inner, .count = 2}}.recorded();
  };
  ASSERT_EQ(facts(0, 0).size(), 2U);
  EXPECT_EQ(facts(0, 0)[0].path, "the numbers");
  EXPECT_NE(facts(0, 1)[1].value, facts(0, 0)[1].value);
  EXPECT_NE(facts(1, 0)[1].value, facts(0, 0)[1].value);
}

}  // namespace
}  // namespace ddpxx::subset_test
