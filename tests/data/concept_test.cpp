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

TEST(MapDataset, IsHeldByWhatHasEveryPropertyAndByNothingElse) {
  EXPECT_TRUE(MapDataset<NumbersDataset>);
  EXPECT_FALSE(MapDataset<WithoutSize>);
  EXPECT_FALSE(MapDataset<WithBatchesForOneThreadOnly>);
  EXPECT_FALSE(MapDataset<WithBareTensors>);
  EXPECT_FALSE(MapDataset<WithStuckBatches>);
}

}  // namespace
}  // namespace ddpxx::concept_test
