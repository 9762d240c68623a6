// A GPT whose head is tied to the token embedding takes one course under each strategy, with and without the loss in
// chunks, and goes on from its snapshots.
#include <cstddef>

#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "tiny_run.hpp"

namespace ddpxx {
namespace {

const CourseOptions kTied{.tied_head = true};

const Course& reference() {
  static const Course course = train_course<SingleDevice>(1, kTied);
  return course;
}

TEST(TiedHead, LearnsAndIsInTheSnapshotOnce) {
  EXPECT_LT(reference().losses.back(), 0.95 * reference().losses.front());
  EXPECT_TRUE(reference().state.contains("model.transformer.wte.weight"));
  EXPECT_FALSE(reference().state.contains("model.lm_head.weight"));
  EXPECT_NE(train_course<SingleDevice>(1, {.steps = 1}).losses, reference().losses);
}

template <class S>
class TiedHeadUnder : public testing::Test {};
using Strategies = testing::Types<DDP, ZeRO1, ZeRO2, FSDP, Recompute<FSDP>, Recompute<DDP>>;
TYPED_TEST_SUITE(TiedHeadUnder, Strategies);

TYPED_TEST(TiedHeadUnder, TakesTheCourseOfOneProcess) {
  expect_same_course(train_course<TypeParam>(2, kTied), reference());
  auto options = kTied;
  options.accumulation = 2;
  options.loss_chunk = 5;
  options.stop_at = 7;
  expect_same_course(train_course<TypeParam>(2, options), reference());
}

TEST(TiedHead, TakesTheCourseOfOneProcessInUnitsAndReplicas) {
  expect_same_course(train_course<FSDP>(2, kTied, {.unit_bytes = 0}), reference());
  expect_same_course(train_course<HSDP>(4, kTied, {.shard_size = 2, .fsdp = {}}), reference());
  expect_same_course(train_course<DataParallel>(1, kTied, {.replicas = 2}), reference());
}

TEST(TiedHead, IsSteppedInBackwardAfterBothOfItsGradients) {
  auto options = kTied;
  options.clip = 0;
  expect_same_bits(train_course<StepInBackward<DDP>>(2, options), train_course<DDP>(2, options));
}

TEST(TiedHead, TakesOneCourseInSixteenBits) {
  const auto ddp = train_course<DDP, AdamW, LowPrecision<>>(2, kTied);
  const auto fsdp = train_course<FSDP, AdamW, LowPrecision<>>(2, kTied);
  EXPECT_LT(ddp.losses.back(), 0.95 * ddp.losses.front());
  ASSERT_EQ(fsdp.losses.size(), ddp.losses.size());
  for (std::size_t i = 0; i < ddp.losses.size(); ++i)
    EXPECT_NEAR(fsdp.losses[i], ddp.losses[i], 0x1p-9 * ddp.losses[i]) << "loss of step " << i + 1;
}

}  // namespace
}  // namespace ddpxx
