// Copies of the parameters on several ranks are compared bit by bit, under each strategy that has any.
#include <cmath>
#include <cstdint>
#include <string>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/replicas.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::replicas_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

static_assert(HoldsReplicas<StepInBackward<DDP>> && HoldsReplicas<Recompute<HSDP>>);
static_assert(!HoldsReplicas<SingleDevice> && !HoldsReplicas<FSDP> && !HoldsReplicas<DDPWith<NoSync>>);

struct Net : torch::nn::Module {
  Net() {
    at::manual_seed(7);
    weight = register_parameter("weight", at::rand({4, 5}));
    bias = register_parameter("bias", at::rand({5}));
    table = register_parameter("table", at::rand({5, 3}), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(at::matmul(x, weight) + bias, table).square().sum(); }
  at::Tensor weight, bias, table;
};

template <class Strategy>
void take_step(Strategy& strategy, Net& net, const Group& group) {
  strategy.begin_backward(Sync::now);
  strategy
      .forward(net, at::full({2, 4}, 0.1 * (group.rank() + 1)),
               [](auto& model, auto& /*run*/, const auto& x) { return model.forward(x); })
      .backward();
  strategy.finish_backward();
  const c10::NoGradGuard no_grad;
  for (const auto& slice : strategy.slices()) at::Tensor{slice.values}.sub_(slice.gradients, 0.1);
  strategy.finish_step();
}

void flip_lowest_bit(const at::Tensor& tensor) { *static_cast<std::uint8_t*>(tensor.mutable_data_ptr()) ^= 1U; }

/// After two steps, flips a bit of the parameter on one rank; expects that all ranks find it, and nothing before.
template <class Strategy>
void expect_found(int ranks, const typename Strategy::Config& config, int faulty, const std::string& parameter,
                  const std::string& text) {
  spawn_ranks(ranks, [&](Group& group) {
    Net net;
    FlatModel flat{net};
    Strategy strategy{config, group};
    strategy.attach(flat);
    const auto difference = [&] { return difference_of_replicas(strategy.replicas(), group); };
    for (int step = 0; step < 2; ++step) {
      take_step(strategy, net, group);
      EXPECT_THAT(difference(), IsEmpty());
    }
    const auto replicas = strategy.replicas();
    for (const auto& [name, values] : replicas.values)
      if (name == parameter && group.rank() == faulty) flip_lowest_bit(values);
    EXPECT_THAT(difference(), HasSubstr(text));
  });
}

template <class Strategy>
class ComparedReplicas : public testing::Test {};
using Strategies = testing::Types<DDP, ZeRO1, ZeRO2>;
TYPED_TEST_SUITE(ComparedReplicas, Strategies);

TYPED_TEST(ComparedReplicas, AreEqualUntilABitOfOneRankChanges) {
  for (const char* parameter : {"weight", "bias", "table"})
    expect_found<TypeParam>(
        3, {}, 1, parameter,
        "rank 1 holds other values than rank 0 in parameter \"" + std::string{parameter} + "\"; 2 of the 3 ranks");
}

TEST(DifferenceOfReplicas, ComparesShardsWithinTheirColumn) {
  expect_found<HSDP>(4, {.shard_size = 2}, 3, "weight",
                     "rank 3 holds other values than rank 1 in parameter \"weight\"; 1 of the 2 ranks");
  expect_found<HSDP>(4, {.shard_size = 2}, 2, "table",
                     "rank 2 holds other values than rank 0 in parameter \"table\"; 1 of the 2 ranks");
}

// Values that differ between the rows stand for rows whose collectives add in another order.
TEST(SumOverShards, HasTheSameBitsInAllRows) {
  spawn_ranks(4, [](Group& group) {
    Net net;
    FlatModel flat{net};
    HSDP strategy{{.shard_size = 2}, group};
    strategy.attach(flat);
    const float value = group.rank() < 2 ? 1.0F : std::nextafter(1.0F, 2.0F);
    const auto sum = strategy.sum_over_shards(at::full({}, value)).item<float>();
    EXPECT_EQ(sum, 2.0F) << "on rank " << group.rank();
  });
}

TEST(DifferenceOfReplicas, TakesThoseOfMostRanksForTheRightOnes) {
  expect_found<DDP>(3, {}, 0, "bias", "rank 0 holds other values than rank 1 in parameter \"bias\"; 2 of the 3 ranks");
}

TEST(DifferenceOfReplicas, CoversFrozenParametersThatTheModelHoldsIn16Bits) {
  spawn_ranks(2, [](Group& group) {
    Net net;
    FlatModel flat{net, {}, {.parameters = at::kBFloat16}};
    DDP strategy{{}, group};
    strategy.attach(flat);
    EXPECT_THAT(difference_of_replicas(strategy.replicas(), group), IsEmpty());
    if (group.rank() == 1) flip_lowest_bit(net.table);
    EXPECT_THAT(difference_of_replicas(strategy.replicas(), group), HasSubstr("in parameter \"table\""));
  });
}

TEST(DifferenceOfReplicas, CountsTheParametersThatDiffer) {
  spawn_ranks(2, [](Group& group) {
    const auto zero = at::zeros({3}), other = at::full({3}, group.rank() == 0 ? 0.0 : -0.0);
    EXPECT_THAT(difference_of_replicas({{{"a", zero}, {"b", zero}}}, group), IsEmpty());
    EXPECT_THAT(difference_of_replicas({{{"a", zero}, {"b", other}, {"c", other}}}, group),
                HasSubstr("in 2 parameters, first in \"b\"; 1 of the 2 ranks"));
    EXPECT_THAT(difference_of_replicas({{{"a", other}}, group.rank()}, group), IsEmpty()) << "they hold other pieces";
  });
}

}  // namespace
}  // namespace ddpxx::replicas_test
