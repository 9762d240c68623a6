// A recording group stands for thousands of ranks: a step must send exactly the collectives that theory predicts.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>

namespace ddpxx::recording_test {
namespace {

constexpr int kLayers = 3, kWidth = 24;

struct Block : torch::nn::Module, Layer {
  Block() {
    weight = register_parameter("weight", at::rand({kWidth, kWidth}));
    bias = register_parameter("bias", at::rand({kWidth}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias).tanh(); }
  at::Tensor weight, bias;
};

struct Net : torch::nn::Module {
  Net() {
    at::manual_seed(7);
    scale = register_parameter("scale", at::rand({4, kWidth}));
    for (int i = 0; i < kLayers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return run(blocks, at::matmul(x, scale)).square().sum();
  }
  at::Tensor scale;
  std::vector<std::shared_ptr<Block>> blocks;
};

template <class S>
void step(S& strategy, Net& net) {
  const auto x = at::arange(8, at::kFloat).view({2, 4}) * 0.1;
  strategy.begin_backward(Sync::now);
  strategy.forward(net, x, [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch); })
      .backward();
  strategy.finish_backward();
  strategy.finish_step();
}

/// The bytes of a unit whose parameters have these sizes: rows of 64 bytes, cut into pieces of whole rows.
std::int64_t padded_bytes(std::initializer_list<std::int64_t> parameters, std::int64_t pieces) {
  std::int64_t rows = 0;
  for (const auto numel : parameters) rows += (numel * 4 + 63) / 64;
  return (rows + pieces - 1) / pieces * pieces * 64;
}

TEST(RecordingGroup, WritesDownEveryCallAndIsDoneAtOnce) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(5, 4096, recording);
  EXPECT_EQ(group.rank(), 5);
  EXPECT_EQ(group.size(), 4096);
  auto sum = at::full({3}, 2.0);
  all_reduce(sum, group);
  EXPECT_TRUE(at::equal(sum, at::full({3}, 8192.0))) << "a recording group assumes that all ranks hold equal values";
  auto least = at::full({3}, 2.0);
  all_reduce(least, group, Reduce::min);
  EXPECT_TRUE(at::equal(least, at::full({3}, 2.0)));
  auto whole = at::zeros({2 * 4096}), piece = at::full({2}, 3.0);
  all_gather(whole, piece, group);
  EXPECT_TRUE(at::equal(whole, at::full({2 * 4096}, 3.0)));
  reduce_scatter(piece, at::arange(2 * 4096, at::kFloat), group);
  EXPECT_TRUE(at::equal(piece, at::tensor({10.0F * 4096, 11.0F * 4096}))) << "expected the piece of rank 5";
  broadcast(piece, group);
  barrier(group);

  std::vector<std::string> calls;
  for (const auto& call : recording->calls) calls.push_back(std::string{call.op} + ' ' + std::to_string(call.bytes));
  EXPECT_EQ(calls, (std::vector<std::string>{"all_reduce 12", "all_reduce 12", "all_gather 32768",
                                             "reduce_scatter 32768", "broadcast 8", "barrier 0"}));
  group.leave();
  EXPECT_EQ(group.size(), 1);
}

TEST(RecordingGroup, TheTextOfEveryRankIsMine) {
  auto group = recording_group(1, 300, std::make_shared<Recording>());
  EXPECT_EQ(all_gather_text("what I hold", group), std::vector<std::string>(300, "what I hold"));
  EXPECT_EQ(broadcast_text("mine", group, 1), "mine");
  on_rank_zero(group, Errc::config, [] { FAIL() << "this is rank 1"; });
  group.leave();
}

TEST(RecordingGroup, ItsPartsRecordToTheSamePlace) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(9, 64, recording);
  auto part = group.split({.color = 1, .rank = 1, .size = 8});
  EXPECT_EQ(part.rank(), 1);
  EXPECT_EQ(part.size(), 8);
  barrier(part);
  ASSERT_EQ(recording->calls.size(), 1u);
  EXPECT_EQ(recording->calls[0].ranks, 8);
  part.leave();
  group.leave();
}

TEST(RecordingGroup, RankFiveOf4096SendsTheBytesThatTheoryPredictsForFSDP) {
  constexpr int kWorld = 4096;
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(5, kWorld, recording);
  Net net;
  FlatModel flat{net};
  FSDP fsdp{{.unit_bytes = 0}, group};
  fsdp.attach(flat);
  const auto layer = padded_bytes({kWidth * kWidth, kWidth}, kWorld), root = padded_bytes({4 * kWidth}, kWorld);
  EXPECT_EQ(recording->bytes("broadcast"), kLayers * layer + root) << "rank 0's parameters are sent to all ranks once";
  for (int i = 0; i < 3; ++i) {
    recording->calls.clear();
    step(fsdp, net);
    // Each layer is gathered in forward and in backward, the root once. Once the order is known, the last layer is
    // still gathered when backward begins.
    const auto layers = 2 * kLayers - (i > 0 ? 1 : 0);
    EXPECT_EQ(recording->count("all_gather"), layers + 1);
    EXPECT_EQ(recording->bytes("all_gather"), layers * layer + root);
    EXPECT_EQ(recording->count("reduce_scatter"), kLayers + 1);
    EXPECT_EQ(recording->bytes("reduce_scatter"), kLayers * layer + root);
    EXPECT_EQ(recording->calls.size(), static_cast<std::size_t>(layers + kLayers + 2)) << "another collective was sent";
  }
  group.leave();
}

/// A collective that fails because its peer has left.
class FailedWork : public detail::DoneWork {
 public:
  FailedWork() : DoneWork{std::make_shared<Recording>(), 0} {}
  bool wait(std::chrono::milliseconds) override { throw std::runtime_error{"connection reset"}; }
};
class FailingGathers : public detail::RecordingBackend {
 public:
  explicit FailingGathers(std::shared_ptr<const bool> fails)
      : RecordingBackend{0, 2, std::make_shared<Recording>()}, fails_{std::move(fails)} {}
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto work = RecordingBackend::_allgather_base(output, input, options);
    if (*fails_) return c10::make_intrusive<FailedWork>();
    return work;
  }

 private:
  std::shared_ptr<const bool> fails_;
};

template <class S>
class FailedGather : public testing::Test {};
using Gathering = testing::Types<FSDP, ZeRO1>;
TYPED_TEST_SUITE(FailedGather, Gathering);

TYPED_TEST(FailedGather, FailsAgainAndShowsNoHalfFilledValues) {
  const auto fails = std::make_shared<bool>(false);
  Group group{c10::make_intrusive<FailingGathers>(fails)};
  Net net;
  {
    FlatModel flat{net};
    TypeParam strategy{{}, group};
    strategy.attach(flat);
    *fails = true;
    strategy.finish_step();  // with ZeRO this starts the gathers
    const auto gather = [&] { [[maybe_unused]] const auto whole = strategy.gathered(); };
    EXPECT_THROW(gather(), Error);
    EXPECT_THROW(gather(), Error) << "the gathered values are incomplete";
    EXPECT_THROW(static_cast<void>(net.scale.detach().clone()), c10::Error);
  }
  EXPECT_THROW(static_cast<void>(net.scale.detach().clone()), c10::Error)
      << "the parameter was readable after the strategy was destroyed";
  group.leave();
}

TEST(RecordingGroup, SmallLayersAreGatheredTogether) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(1, 2, recording);
  Net net;
  FlatModel flat{net};
  FSDP fsdp{{}, group};
  fsdp.attach(flat);
  step(fsdp, net);
  recording->calls.clear();
  step(fsdp, net);
  EXPECT_EQ(recording->count("all_gather"), 2) << "one all-gather for the layers and one for the root";
  EXPECT_EQ(recording->count("reduce_scatter"), 2);
  group.leave();
}

TEST(RecordingGroup, HSDPGathersInsideANodeAndSumsPiecesAcrossNodes) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(13, 4096, recording);
  Net net;
  FlatModel flat{net};
  HSDP hsdp{{.shard_size = 8, .fsdp = {.unit_bytes = 0}}, group};
  hsdp.attach(flat);
  recording->calls.clear();
  step(hsdp, net);
  const auto layer = padded_bytes({kWidth * kWidth, kWidth}, 8), root = padded_bytes({4 * kWidth}, 8);
  EXPECT_EQ(recording->bytes("all_gather"), 2 * kLayers * layer + root);
  EXPECT_EQ(recording->bytes("reduce_scatter"), kLayers * layer + root);
  EXPECT_EQ(recording->bytes("all_reduce"), (kLayers * layer + root) / 8);
  for (const auto& call : recording->calls) EXPECT_EQ(call.ranks, call.op == "all_reduce" ? 512 : 8) << call.op;
  group.leave();
}

TEST(RecordingGroup, ARankOf4096EqualRanksGetsTheGradientsOfOneProcess) {
  auto group = recording_group(5, 4096, std::make_shared<Recording>());
  Group alone;
  Net of_many, of_one;
  FlatModel flat_many{of_many}, flat_one{of_one};
  DDP ddp{{}, group};
  SingleDevice single{{}, alone};
  ddp.attach(flat_many);
  single.attach(flat_one);
  step(ddp, of_many);
  step(single, of_one);
  EXPECT_TRUE(at::equal(ddp.trainable().gradients(), single.trainable().gradients()));
  group.leave();
}

}  // namespace
}  // namespace ddpxx::recording_test
