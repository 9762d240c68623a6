#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/weighted_samples.hpp>

#include "../error_of.hpp"
#include "numbers_dataset.hpp"

namespace ddpxx::weighted_samples_test {
namespace {

using testing::HasSubstr;
using Indices = std::vector<std::int64_t>;
using Weights = std::vector<double>;

static_assert(MapDataset<WeightedSamples<NumbersDataset>> && UsesBatchContext<WeightedSamples<NumbersDataset>>);

std::shared_ptr<const NumbersDataset> numbers_up_to(std::int64_t count) {
  return std::make_shared<const NumbersDataset>(count);
}

/// The samples of an epoch.
Indices epoch(const Weights& weights, std::int64_t draws, const BatchContext& context) {
  Indices all(static_cast<std::size_t>(draws));
  std::iota(all.begin(), all.end(), 0);
  return numbers(WeightedSamples{numbers_up_to(std::ssize(weights)), weights, draws}.batch(all, context));
}

TEST(WeightedSamples, AreDrawnInProportionToTheirWeights) {
  const Weights weights{0, 1, 0, 2, 5, 0};
  constexpr std::int64_t kDraws = 80'000;
  Indices counts(weights.size());
  for (const auto sample : epoch(weights, kDraws, {.seed = 7, .epoch = 3}))
    ++counts.at(static_cast<std::size_t>(sample));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double expected = kDraws * weights[i] / 8;
    // Four standard deviations of a binomial distribution.
    EXPECT_NEAR(static_cast<double>(counts[i]), expected, 4 * std::sqrt(expected)) << "sample " << i;
  }
}

TEST(WeightedSamples, DependOnSeedEpochAndNumberOfTheDrawAlone) {
  const Weights weights{1, 2, 3, 4, 5, 6, 7, 8};
  const auto whole = epoch(weights, 100, {.seed = 1, .epoch = 2});
  EXPECT_EQ(epoch(weights, 100, {.seed = 1, .epoch = 2}), whole);
  EXPECT_NE(epoch(weights, 100, {.seed = 2, .epoch = 2}), whole);
  EXPECT_NE(epoch(weights, 100, {.seed = 1, .epoch = 3}), whole);
  const WeightedSamples samples{numbers_up_to(8), weights, 100};
  EXPECT_EQ(numbers(samples.batch(Indices{99, 0, 50}, {.seed = 1, .epoch = 2})),
            (Indices{whole[99], whole[0], whole[50]}));
  EXPECT_EQ(numbers(samples.batch(Indices{4})), numbers(samples.batch(Indices{4}, {})));
}

TEST(WeightedSamples, HaveAsManyDrawsAsTheDatasetHasSamplesUnlessTold) {
  EXPECT_EQ((WeightedSamples{numbers_up_to(3), Weights{1, 1, 1}}.size()), 3);
  const WeightedSamples more{numbers_up_to(3), Weights{1, 1, 1}, 10};
  EXPECT_EQ(more.size(), 10);
  EXPECT_EQ(more.dataset().size(), 3);
  for (const std::int64_t outside : {-1, 10})
    EXPECT_THAT(error_of([&] { more.batch(Indices{outside}); }), HasSubstr(" of 10"));
}

TEST(WeightedSamples, RefuseWeightsByWhichNothingCanBeDrawn) {
  const auto refusal = [](const Weights& weights, std::int64_t draws = 4) {
    return error_of([&] { WeightedSamples{numbers_up_to(3), weights, draws}; });
  };
  EXPECT_THAT(refusal({1, 2}), HasSubstr("2 weights for a dataset with 3 samples"));
  EXPECT_THAT(refusal({1, 2, -0.5}), HasSubstr("weight 2 is -0.5"));
  EXPECT_THAT(refusal({1, std::numeric_limits<double>::quiet_NaN(), 1}), HasSubstr("weight 1 is nan"));
  EXPECT_THAT(refusal({1, std::numeric_limits<double>::infinity(), 1}), HasSubstr("weight 1 is inf"));
  EXPECT_THAT(refusal({1e308, 1e308, 1}), HasSubstr("the sum of the weights is inf"));
  EXPECT_THAT(refusal({0, 0, 0}), HasSubstr("the sum of the weights is 0"));
  EXPECT_THAT(refusal({1, 1, 1}, 0), HasSubstr("an epoch of 0 draws"));
}

/// Records a fact, and returns the seed of the context in place of a sample.
struct Augmented : NumbersDataset {
  Settings recorded() const { return {{"the numbers", "all", Resume::must_match, {}}}; }
  using NumbersDataset::batch;
  Batch batch(std::span<const std::int64_t> indices, const BatchContext& context) const {
    auto batch = NumbersDataset::batch(indices);
    batch.inputs.fill_(static_cast<std::int64_t>(context.seed));
    return batch;
  }
};

TEST(WeightedSamples, HandTheContextAndTheFactsOfTheDatasetOn) {
  const auto dataset = std::make_shared<const Augmented>(Augmented{{.num_samples = 2}});
  const WeightedSamples samples{dataset, Weights{1, 2}};
  EXPECT_EQ(numbers(samples.batch(Indices{0}, {.seed = 42})), Indices{42});
  const auto facts = samples.recorded();
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].path, "the numbers");
  EXPECT_EQ(facts[1].path, "the weights of the samples");
  EXPECT_THAT(facts[1].value, testing::StartsWith("2 draws by 2 weights, CRC-32C "));
  EXPECT_NE((WeightedSamples{dataset, Weights{2, 1}}.recorded()[1].value), facts[1].value);
}

}  // namespace
}  // namespace ddpxx::weighted_samples_test
