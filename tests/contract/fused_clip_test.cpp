// Clipping inside the optimizer's step (TrainingConfig::fused_clip) takes the course of clipping in a pass of its own.
#include <ddpxx/optim/lion.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>

#include "tiny_run.hpp"

namespace ddpxx::fused_clip_test {
namespace {

/// Each step is clipped.
CourseOptions clipped(bool fused) { return {.clip = 0.1, .fused_clip = fused}; }

const Course& plain() {
  static const Course course = train_course<SingleDevice>(1, clipped(false));
  return course;
}

TEST(FusedClip, TakesTheCourseOfAPassOfItsOwnUnderEachStrategy) {
  const auto alone = train_course<SingleDevice>(1, clipped(true));
  expect_same_course(alone, plain());
  constexpr const char* kName = "optimizer.exp_avg.transformer.wte.weight";
  EXPECT_FALSE(at::equal(alone.state.at(kName), plain().state.at(kName))) << "equal bits: was it clipped elsewhere?";
  expect_same_course(train_course<DDP>(2, clipped(true)), plain());
  expect_same_course(train_course<ZeRO1>(2, clipped(true)), plain());
  expect_same_course(train_course<FSDP>(2, clipped(true)), plain());
  expect_same_course(train_course<FSDP>(2, clipped(true), {.offload = Offload::cpu}), plain());
}

TEST(FusedClip, ChangesNoBitOfGradientsBelowTheLimit) {
  CourseOptions options{.clip = 1000};
  const auto expected = train_course<DDP>(2, options);
  options.fused_clip = true;
  expect_same_bits(train_course<DDP>(2, options), expected);
}

TEST(FusedClip, GoesOnFromASnapshotWithTheSameBits) {
  auto stopped = clipped(true);
  stopped.stop_at = 7;
  expect_same_bits(train_course<DDP>(2, stopped), train_course<DDP>(2, clipped(true)));
}

TEST(FusedClip, SkipsTheStepsThatAScaledLossSkips) {
  const LossScalerConfig overflows{.initial_scale = 1 << 20};  // the first steps overflow
  const AutocastFP16::Config precision{overflows};
  const auto got = train_course<DDP, AdamW, AutocastFP16>(2, clipped(true), {}, precision);
  const auto expected = train_course<DDP, AdamW, AutocastFP16>(2, clipped(false), {}, precision);
  EXPECT_EQ(expected.norms.front(), 0) << "no step was skipped";
  EXPECT_GT(expected.norms.back(), 0) << "all steps were skipped";
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-3 * expected.losses[i]) << i;
    EXPECT_EQ(got.norms[i] == 0, expected.norms[i] == 0) << i;
  }
}

TEST(FusedClip, OfAnOptimizerThatCannotDivideIsAPassOfItsOwn) {
  expect_same_bits(train_course<DDP, Lion>(2, clipped(true)), train_course<DDP, Lion>(2, clipped(false)));
}

}  // namespace
}  // namespace ddpxx::fused_clip_test
