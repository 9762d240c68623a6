// Stepping parameters during backward gives the same bits as stepping them after backward.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gmock/gmock.h>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "tiny_run.hpp"

namespace ddpxx::step_in_backward_test {
namespace {

template <class S>
inline constexpr bool is_alone = false;
template <>
inline constexpr bool is_alone<SingleDevice> = true;

/// Makes buckets and units so small that a model has several.
template <class S>
typename S::Config in_small_parts() {
  typename S::Config config;
  if constexpr (requires { config.bucket_bytes; }) config.first_bucket_bytes = 512, config.bucket_bytes = 8192;
  if constexpr (requires { config.unit_bytes; }) config.unit_bytes = 0;
  if constexpr (requires { config.fsdp; }) config.fsdp.unit_bytes = 0, config.shard_size = 1;
  return config;
}

template <class S, class Optimizer = AdamW, class Precision = Float32>
void expect_same_course_stepped_in_backward(const CourseOptions& options) {
  for (const int world : {1, 2}) {
    if (is_alone<S> && world > 1) continue;
    SCOPED_TRACE("world of " + std::to_string(world));
    const auto after = train_course<S, Optimizer, Precision>(world, options, in_small_parts<S>());
    const auto inside =
        train_course<StepInBackward<S>, Optimizer, Precision>(world, options, in_small_parts<StepInBackward<S>>());
    expect_same_bits(inside, after);
    ASSERT_EQ(inside.norms.size(), after.norms.size());
    for (std::size_t i = 0; i < after.norms.size(); ++i)  // the norm is added up in another order
      EXPECT_NEAR(inside.norms[i], after.norms[i], 1e-6 * after.norms[i]) << "norm of step " << i + 1;
  }
}

const CourseOptions kPlain{.steps = 8, .dropout = 0.2, .clip = 0};

template <class S>
class StepsInBackward : public testing::Test {};
using Stepped = testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP, HSDP>;
TYPED_TEST_SUITE(StepsInBackward, Stepped);

TYPED_TEST(StepsInBackward, EqualStepsAfterIt) { expect_same_course_stepped_in_backward<TypeParam>(kPlain); }

TYPED_TEST(StepsInBackward, EqualStepsAfterItWithAScheduleAClipByValueAnAccumulationAndAResume) {
  auto options = kPlain;
  options.accumulation = 2;
  options.value_clip = 0.02;
  options.schedule = Schedule::cosine;
  options.stop_at = 5;
  expect_same_course_stepped_in_backward<TypeParam>(options);
}

TYPED_TEST(StepsInBackward, LeaveTheGradientsOutOfWhatARankHolds) {
  const auto world = is_alone<TypeParam> ? 1 : 2;
  const auto bytes = [&]<class S>(S*) {
    return static_cast<double>(train_course<S>(world, {.steps = 1, .clip = 0}).state_bytes);
  };
  const auto after = bytes(static_cast<TypeParam*>(nullptr)),
             inside = bytes(static_cast<StepInBackward<TypeParam>*>(nullptr));
  EXPECT_LT(inside, 0.9 * after);
}

TEST(StepInBackward, EqualsStepsOfSGDWithMomentumWhoseFirstStepIsSpecial) {
  struct WithDampening : SGD {
    static Config dampened(Config config) {
      config.momentum = 0.9;
      config.dampening = 0.1;
      return config;
    }
    WithDampening(const Config& config, std::span<const Slice> slices) : SGD{dampened(config), slices} {}
  };
  expect_same_course_stepped_in_backward<DDP, WithDampening>(kPlain);
}

TEST(StepInBackward, EqualsStepsInPrecisionsWithoutAScaledLoss) {
  expect_same_course_stepped_in_backward<DDP, AdamW, LowPrecision<>>(kPlain);
  expect_same_course_stepped_in_backward<FSDP, AdamW, LowPrecision<>>(kPlain);
}

TEST(StepInBackward, GoesAroundRecomputedLayersAndInsideOfThem) {
  const auto after = train_course<FSDP>(2, kPlain, {.unit_bytes = 0});
  expect_same_bits(train_course<StepInBackward<Recompute<FSDP>>>(2, kPlain, {.inner = {.unit_bytes = 0}}), after);
  expect_same_bits(train_course<Recompute<StepInBackward<FSDP>>>(2, kPlain, {.inner = {.unit_bytes = 0}}), after);
  expect_same_bits(train_course<Recompute<StepInBackward<DDP>>>(2, kPlain), train_course<DDP>(2, kPlain));
}

TEST(StepInBackward, IsRefusedTogetherWithAClipByTheNorm) {
  using Train = Trainer<GPT, Tokens, AdamW, Float32, StepInBackward<DDP>>;
  typename Train::Config config;  // by default the norm is clipped
  try {
    Train::check(config);  // a program can call check() before it has a group
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::StartsWith("training.grad_norm_clip: the norm is known when all gradients are "
                                                  "there, and StepInBackward has stepped the first of them by then"));
  }
  config.training.grad_norm_clip = 0;
  EXPECT_NO_THROW(Train::check(config));
  try {
    train_course<StepInBackward<DDP>>(2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::HasSubstr("training.grad_norm_clip: the norm is known"));
  }
}

template <class S>
void expect_list_of_buckets_is_refused(const typename S::Config& strategy) {
  using Train = Trainer<GPT, Tokens, AdamW, Float32, S>;
  typename Train::Config config;
  config.training.grad_norm_clip = 0;
  EXPECT_NO_THROW(Train::check(config));
  config.strategy = strategy;
  try {
    Train::check(config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(),
                 "bucket_bytes_list: StepInBackward cuts buckets by first_bucket_bytes and bucket_bytes; set those");
  }
}

TEST(StepInBackward, IsRefusedWithAListOfBucketSizesBeforeThereIsAGroup) {
  const DDPConfig listed{.bucket_bytes_list = {1024}};
  expect_list_of_buckets_is_refused<StepInBackward<DDP>>(listed);
  expect_list_of_buckets_is_refused<StepInBackward<DDPWith<PowerSGD>>>({.ddp = listed});
  expect_list_of_buckets_is_refused<StepInBackward<Recompute<DDP>>>({.inner = listed});
  expect_list_of_buckets_is_refused<Recompute<StepInBackward<DDP>>>({.inner = listed});
  Trainer<GPT, Tokens, AdamW, Float32, DDP>::Config alone;
  alone.strategy = listed;
  EXPECT_NO_THROW((Trainer<GPT, Tokens, AdamW, Float32, DDP>::check(alone)));
}

}  // namespace
}  // namespace ddpxx::step_in_backward_test
