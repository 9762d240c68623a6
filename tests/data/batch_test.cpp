#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>

namespace ddpxx::batch_test {
namespace {

TEST(Batch, MovesWholeToAnotherDevice) {
  const Batch batch{at::ones({2, 3}), at::ones({2, 3}), 6};
  const auto moved = batch.to(at::kMeta);
  EXPECT_TRUE(moved.inputs.is_meta());
  EXPECT_TRUE(moved.targets.is_meta());
  EXPECT_EQ(moved.num_tokens, 6);
  EXPECT_TRUE(batch.to(at::kCPU).inputs.is_same(batch.inputs)) << "a batch that is on the device already was copied";
}

}  // namespace
}  // namespace ddpxx::batch_test
