// FSDP and HSDP refuse ranks that call different layers, and shard sizes that do not divide the number of ranks.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"

namespace ddpxx::fsdp_errors_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

/// The order in which a rank's model calls its blocks in a step.
using Path = std::vector<std::size_t>;
constexpr std::int64_t kWidth = 8;

struct Rows {
  std::int64_t size() const { return 64; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto n = static_cast<std::int64_t>(indices.size());
    return {at::ones({n, kWidth}), at::zeros({n, kWidth}), n};
  }
};

struct Block : torch::nn::Module, Layer {
  Block() { weight = register_parameter("weight", at::eye(kWidth)); }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).tanh(); }
  at::Tensor weight;
};

/// The blocks have equal sizes, so that only the comparison of calls can detect a wrong order. From step `from` on, the
/// blocks are called in the order `other`.
struct Net : torch::nn::Module {
  Net(Path other_path, int from_step) : other{std::move(other_path)}, from{from_step} {
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    auto x = batch.inputs;
    for (const auto i : ++step >= from ? other : Path{0, 1, 2, 3}) x = run(*blocks[i], x);
    return {(x - batch.targets).square().sum()};
  }
  Path other;
  int from;
  int step = 0;
  std::vector<std::shared_ptr<Block>> blocks;
};

/// The error of a run in which the model of the last rank uses another order from step `from` on.
template <class Strategy>
Error error_of_run(int world_size, const Path& other, int from, const typename Strategy::Config& strategy) {
  try {
    spawn_ranks(world_size, [&](Group& group) {
      using Train = Trainer<Net, Rows, SGD, Float32, Strategy>;
      typename Train::Config config;
      config.batch_size = 2;
      config.training = {.max_steps = 8, .max_epochs = 0};
      config.strategy = strategy;
      const bool odd = group.rank() + 1 == world_size;
      Train{group, std::make_shared<Net>(odd ? other : Path{0, 1, 2, 3}, from), std::make_shared<const Rows>(), config}
          .fit();
    });
  } catch (const Error& error) {
    return error;
  }
  return {Errc::config, "the run ended well"};
}

const Path kSwapped{0, 2, 1, 3}, kShorter{0, 2, 3};

TEST(DifferentLayers, AreNamedBeforeTheyRunIfCallsAreChecked) {
  for (const std::int64_t unit_bytes : {0, 1 << 20})
    for (const auto& other : {kSwapped, kShorter}) {
      const auto error = error_of_run<FSDP>(2, other, /*from=*/3, {.unit_bytes = unit_bytes, .check_calls = true});
      EXPECT_EQ(error.code(), Errc::peer);
      for (const char* rank : {"rank 0: ", "rank 1: "})
        EXPECT_THAT(error.what(),
                    HasSubstr(std::string{rank} + "the ranks run different layers: rank 0 is at the call of layer 2, "
                                                  "rank 1 at the call of layer 3; a model must call the same layers"));
    }
}

void expect_ended_by_its_step(const Error& error, int world_size, int step) {
  EXPECT_EQ(error.code(), Errc::peer);
  for (int rank = 0; rank < world_size; ++rank)
    EXPECT_THAT(error.what(),
                ContainsRegex("rank " + std::to_string(rank) +
                              ": the ranks did not call the same layers in the same order, [^\n]*; step=" +
                              std::to_string(step)));
}

TEST(DifferentLayers, EndTheRunOnEveryRankWithTheirStep) {
  for (const int from : {1, 3}) {
    expect_ended_by_its_step(error_of_run<FSDP>(3, kSwapped, from, {.unit_bytes = 0}), 3, from);
    // The blocks share a unit, so their order does not change the collectives.
    expect_ended_by_its_step(error_of_run<FSDP>(3, kSwapped, from, {}), 3, from);
  }
  expect_ended_by_its_step(error_of_run<HSDP>(4, kSwapped, 2, {.shard_size = 2, .fsdp = {.unit_bytes = 0}}), 4, 2);
}

/// Calls three blocks; the loss depends on the last one and on block `used`.
struct Branches : torch::nn::Module {
  explicit Branches(std::size_t used_block) : used{used_block} {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    std::vector<at::Tensor> outputs;
    for (const auto& block : blocks) outputs.push_back(run(*block, batch.inputs));
    return {outputs.at(used).sum() + outputs.back().sum()};
  }
  std::size_t used;
  std::vector<std::shared_ptr<Block>> blocks;
};

TEST(DifferentLayers, EndTheRunIfTheLossesUseThem) {
  const auto error_of_losses = [](std::size_t used_by_last_rank) {
    try {
      spawn_ranks(2, [&](Group& group) {
        using Train = Trainer<Branches, Rows, SGD, Float32, FSDP>;
        Train::Config config;
        config.batch_size = 2;
        config.training = {.max_steps = 4, .max_epochs = 0};
        config.strategy.unit_bytes = 0;
        const auto used = group.rank() == 1 ? used_by_last_rank : 0;
        Train{group, std::make_shared<Branches>(used), std::make_shared<const Rows>(), config}.fit();
      });
    } catch (const Error& error) {
      return error;
    }
    return Error{Errc::config, "the run ended well"};
  };
  expect_ended_by_its_step(error_of_losses(1), 2, 1);
  EXPECT_STREQ(error_of_losses(0).what(), "the run ended well");
}

/// The error of attaching a small model to a strategy.
template <class Strategy>
Error error_of_attach(int world_size, const typename Strategy::Config& config) {
  try {
    spawn_ranks(world_size, [&](Group& group) {
      Net net{{}, 0};
      FlatModel flat{net};
      barrier(group);  // a rank that exited now would keep the others from connecting
      Strategy strategy{config, group};
      strategy.attach(flat);
    });
  } catch (const Error& error) {
    return error;
  }
  return {Errc::peer, "nothing was refused"};
}

TEST(ShardSize, MustDivideTheWorld) {
  for (const std::int64_t size : {std::int64_t{2}, std::int64_t{4}, std::int64_t{1} << 40}) {
    const auto error = error_of_attach<HSDP>(3, {.shard_size = size, .fsdp = {}});
    EXPECT_EQ(error.code(), Errc::config);
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "})
      EXPECT_THAT(error.what(), HasSubstr(std::string{rank} + "shard_size=" + std::to_string(size) +
                                          " does not divide the world of 3 ranks: choose a divisor"));
  }
}

TEST(ReshardAfterForward, MustDivideTheRanksThatShareAModel) {
  const auto expect_named = [](const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "})
      EXPECT_THAT(error.what(), HasSubstr(std::string{rank} + "reshard_after_forward=2 does not divide the 3 ranks "
                                                              "that share a model: choose a divisor"));
  };
  expect_named(error_of_attach<FSDP>(3, {.reshard_after_forward = "2"}));
  expect_named(error_of_attach<HSDP>(3, {.shard_size = 3, .fsdp = {.reshard_after_forward = "2"}}));
}

TEST(ReshardAfterForward, IsTrueFalseOrANumber) {
  for (const char* text : {"maybe", "0", "-2", "2x", ""}) {
    const auto refusal =
        "reshard_after_forward: \"" + std::string{text} + "\" is none of true, false, a number of ranks";
    const auto error = error_of_attach<FSDP>(2, {.reshard_after_forward = text});
    EXPECT_EQ(error.code(), Errc::config);
    for (const char* rank : {"rank 0: ", "rank 1: "}) EXPECT_THAT(error.what(), HasSubstr(rank + refusal)) << text;
    const auto checked = FSDPConfig{.reshard_after_forward = text}.check();
    ASSERT_EQ(checked.size(), 1U) << text;
    EXPECT_EQ(checked[0].field + ": " + checked[0].text, refusal);
  }
}

TEST(ParametersOfLayers, CannotBeTrainedOutsideOfTheirCall) {
  spawn_ranks(2, [](Group& group) {
    Net net{Path{0, 1, 2, 3}, 1};
    FlatModel flat{net};
    FSDP strategy{{.unit_bytes = 0}, group};
    strategy.attach(flat);
    const auto use = [&] {
      strategy.begin_backward(Sync::now);
      const auto whole = strategy.gathered();
      net.blocks[1]->weight.square().sum().backward();
    };
    EXPECT_EQ(code_of(use), Errc::config);
    EXPECT_EQ(error_of(use),
              "parameter \"block1.weight\" was used outside of its layer's call: FSDP cannot shard it there; use it "
              "inside the layer's forward");
  });
}

/// The error of a second step, before which `change` has changed the model; `prepare` did before the trainer was made.
template <class Strategy, class Prepare, class Change>
std::string error_after(const Prepare& prepare, const Change& change) {
  try {
    spawn_ranks(2, [&](Group& group) {
      using Train = Trainer<Net, Rows, SGD, Float32, Strategy>;
      typename Train::Config config;
      config.batch_size = 2;
      config.training = {.max_steps = 8, .max_epochs = 0};
      if constexpr (requires { config.strategy.find_unused_parameters; }) config.strategy.find_unused_parameters = true;
      const auto net = std::make_shared<Net>(Path{0, 1, 2, 3}, 1);
      prepare(*net);
      Train trainer{group, net, std::make_shared<const Rows>(), config};
      trainer.step();
      change(*net);
      trainer.step();
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChangedModel, IsRefusedWhereTheTrainerWouldNotNotice) {
  const auto nothing = [](Net&) {};
  const auto freeze = [](Net& net) { net.blocks[1]->weight.set_requires_grad(false); };
  const auto unfreeze = [](Net& net) { net.blocks[1]->weight.set_requires_grad(true); };
  const auto hook = [](Net& net) { net.blocks[1]->weight.register_hook([](const at::Tensor& g) { return 2 * g; }); };
  EXPECT_EQ(error_after<DDP>(nothing, freeze), "no error") << "its gradients are zeros";
  EXPECT_THAT(error_after<DDP>(freeze, unfreeze), HasSubstr("\"block1.weight\" was unfrozen after"));
  EXPECT_THAT(error_after<FSDP>(nothing, freeze), HasSubstr("\"block1.weight\" was frozen after"));
  EXPECT_THAT(error_after<FSDP>(freeze, unfreeze), HasSubstr("\"block1.weight\" was unfrozen after"));
  EXPECT_THAT(error_after<FSDP>(nothing, hook), HasSubstr("\"block1.weight\" has a hook from register_hook()"));
  EXPECT_EQ(error_after<FSDP>(nothing,
                              [](Net& net) {
                                auto weight = net.blocks[1]->weight;
                                weight.remove_hook(weight.register_hook([](const at::Tensor& g) { return 2 * g; }));
                              }),
            "no error");
  EXPECT_EQ(error_after<DDP>(nothing, hook), "no error");
}

/// A layer that returns its second argument as it was, as decoders do with what an encoder has read.
struct Decoder : torch::nn::Module, Layer {
  Decoder() { weight = register_parameter("weight", at::eye(kWidth)); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& memory) {
    return {at::linear(x + memory, weight).tanh(), memory};
  }
  at::Tensor weight;
};
/// Records which decoders have their values while the encoder's backward runs.
struct Reader : torch::nn::Module {
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    auto read = batch.inputs.clone().requires_grad_();
    read.register_hook([this](const at::Tensor&) {
      whole = 0;
      for (const auto& decoder : decoders) whole += is_hollow(decoder->weight) ? 0 : 1;
    });
    auto memory = run(*encoder, read), x = batch.inputs;
    for (const auto& decoder : decoders) std::tie(x, memory) = run(*decoder, x, memory);
    return {(x - batch.targets).square().sum()};
  }
  std::shared_ptr<Block> encoder = register_module("encoder", std::make_shared<Block>());
  std::vector<std::shared_ptr<Decoder>> decoders{register_module("first", std::make_shared<Decoder>()),
                                                 register_module("second", std::make_shared<Decoder>())};
  int whole = -1;
};

/// Eight blocks, whose cast weights together take more memory than the rest.
struct Wide : torch::nn::Module {
  static constexpr std::int64_t kSize = 256;
  struct Square : torch::nn::Module, Layer {
    at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }
    at::Tensor weight = register_parameter("weight", at::eye(kSize));
  };
  Wide() {
    for (int i = 0; i < 8; ++i)
      squares.push_back(register_module("square" + std::to_string(i), std::make_shared<Square>()));
  }
  template <class Run>
  Loss forward(Run& run, const at::Tensor& rows) {
    auto x = rows;
    for (const auto& square : squares) x = run(*square, x);
    held = live.current();
    return {x.sum()};
  }
  std::vector<std::shared_ptr<Square>> squares;
  LiveBytes live;
  std::int64_t held = 0;
};

TEST(FSDPMemory, HoldsNoCastWeightsInAnEvaluation) {
  spawn_ranks(2, [](Group& group) {
    const auto net = std::make_shared<Wide>();
    FlatModel flat{*net};
    FSDP strategy{{.unit_bytes = 0}, group};
    strategy.attach(flat);
    const c10::NoGradGuard no_gradients;
    const auto evaluate = [&] {
      const auto scope = AutocastBF16{{}}.forward_scope(at::kCPU);
      const auto loss =
          strategy.forward(*net, at::ones({2, Wide::kSize}),
                           [](auto& model, auto& run, const auto& rows) { return model.forward(run, rows).sum; });
      EXPECT_EQ(loss.template item<float>(), 2.0F * Wide::kSize);
    };
    evaluate();  // fills the pools
    const auto before = net->live.current();
    evaluate();
    constexpr std::int64_t kCast = 2 * Wide::kSize * Wide::kSize;
    EXPECT_LT(net->held - before, 4 * kCast) << "casts of eight weights are held";
  });
}

TEST(FSDPMemory, HoldsNoLayerBehindItsBackwardThatReturnsAnArgumentOrWasNotFollowedByBackward) {
  spawn_ranks(2, [&](Group& group) {
    const auto net = std::make_shared<Reader>();
    FlatModel flat{*net};
    FSDP strategy{{.unit_bytes = 0}, group};
    strategy.attach(flat);
    const auto loss_of = [&] {
      return strategy.forward(*net, Rows{}.batch(std::array<std::int64_t, 2>{0, 1}),
                              [](auto& model, auto& run, const auto& batch) { return model.forward(run, batch).sum; });
    };
    for (const bool has_forward_alone : {false, true}) {
      if (has_forward_alone) loss_of();
      strategy.begin_backward(Sync::now);
      loss_of().backward();
      EXPECT_EQ(net->whole, 0) << "decoders are whole in the encoder's backward"
                               << (has_forward_alone ? ", after a forward pass alone" : "");
      strategy.finish_backward();
      strategy.finish_step();
    }
  });
}

}  // namespace
}  // namespace ddpxx::fsdp_errors_test
