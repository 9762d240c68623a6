#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/concept.hpp>

#include "numbers_dataset.hpp"

namespace ddpxx::concept_test {
namespace {

struct WithoutSize {
  Batch batch(std::span<const std::int64_t>) const { return {}; }
};
struct WithBatchesForOneThreadOnly {
  std::int64_t size() const { return 0; }
  Batch batch(std::span<const std::int64_t>) { return {}; }
};
struct WithBareTensors {
  std::int64_t size() const { return 0; }
  at::Tensor batch(std::span<const std::int64_t>) const { return {}; }
};
struct StuckBatch {
  std::int64_t num_tokens = 0;
};
struct WithStuckBatches {
  std::int64_t size() const { return 0; }
  StuckBatch batch(std::span<const std::int64_t>) const { return {}; }
};

/// A dataset that is complete without the functions that its variants add.
struct Plain {
  std::int64_t size() const { return 0; }
  Batch batch(std::span<const std::int64_t>) const { return {}; }
};
struct WithContextAndFacts : Plain {
  using Plain::batch;
  Batch batch(std::span<const std::int64_t>, const BatchContext&) const { return {}; }
  Settings recorded() const { return {}; }
};
struct WithContextByReference : Plain {
  using Plain::batch;
  Batch batch(std::span<const std::int64_t>, BatchContext&) const { return {}; }
};
struct WithContextForOneThreadOnly : Plain {
  using Plain::batch;
  Batch batch(std::span<const std::int64_t>, const BatchContext&) { return {}; }
};
struct WithOtherTrainingBatches : Plain {
  using Plain::batch;
  StuckBatch batch(std::span<const std::int64_t>, const BatchContext&) const { return {}; }
};
struct WithFactsThatChange : Plain {
  Settings recorded() { return {}; }
};
struct WithFactsOfAnotherType : Plain {
  int recorded() const { return 0; }
};

TEST(MapDataset, HasOptionalFunctionsAsTheyAreCalledOrOddOnes) {
  static_assert(explain_dataset<Plain>() && explain_dataset<WithContextAndFacts>());
  EXPECT_TRUE(UsesBatchContext<WithContextAndFacts> && RecordsFacts<WithContextAndFacts>);
  EXPECT_FALSE(UsesBatchContext<Plain> || RecordsFacts<Plain>);
  EXPECT_TRUE(OddlyUsesBatchContext<WithContextByReference>);
  EXPECT_TRUE(OddlyUsesBatchContext<WithContextForOneThreadOnly>);
  EXPECT_TRUE(OddlyUsesBatchContext<WithOtherTrainingBatches>);
  EXPECT_TRUE(OddlyRecordsFacts<WithFactsThatChange>);
  EXPECT_TRUE(OddlyRecordsFacts<WithFactsOfAnotherType>);
}

TEST(MapDataset, IsHeldByWhatHasEveryPropertyAndByNothingElse) {
  EXPECT_TRUE(MapDataset<NumbersDataset>);
  EXPECT_FALSE(MapDataset<WithoutSize>);
  EXPECT_FALSE(MapDataset<WithBatchesForOneThreadOnly>);
  EXPECT_FALSE(MapDataset<WithBareTensors>);
  EXPECT_FALSE(MapDataset<WithStuckBatches>);
}

}  // namespace
}  // namespace ddpxx::concept_test
