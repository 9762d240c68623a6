// Buffers of a model travel together: one broadcast for each type, whatever their number.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::buffers_test {
namespace {

/// Buffers of three types, in mixed order; one is a transposed view, one is a scalar, one is empty.
std::vector<at::Tensor> buffers_of(double value) {
  return {at::full({2, 3}, value),
          at::full({}, value, at::kLong),
          at::full({3, 2}, value + 1).t(),
          at::full({4}, value > 1, at::kBool),
          at::zeros({0}),
          at::full({5}, value + 2, at::kLong)};
}

struct Normed : torch::nn::Module {
  Normed() {
    weight = register_parameter("weight", at::ones({4}));
    for (int i = 0; i < 3; ++i) {
      const auto number = std::to_string(i);
      register_buffer("mean" + number, at::zeros({4}));
      register_buffer("count" + number, at::zeros({}, at::kLong));
    }
  }
  at::Tensor weight;
};

TEST(Buffers, HaveTheValuesOfTheRootOnEveryRank) {
  spawn_ranks(3, [](Group& group) {
    for (const int root : {0, 2}) {
      const auto buffers = buffers_of(group.rank());
      broadcast_together(buffers, group, root);
      const auto expected = buffers_of(root);
      for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(at::equal(buffers[i], expected[i])) << i;
    }
  });
}

TEST(Buffers, ReachTheReplicasToo) {
  spawn_ranks(4, [](Group& group) {
    const int row = group.rank() / 2, column = group.rank() % 2;
    auto shards = group.split({.color = row, .rank = column, .size = 2});
    auto replicas = group.split({.color = column, .rank = row, .size = 2});
    const auto buffers = buffers_of(group.rank());
    const SharedBuffers shared{buffers, shards, BroadcastBuffers::once, &replicas};
    const auto expected = buffers_of(0);
    for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(at::equal(buffers[i], expected[i])) << i;
    replicas.leave();
    shards.leave();
  });
}

TEST(Buffers, AreSharedBetweenTwoStepsIfTheyAreSharedInEach) {
  spawn_ranks(2, [](Group& group) {
    for (const bool in_each_step : {true, false}) {
      Normed net;
      FlatModel flat{net};
      DDP ddp{{.broadcast_buffers = in_each_step}, group};
      ddp.attach(flat);
      for (auto& buffer : net.buffers()) buffer.fill_(group.rank() + 1);
      ddp.share_buffers();
      for (const auto& buffer : net.buffers())
        EXPECT_TRUE(buffer.eq(in_each_step ? 1 : group.rank() + 1).all().item<bool>());
    }
  });
}

TEST(Buffers, TakeOneBroadcastForEachType) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(1, 64, recording);
  broadcast_together(buffers_of(1), group);
  ASSERT_EQ(recording->count("broadcast"), 3);
  EXPECT_EQ(recording->calls[0].bytes, 12 * 4);
  EXPECT_EQ(recording->calls[1].bytes, 6 * 8);
  EXPECT_EQ(recording->calls[2].bytes, 4);

  Normed net;
  FlatModel flat{net};
  DDP ddp{{}, group};
  ddp.attach(flat);
  recording->calls.clear();
  ddp.begin_backward(Sync::now);
  EXPECT_EQ(recording->count("broadcast"), 2) << "six buffers of two types";
  ddp.give_buffers(3);
  EXPECT_EQ(recording->count("broadcast"), 4);
  group.leave();
}

TEST(Buffers, LeaveTheVersionsThatAutogradCompares) {
  auto group = recording_group(1, 2, std::make_shared<Recording>());
  const auto buffers = buffers_of(1);
  broadcast_together(buffers, group);
  for (const auto& buffer : buffers) EXPECT_EQ(buffer._version(), at::full({1}, 1.0)._version());
  Group alone;
  broadcast_together(buffers, alone);
  group.leave();
}

}  // namespace
}  // namespace ddpxx::buffers_test
