// A GPT whose loss is computed in chunks (GPTConfig::loss_chunk) takes the course of the plain loss under each
// strategy.
#include <cstdint>
#include <string>
#include <type_traits>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "tiny_run.hpp"

namespace ddpxx::chunked_loss_test {
namespace {

const CourseOptions kInChunks{.loss_chunk = 5};  // divides no rank's number of positions

template <class S>
class ChunkedLoss : public testing::Test {};
using Strategies = testing::Types<SingleDevice, DDP, ZeRO2, FSDP, Recompute<SingleDevice>, Recompute<FSDP>>;
TYPED_TEST_SUITE(ChunkedLoss, Strategies);

TYPED_TEST(ChunkedLoss, TakesTheCourseOfThePlainLoss) {
  constexpr bool kAlone = std::is_same_v<TypeParam, SingleDevice> || std::is_same_v<TypeParam, Recompute<SingleDevice>>;
  expect_same_course(train_course<TypeParam>(kAlone ? 1 : 2, kInChunks), train_course<SingleDevice>(1));
}

template <class P>
class ChunkedLossIn16Bits : public testing::Test {};
using SixteenBits = testing::Types<AutocastBF16, AutocastFP16, LowPrecision<>>;
TYPED_TEST_SUITE(ChunkedLossIn16Bits, SixteenBits);

TYPED_TEST(ChunkedLossIn16Bits, TakesTheCourseOfThePlainLossWithinTheRounding) {
  typename TypeParam::Config precision;
  // With the default scale of 65536 the first step would overflow and be skipped.
  if constexpr (requires { precision.scaler; }) precision.scaler.initial_scale = 1024;
  const auto plain = train_course<SingleDevice, AdamW, TypeParam>(1, {}, {}, precision);
  for (const auto& got : {train_course<SingleDevice, AdamW, TypeParam>(1, kInChunks, {}, precision),
                          train_course<FSDP, AdamW, TypeParam>(2, kInChunks, {}, precision)}) {
    ASSERT_EQ(got.losses.size(), plain.losses.size());
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], plain.losses[i], 0x1p-9 * plain.losses[i]) << "loss of step " << i + 1;
  }
}

}  // namespace
}  // namespace ddpxx::chunked_loss_test
