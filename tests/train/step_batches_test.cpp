// The batches of steps: valid sizes, and random augmentation that depends only on seed, epoch and sample.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/make_loader.hpp>
#include <ddpxx/data/subset.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/step_batches.hpp>

namespace ddpxx::step_batches_test {
namespace {

using testing::HasSubstr;

/// Sample i is the number i, in training together with a random number.
struct Augmented {
  std::int64_t samples = 22;
  std::int64_t size() const { return samples; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto numbers = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong);
    return {numbers, at::zeros_like(numbers), numbers.numel()};
  }
  Batch batch(std::span<const std::int64_t> indices, const BatchContext& context) const {
    auto plain = batch(indices);
    for (std::int64_t i = 0; i < plain.inputs.numel(); ++i)
      plain.targets[i] = at::randint(1'000'000, {}, context.generator(indices[static_cast<std::size_t>(i)]), at::kLong);
    return plain;
  }
};
static_assert(UsesBatchContext<Augmented> && UsesBatchContext<Subset<Augmented>>);

/// The random number of each (epoch, sample).
using Drawn = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

constexpr std::uint64_t kSeed = 5;

Drawn expected_numbers() {
  Drawn drawn;
  const Augmented data;
  std::vector<std::int64_t> all(22);
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto batch = data.batch(all, BatchContext{.seed = kSeed, .epoch = epoch});
    for (const auto i : all) drawn[{epoch, i}] = batch.targets[i].item<std::int64_t>();
  }
  return drawn;
}

/// Takes `steps` steps' batches from the cursor on, or the rest of two epochs.
template <class Dataset>
void take(StepBatches<Dataset>& batches, std::int64_t steps, Drawn& drawn) {
  for (std::int64_t step = 0; step < steps && batches.cursor().epoch < 2; ++step) {
    const auto epoch = batches.cursor().epoch;
    for (const Batch& batch : batches.next())
      for (std::int64_t i = 0; i < batch.inputs.numel(); ++i)
        drawn[{epoch, batch.inputs[i].item<std::int64_t>()}] = batch.targets[i].item<std::int64_t>();
  }
}

TEST(StepBatches, AugmentEachSampleEquallyForAnyWorldWorkersAndStepOfResuming) {
  const auto expected = expected_numbers();
  for (const int world_size : {1, 2})
    for (const std::int64_t num_workers : {0, 2})
      spawn_ranks(world_size, [&](Group& group) {
        const auto data = std::make_shared<const Augmented>();
        const StepBatches<Augmented>::Options options{.batch_size = 3, .num_workers = num_workers, .seed = kSeed};
        Drawn drawn;
        StepBatches<Augmented> first{data, group, options};
        take(first, 2, drawn);
        at::rand({100});  // other random numbers must not change the result
        StepBatches<Augmented> resumed{data, group, options};
        resumed.seek(first.cursor());
        take(resumed, 1000, drawn);
        EXPECT_GE(drawn.size(), expected.size() / static_cast<std::size_t>(world_size));
        for (const auto& [sample, number] : drawn)
          EXPECT_EQ(number, expected.at(sample)) << "epoch " << sample.first << " sample " << sample.second;
      });
}

TEST(StepBatches, TellASubsetsDatasetTheContextOfItsOwnSamples) {
  const auto expected = expected_numbers();
  const auto part = std::make_shared<const Subset<Augmented>>(std::make_shared<const Augmented>(),
                                                              SampleRange{.first = 3, .count = 5, .stride = 2});
  Group alone;
  StepBatches<Subset<Augmented>> batches{part, alone, {.batch_size = 5, .seed = kSeed}};
  Drawn drawn;
  take(batches, 1, drawn);
  ASSERT_EQ(drawn.size(), 5U);
  for (const auto& [sample, number] : drawn) EXPECT_EQ(number, expected.at(sample));
}

TEST(StepBatches, KeepTheOrderOfTheDataWithoutShuffle) {
  spawn_ranks(2, [](Group& group) {
    StepBatches<Augmented> batches{
        std::make_shared<const Augmented>(), group, {.batch_size = 3, .seed = kSeed, .shuffle = false}};
    EXPECT_EQ(batches.order_name(), "unshuffled");
    for (int epoch = 0; epoch < 2; ++epoch)
      for (std::int64_t taken = group.rank(); taken < 22;) {
        const auto step = batches.next();
        for (std::int64_t i = 0; i < step.front().inputs.numel(); ++i, taken += 2)
          EXPECT_EQ(step.front().inputs[i].item<std::int64_t>(), taken) << "epoch " << epoch;
      }
  });
}

/// A loader of a program's own: one batch after the other, each one noted. It fails once where it is told to.
struct OwnLoader {
  std::vector<std::int64_t> sizes{};
  std::int64_t fails_at = -1;     ///< The batch, counted over all epochs, that fails the first time.
  std::int64_t ends_after = 100;  ///< Batches of an epoch.

  MakeLoader<Augmented> make() {
    return [this](const std::shared_ptr<const Augmented>& data, DistributedSampler& sampler,
                  const LoaderOptions& options) -> NextBatch<Augmented> {
      std::vector<std::int64_t> samples(sampler.begin(), sampler.end());
      return [this, data, samples, options, taken = std::int64_t{0},
              batches = std::int64_t{0}]() mutable -> std::optional<Batch> {
        if (taken == std::ssize(samples) || batches++ == ends_after) return std::nullopt;
        if (std::ssize(sizes) == fails_at) {
          fails_at = -1;
          throw Error{Errc::data, "this batch is not there yet"};
        }
        const auto count = std::min(options.batch_size, std::ssize(samples) - taken);
        const std::span<const std::int64_t> indices{samples.data() + taken, static_cast<std::size_t>(count)};
        taken += count;
        sizes.push_back(count);
        return make_batch(*data, indices, options.context);
      };
    };
  }
};

TEST(StepBatches, OfALoaderOfAProgramsOwnAreThoseOfLoader) {
  Group alone;
  const auto data = std::make_shared<const Augmented>();
  OwnLoader loader;
  StepBatches<Augmented> batches{data, alone, {.batch_size = 4, .accumulation_steps = 2, .seed = kSeed}, loader.make()};
  Drawn drawn;
  take(batches, 1000, drawn);
  EXPECT_EQ(drawn, expected_numbers());
  EXPECT_THAT(loader.sizes, testing::ElementsAre(4, 4, 4, 4, 4, 2, 4, 4, 4, 4, 4, 2));
}

TEST(StepBatches, AreTriedAgainAfterOneThatCouldNotBeMade) {
  Group alone;
  OwnLoader loader{.fails_at = 3};  // the second batch of the second step
  StepBatches<Augmented> batches{std::make_shared<const Augmented>(),
                                 alone,
                                 {.batch_size = 4, .accumulation_steps = 2, .seed = kSeed},
                                 loader.make()};
  Drawn drawn;
  take(batches, 1, drawn);
  EXPECT_THROW(batches.next(), Error);
  EXPECT_EQ(batches.cursor().position, 8);
  take(batches, 1000, drawn);
  EXPECT_EQ(drawn, expected_numbers());
}

TEST(StepBatches, RefuseALoaderThatEndsTooEarly) {
  Group alone;
  OwnLoader loader{.ends_after = 2};
  StepBatches<Augmented> batches{
      std::make_shared<const Augmented>(), alone, {.batch_size = 4, .accumulation_steps = 3}, loader.make()};
  try {
    batches.next();
    FAIL() << "a step with two batches of three";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    EXPECT_THAT(error.what(), HasSubstr("the loader ended 14 samples before the end of epoch 0"));
  }
}

TEST(StepBatches, RefuseSizesBeyondAnEpochBeforeAnythingIsAllocated) {
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  const auto error_of = [](const StepBatches<Augmented>::Options& options) -> std::string {
    Group alone;
    try {
      const StepBatches<Augmented> batches{std::make_shared<const Augmented>(), alone, options};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_of({.batch_size = 22}), "accepted");
  EXPECT_THAT(error_of({.batch_size = 23}), HasSubstr("22 training samples on 1 rank allow at most 22"));
  EXPECT_THAT(error_of({.batch_size = kHuge}), HasSubstr("batch_size=9223372036854775807 is more than"));
  EXPECT_EQ(error_of({.batch_size = 3, .accumulation_steps = 8}), "accepted");
  EXPECT_THAT(error_of({.batch_size = 3, .accumulation_steps = 9}), HasSubstr("is outside [1, 8]"));
  EXPECT_THAT(error_of({.batch_size = 3, .accumulation_steps = kHuge}), HasSubstr("is outside [1, 8]"));
  EXPECT_THAT(error_of({.batch_size = 3, .accumulation_steps = 0}), HasSubstr("is outside [1, 8]"));
  EXPECT_THAT(error_of({.batch_size = 0}), HasSubstr("batch_size 0 is below 1"));
  EXPECT_THAT(error_of({.num_workers = kHuge}), HasSubstr("is above 1024"));
}

TEST(StepBatches, CountTheShareOfARankWithItsPadding) {
  spawn_ranks(4, [](Group& group) {
    const auto data = std::make_shared<const Augmented>(Augmented{5});
    StepBatches<Augmented> batches{data, group, {.batch_size = 2}};
    EXPECT_EQ(batches.next().at(0).num_tokens, 2);
    EXPECT_THROW((StepBatches<Augmented>{data, group, {.batch_size = 3}}), Error);
  });
}

TEST(StepBatches, RefuseACursorBehindTheEndOfAnEpoch) {
  Group alone;
  StepBatches<Augmented> batches{std::make_shared<const Augmented>(), alone, {.batch_size = 2, .seed = kSeed}};
  batches.seek({.epoch = 1, .position = 21});
  EXPECT_EQ(batches.next().size(), 1U);
  EXPECT_EQ(batches.cursor().epoch, 2);
  for (const auto position : {std::int64_t{22}, std::int64_t{1} << 60U}) {
    try {
      batches.seek({.epoch = 0, .position = position});
      ADD_FAILURE() << position;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_THAT(error.what(), HasSubstr("stands at sample " + std::to_string(position) + " of an epoch"));
    }
  }
}

}  // namespace
}  // namespace ddpxx::step_batches_test
