// Snapshots can be exchanged between StepInBackward<S> and S.
#include <cstdint>
#include <type_traits>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "training_run.hpp"

namespace ddpxx::step_in_backward_resume_test {
namespace {

template <class S>
class ResumedInBackward : public TrainingRun {
 protected:
  static constexpr int kRanks = std::is_same_v<S, SingleDevice> ? 1 : 2;

  /// Makes buckets and units so small that a model has several.
  static typename S::Config in_small_parts() {
    typename S::Config config;
    if constexpr (requires { config.bucket_bytes; }) config.first_bucket_bytes = 512, config.bucket_bytes = 8192;
    if constexpr (requires { config.unit_bytes; }) config.unit_bytes = 0;
    if constexpr (requires { config.fsdp; }) config.fsdp.unit_bytes = 0, config.shard_size = 1;
    return config;
  }
  template <class Strategy>
  void train_to(std::int64_t step) {
    this->template train<Strategy>(kRanks, {.max_steps = step, .dropout = 0.2, .grad_norm_clip = 0.0},
                                   in_small_parts());
  }
};
using Strategies = testing::Types<SingleDevice, DDP, ZeRO1, ZeRO2, FSDP, HSDP>;
TYPED_TEST_SUITE(ResumedInBackward, Strategies);

TYPED_TEST(ResumedInBackward, OrAfterItIsTheSameRunBitForBit) {
  using Inside = StepInBackward<TypeParam>;
  this->template train_to<TypeParam>(8);
  const auto expected = this->snapshot();
  const auto expected_losses = this->losses();
  ASSERT_EQ(expected_losses.size(), 8U);
  this->forget();
  this->template train_to<TypeParam>(3);
  this->template train_to<Inside>(6);
  this->template train_to<TypeParam>(8);
  expect_same_bits(this->snapshot(), expected);
  EXPECT_EQ(this->losses(), expected_losses);
  this->forget();
  this->template train_to<Inside>(5);
  this->template train_to<TypeParam>(6);
  this->template train_to<Inside>(8);
  expect_same_bits(this->snapshot(), expected);
  EXPECT_EQ(this->losses(), expected_losses);
}

}  // namespace
}  // namespace ddpxx::step_in_backward_resume_test
