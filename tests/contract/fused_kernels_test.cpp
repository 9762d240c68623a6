// A GPT with fused operations (GPTConfig::fused) takes the course of the plain one under each strategy.
#include <cstddef>
#include <type_traits>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "tiny_run.hpp"

namespace ddpxx::fused_kernels_test {
namespace {

const CourseOptions kFused{.fused = true};
/// On a CPU with AVX2 each block is one operation.
const CourseOptions kPlainBlocks{.width = 32}, kFusedBlocks{.fused = true, .width = 32};

template <class S>
class FusedGPT : public testing::Test {};
using Strategies = testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP, Recompute<FSDP>>;
TYPED_TEST_SUITE(FusedGPT, Strategies);

TYPED_TEST(FusedGPT, TakesTheCourseOfThePlainOperations) {
  constexpr bool kAlone = std::is_same_v<TypeParam, SingleDevice>;
  expect_same_course(train_course<TypeParam>(kAlone ? 1 : 2, kFused), train_course<SingleDevice>(1));
}

TYPED_TEST(FusedGPT, TakesThatCourseInFusedBlocks) {
  constexpr bool kAlone = std::is_same_v<TypeParam, SingleDevice>;
  expect_same_course(train_course<TypeParam>(kAlone ? 1 : 2, kFusedBlocks),
                     train_course<SingleDevice>(1, kPlainBlocks));
}

TYPED_TEST(FusedGPT, TakesThatCourseInFusedBlocksWithTwoMicroBatches) {
  constexpr bool kAlone = std::is_same_v<TypeParam, SingleDevice>;
  auto plain = kPlainBlocks, fused = kFusedBlocks;
  plain.accumulation = fused.accumulation = 2;
  expect_same_course(train_course<TypeParam>(kAlone ? 1 : 2, fused), train_course<SingleDevice>(1, plain));
}

TEST(FusedGPTUnderFSDP, TakesThatCourseInUnitsOfOneLayer) {
  for (const char* reshard : {"true", "false"}) {
    const FSDPConfig in_layers{.unit_bytes = 0, .reshard_after_forward = reshard};
    expect_same_course(train_course<FSDP>(2, kFused, in_layers), train_course<SingleDevice>(1));
    expect_same_course(train_course<FSDP>(2, kFusedBlocks, in_layers), train_course<SingleDevice>(1, kPlainBlocks));
  }
}

TEST(FusedBlocks, HaveTheBitsOfARunThatComputesItsLayersAgain) {
  expect_same_bits(train_course<Recompute<DDP>>(2, kFusedBlocks), train_course<DDP>(2, kFusedBlocks));
}

TEST(FusedGPTWithDropout, HasTheBitsOfARunThatComputesItsLayersAgain) {
  auto options = kFused;
  options.dropout = 0.2;
  options.clip = 0;
  expect_same_bits(train_course<Recompute<DDP>>(2, options), train_course<DDP>(2, options));
}

template <class P>
class FusedGPTIn16Bits : public testing::Test {};
using SixteenBits = testing::Types<AutocastBF16, LowPrecision<>>;
TYPED_TEST_SUITE(FusedGPTIn16Bits, SixteenBits);

void expect_same_course_within_the_rounding(const Course& got, const Course& plain) {
  ASSERT_EQ(got.losses.size(), plain.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], plain.losses[i], 0x1p-8 * plain.losses[i]) << "loss of step " << i + 1;
}

TYPED_TEST(FusedGPTIn16Bits, TakesTheCourseOfThePlainOperationsWithinTheRounding) {
  const auto plain = train_course<SingleDevice, AdamW, TypeParam>(1);
  expect_same_course_within_the_rounding(train_course<SingleDevice, AdamW, TypeParam>(1, kFused), plain);
  expect_same_course_within_the_rounding(train_course<FSDP, AdamW, TypeParam>(2, kFused), plain);
}

TEST(FusedBlocksInBFloat16, TakeTheCourseOfThePlainOperationsWithinTheRounding) {
  const auto plain = train_course<SingleDevice, AdamW, AutocastBF16>(1, kPlainBlocks);
  expect_same_course(train_course<SingleDevice, AdamW, AutocastBF16>(1, kFusedBlocks), plain, 0x1p-6);
  expect_same_course(train_course<DDP, AdamW, AutocastBF16>(2, kFusedBlocks), plain, 0x1p-6);
}

TEST(FusedBlocksInBFloat16, HaveTheBitsOfARunThatComputesItsLayersAgain) {
  expect_same_bits(train_course<Recompute<DDP>, AdamW, AutocastBF16>(2, kFusedBlocks),
                   train_course<DDP, AdamW, AutocastBF16>(2, kFusedBlocks));
}

}  // namespace
}  // namespace ddpxx::fused_kernels_test
