// Parameter groups with their own learning rates and weight decays train alike under every strategy.
#include <string>

#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/muon.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>

#include "tiny_run.hpp"

namespace ddpxx::parameter_groups_test {
namespace {

/// Groups that lie inside of layers, outside of them, and across, and a schedule. Nothing is clipped: the norm is
/// summed in another order by each strategy.
const CourseOptions kGroups{
    .steps = 8,
    .clip = 0,
    .schedule = Schedule::cosine,
    .groups = {.learning_rate = {{"*.ln_?.*", 2e-2}, {"transformer.wte.*", 0}, {"transformer.h.1.*", 1e-3}},
               .weight_decay = {{"*.bias", 0}, {"lm_head.*", 0.9}, {"transformer.wte.*", 0.5}}}};

TEST(ParameterGroups, StepAlikeUnderEachStrategyOfTwoRanks) {
  const auto ddp = train_course<DDP>(2, kGroups);
  expect_same_course(train_course<SingleDevice>(1, kGroups), ddp);
  expect_same_bits(train_course<ZeRO1>(2, kGroups), ddp);
  expect_same_bits(train_course<ZeRO2>(2, kGroups, {.first_bucket_bytes = 512, .bucket_bytes = 8192}), ddp);
  expect_same_bits(train_course<FSDP>(2, kGroups), ddp);
  expect_same_bits(train_course<FSDP>(2, kGroups, {.unit_bytes = 0}), ddp);
  expect_same_bits(train_course<HSDP>(2, kGroups, {.shard_size = 1, .fsdp = {}}), ddp);
  expect_same_bits(train_course<Recompute<FSDP>>(2, kGroups), ddp);
  expect_same_bits(train_course<StepInBackward<ZeRO2>>(2, kGroups), ddp);
  expect_same_bits(train_course<StepInBackward<FSDP>>(2, kGroups), ddp);
}

TEST(ParameterGroups, StepAlikeByOptimizersOfWholeParametersAndMatrices) {
  const auto lamb = train_course<DDP, LAMB>(2, kGroups);
  expect_same_course(train_course<FSDP, LAMB>(2, kGroups), lamb);
  expect_same_bits(train_course<FSDP, Muon>(2, kGroups), train_course<DDP, Muon>(2, kGroups));
}

TEST(ParameterGroups, GoOnFromASnapshotBitForBit) {
  auto options = kGroups;
  options.stop_at = 3;
  expect_same_bits(train_course<FSDP>(2, options), train_course<FSDP>(2, kGroups));
}

TEST(ParameterGroups, LeaveAParameterAsItIsWithALearningRateOfZero) {
  const auto course = train_course<ZeRO1>(2, kGroups);
  at::manual_seed(3);
  const GPT initial{{.n_layer = 3, .n_head = 2, .n_embd = 20, .dropout = 0.0}, 17, 12};
  for (const auto& item : initial.named_parameters()) {
    const bool is_equal = at::equal(course.state.at("model." + item.key()), item.value());
    EXPECT_EQ(is_equal, item.key() == "transformer.wte.weight") << item.key();
  }
}

TEST(ParameterGroups, TrainAsOneLearningRateIfAllNamesHaveThatOfTheOptimizer) {
  auto options = kGroups;
  options.groups = {};
  const auto plain = train_course<SingleDevice, SGD>(1, options);
  options.groups = {.learning_rate = {{"*", 0.03}}};
  expect_same_course(train_course<SingleDevice, SGD>(1, options), plain);
  options.groups = {.learning_rate = {{"*", 0.01}}};
  const auto other = train_course<SingleDevice, SGD>(1, options);
  EXPECT_NE(other.losses, plain.losses);
}

}  // namespace
}  // namespace ddpxx::parameter_groups_test
