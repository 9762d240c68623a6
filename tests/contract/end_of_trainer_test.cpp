// After its trainer has ended, a model is whole and equal on all ranks, or each use of it throws a clear error.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/hooks/post_local_sgd.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::end_of_trainer_test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kWidth = 8;

/// Sample i is a row of numbers that depends only on i.
struct Rows {
  std::int64_t size() const { return 64; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto inputs = ((rows * 5 + at::arange(kWidth) * 3) % 13 - 6).to(at::kFloat) / 13;
    return {inputs, inputs.square().sum(1), rows.size(0)};
  }
};

struct Block : torch::nn::Cloneable<Block>, Layer {
  Block() { reset(); }
  void reset() override { weight = register_parameter("weight", at::randn({kWidth, kWidth}) / 3); }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).tanh(); }
  at::Tensor weight;
};
struct Network : torch::nn::Cloneable<Network> {
  Network() { reset(); }
  void reset() override {
    blocks.clear();
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    frozen = register_parameter("frozen", at::randn({kWidth, kWidth}), /*requires_grad=*/false);
    out = register_parameter("out", at::randn({1, kWidth}) / 3);
  }
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    if (forwards_left-- == 0) throw std::runtime_error{"forward fails"};
    auto x = at::linear(batch.inputs, frozen);
    for (const auto& block : blocks) x = run(*block, x);
    return {(at::linear(x, out).squeeze(1) - batch.targets).square().sum()};
  }
  std::vector<std::shared_ptr<Block>> blocks;
  at::Tensor frozen, out;
  int forwards_left = -1;
};

std::shared_ptr<Network> make_model() {
  at::manual_seed(3);
  return std::make_shared<Network>();
}

template <class S>
using Train = Trainer<Network, Rows, AdamW, Float32, S>;

template <class S>
typename Train<S>::Config make_config(const Group& group, std::int64_t steps) {
  typename Train<S>::Config config;
  config.batch_size = 8 / group.size();
  config.training = {.max_steps = steps, .max_epochs = 0, .seed = 5, .grad_norm_clip = 0};
  config.optimizer.learning_rate = 1e-2;
  if constexpr (requires { config.strategy.replicas; }) config.strategy.replicas = 2;
  if constexpr (requires { config.strategy.unit_bytes; }) config.strategy.unit_bytes = 0;
  if constexpr (requires { config.strategy.hook.period; }) config.strategy.hook = {.start_step = 1, .period = 4};
  return config;
}

using Values = std::map<std::string, at::Tensor>;
Values values_of(const torch::nn::Module& model) {
  Values values;
  for (const auto& item : model.named_parameters()) values.emplace(item.key(), item.value().detach().clone());
  return values;
}
void expect_equal(const Values& got, const Values& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
}
/// Expects the values of rank 0 on every rank.
void expect_same_on_all_ranks(const Values& values, const Group& group) {
  for (const auto& [name, tensor] : values) {
    auto first = tensor.clone();
    broadcast(first, group);
    EXPECT_TRUE(at::equal(first, tensor)) << name << " on rank " << group.rank();
  }
}
/// Expects that another trainer can train the model for a step.
void expect_trainable(const std::shared_ptr<Network>& model, Group& group) {
  const auto before = values_of(*model);
  {
    Train<DDP> next{group, model, std::make_shared<const Rows>(), make_config<DDP>(group, 1)};
    next.step();
  }
  EXPECT_FALSE(at::equal(model->out, before.at("out")));
}

template <class S>
class EndOfTrainer : public testing::Test {
 protected:
  static constexpr bool kAlone = std::is_same_v<S, SingleDevice> || std::is_same_v<S, DataParallel>;
  static constexpr int kRanks = kAlone ? 1 : 2;
  /// The models of the ranks may differ between two averages.
  static constexpr bool kDrifts = LetsRanksDrift<S>;
  static constexpr bool kSharded = VerifiesCalls<S>;
  /// The values that a step computes are received during the next step.
  static constexpr bool kArriveLate =
      std::is_same_v<S, ZeRO1> || std::is_same_v<S, ZeRO2> || std::is_same_v<S, StepInBackward<ZeRO1>>;
};
using Strategies = testing::Types<SingleDevice, DataParallel, DDP, ZeRO1, ZeRO2, FSDP, HSDP, Recompute<FSDP>,
                                  StepInBackward<ZeRO1>, StepInBackward<FSDP>, DDPWith<PostLocalSGD>, DDPWith<NoSync>>;
TYPED_TEST_SUITE(EndOfTrainer, Strategies);

TYPED_TEST(EndOfTrainer, AfterFitEveryRankHasTheModelOfTheSnapshot) {
  const TemporaryFolder folder;
  spawn_ranks(this->kRanks, [&](Group& group) {
    const auto model = make_model();
    {
      auto config = make_config<TypeParam>(group, 4);
      config.training.save_dir = (folder / "run").string();
      config.training.ema_decay = 0.9;
      config.training.eval_every = 2;
      Train<TypeParam> trainer{group,  model, std::make_shared<const Rows>(),
                               config, {},    {.validation = std::make_shared<const Rows>()}};
      trainer.fit();
      trainer.fit();  // a second call has nothing left to do
    }
    const auto values = values_of(*model);
    const auto snapshot = load_snapshot(folder / "run").value();
    for (const auto& [name, tensor] : values)
      EXPECT_TRUE(at::equal(tensor, snapshot.tensors.at("model." + name))) << name << " on rank " << group.rank();
    std::stringstream file;
    torch::save(model, file);
    auto loaded = std::make_shared<Network>();
    torch::load(loaded, file);
    expect_equal(values_of(*loaded), values);
    expect_trainable(model, group);
  });
}

TYPED_TEST(EndOfTrainer, CloseEndsALoopOfStepsAndMayBeFollowedByMore) {
  spawn_ranks(this->kRanks, [&](Group& group) {
    const auto run = [&](bool finish_between) {
      const auto model = make_model();
      Train<TypeParam> trainer{group, model, std::make_shared<const Rows>(), make_config<TypeParam>(group, 9)};
      for (int step = 0; step < 4; ++step) {
        trainer.step();
        if (!finish_between) continue;
        trainer.close();
        expect_same_on_all_ranks(values_of(*model), group);
      }
      trainer.close();
      return values_of(*model);
    };
    const auto values = run(false);
    expect_same_on_all_ranks(values, group);
    const auto finished = run(true);
    if (!this->kDrifts) expect_equal(finished, values);
  });
}

/// Expects that `use` throws the error about a parameter that has no values on this rank.
void expect_sentence(const std::function<void()>& use, const std::string& parameter) {
  try {
    use();
    ADD_FAILURE() << "a parameter without values was used: " << parameter;
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter \"" + parameter + "\" has no values on this rank"));
  }
}

/// Expects that every use of a model whose shards are gone throws.
void expect_sentences(const std::shared_ptr<Network>& model, Group& group) {
  for (const auto& item : model->named_parameters()) {
    const at::Tensor parameter = item.value().detach();
    expect_sentence([&] { static_cast<void>(parameter.sum()); }, item.key());
    expect_sentence([&] { static_cast<void>(parameter.t() + 1); }, item.key());
    expect_sentence([&] { parameter.zero_(); }, item.key());
    expect_sentence([&] { static_cast<void>(parameter.clone()); }, item.key());
    expect_sentence([&] { static_cast<void>(parameter.to(at::kDouble)); }, item.key());
  }
  const auto first = model->named_parameters()[0].key();
  expect_sentence([&] { static_cast<void>(model->clone()); }, first);
  PlainCall plain;
  LayerRunner run{plain};
  const std::vector<std::int64_t> rows{0, 1};
  model->forwards_left = -1;
  expect_sentence([&] { static_cast<void>(model->forward(run, Rows{}.batch(rows))); }, "frozen");
  std::stringstream file;
  EXPECT_ANY_THROW(torch::save(model, file)) << "torch::save wrote a file without weights";
  try {
    const Train<DDP> next{group, model, std::make_shared<const Rows>(), make_config<DDP>(group, 1)};
    ADD_FAILURE() << "a trainer accepted the model";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), HasSubstr("has no values on this rank: the trainer that held it ended before"));
  }
}

TYPED_TEST(EndOfTrainer, WithoutCloseTheModelHasTheLastValuesOrThrows) {
  spawn_ranks(this->kRanks, [&](Group& group) {
    const auto steps = [&](bool finish) {
      const auto model = make_model();
      Train<TypeParam> trainer{group, model, std::make_shared<const Rows>(), make_config<TypeParam>(group, 9)};
      for (int step = 0; step < 3; ++step) trainer.step();
      if (finish) trainer.close();
      return model;
    };
    const auto model = steps(false);
    if (this->kSharded) return expect_sentences(model, group);
    const auto values = values_of(*model);
    if (this->kDrifts) {  // close() would average the models of the ranks
      const auto same = make_model();
      Train<TypeParam> trainer{group, same, std::make_shared<const Rows>(), make_config<TypeParam>(group, 9)};
      for (int step = 0; step < 3; ++step) trainer.step();
      expect_equal(values, values_of(*same));
      EXPECT_FALSE(at::equal(values.at("out"), make_model()->out));
      return;
    }
    expect_same_on_all_ranks(values, group);
    expect_equal(values, values_of(*steps(true)));
    expect_trainable(model, group);
  });
}

TYPED_TEST(EndOfTrainer, AfterAnExceptionAModelHasTheLastValuesAndTrainsOnOrThrows) {
  const auto check = [](Group& group) {
    const auto model = make_model();
    std::optional<Values> values;
    try {
      Train<TypeParam> trainer{group, model, std::make_shared<const Rows>(), make_config<TypeParam>(group, 9)};
      trainer.step();
      trainer.step();
      trainer.close();
      values = values_of(*model);
      trainer.step();
      model->forwards_left = 0;
      trainer.step();
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "forward fails");
    }
    bool whole = true;
    for (const auto& item : model->named_parameters()) {
      const at::Tensor parameter = item.value().detach();
      try {
        const bool stale = at::equal(parameter.clone(), values.value().at(item.key()));
        EXPECT_EQ(stale, item.key() == "frozen") << item.key() << " has the values of an older step";
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("parameter \"" + item.key() + "\" has no values on this rank"));
        EXPECT_GT(group.size(), 1);
        whole = false;
      }
    }
    if (whole) expect_trainable(model, group);
  };
  spawn_ranks(this->kRanks, check);
  if (this->kSharded) spawn_ranks(1, check);
}

TYPED_TEST(EndOfTrainer, AfterCloseOneRankAloneMayRunTheModelAgainAndAgain) {
  spawn_ranks(this->kRanks, [&](Group& group) {
    const auto model = make_model();
    auto config = make_config<TypeParam>(group, 9);
    if constexpr (requires { config.strategy.check_calls; }) config.strategy.check_calls = true;
    Train<TypeParam> trainer{group, model, std::make_shared<const Rows>(), config};
    trainer.step();
    trainer.close();
    const auto values = values_of(*model);
    const auto forward = [&] {
      const c10::NoGradGuard no_grad;
      auto run = trainer.strategy().runner();
      const std::vector<std::int64_t> rows{0, 1};
      static_cast<void>(model->forward(run, Rows{}.batch(rows)));
    };
    forward();
    for (const auto& item : model->named_parameters())
      ASSERT_NO_THROW(static_cast<void>(item.value().clone())) << item.key() << " was freed after a call";
    if (group.rank() == 0)
      for (int call = 0; call < 2; ++call) forward();
    expect_equal(values_of(*model), values);
    barrier(group);
    for (int step = 0; step < 4; ++step) trainer.step();
    trainer.close();
    expect_same_on_all_ranks(values_of(*model), group);
  });
}

TEST(EndOfShards, OfTheOnlyShardLeavesTheModelWhole) {
  Group alone;
  const auto model = make_model(), reference = make_model();
  const auto train = [&]<class S>(const auto& network, S*) {
    Train<S> trainer{alone, network, std::make_shared<const Rows>(), make_config<S>(alone, 9)};
    for (int step = 0; step < 3; ++step) trainer.step();
  };
  train(model, static_cast<FSDP*>(nullptr));
  train(reference, static_cast<SingleDevice*>(nullptr));
  expect_equal(values_of(*model), values_of(*reference));
}

TEST(EndOfShards, LeavesNoNodeOfItsOwnInTheGraphsOfTheModel) {
  Group alone;
  const auto model = make_model();
  const std::vector<std::int64_t> rows{0, 1};
  const auto batch = Rows{}.batch(rows);
  at::Tensor loss;
  {
    TrainStep<Network, AdamW, Float32, FSDP> step{alone, model, {}};
    step.step(std::vector{batch});
    loss = step.loss_of(batch).sum;  // with a graph, through which backward does not go before the end
  }
  EXPECT_NO_THROW(loss.backward());  // as between two steps, the gradients are dropped
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().is_leaf()) << item.key();
  PlainCall plain;
  LayerRunner run{plain};
  model->forward(run, batch).sum.backward();
  for (const auto& item : model->named_parameters())
    if (item.value().requires_grad()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

/// A layer with nothing to train, which gets a trained parameter as an argument.
struct FrozenBlock : torch::nn::Module, Layer {
  FrozenBlock() { weight = register_parameter("weight", at::randn({kWidth, kWidth}) / 3, /*requires_grad=*/false); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& prompt) { return at::linear(x + prompt, weight).tanh(); }
  at::Tensor weight;
};
struct PromptedNetwork : torch::nn::Module {
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    return {(run(*block, batch.inputs, prompt).sum(1) - batch.targets).square().sum()};
  }
  std::shared_ptr<FrozenBlock> block = register_module("block", std::make_shared<FrozenBlock>());
  at::Tensor prompt = register_parameter("prompt", at::zeros({kWidth}));
};

TEST(EndOfShards, LeavesNoHookOnAParameterThatAFrozenLayerWasGiven) {
  Group alone;
  const auto model = std::make_shared<PromptedNetwork>();
  const std::vector<std::int64_t> rows{0, 1};
  {
    TrainStep<PromptedNetwork, AdamW, Float32, FSDP> step{alone, model, {}};
    for (int i = 0; i < 2; ++i) step.step(std::vector{Rows{}.batch(rows)});
    EXPECT_ANY_THROW(static_cast<void>(model->block->weight.detach().sum())) << "the frozen layer was not freed";
    step.make_whole();
  }
  EXPECT_TRUE(torch::autograd::impl::hooks(model->prompt).empty());
  EXPECT_TRUE(model->prompt.ne(0).any().item<bool>()) << "the prompt was not trained";
}

TEST(EndOfShards, MayLeaveTheModelInShards) {
  spawn_ranks(2, [](Group& group) {
    const auto model = make_model();
    {
      auto config = make_config<FSDP>(group, 2);
      config.strategy.whole_at_end = false;
      Train<FSDP>{group, model, std::make_shared<const Rows>(), config}.fit();
    }
    expect_sentences(model, group);
  });
}

/// The values of all parameters that can be read now. Reading any other must throw the error about missing values.
Values readable_of(const torch::nn::Module& model) {
  Values values;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor parameter = item.value().detach();
    try {
      values.emplace(item.key(), parameter.clone());
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("parameter \"" + item.key() +
                                          "\" has no values on this rank outside the calls that the strategy runs"));
    }
  }
  return values;
}

TYPED_TEST(EndOfTrainer, BetweenStepsAParameterHasTheLastValuesOrThrows) {
  spawn_ranks(this->kRanks, [&](Group& group) {
    const auto model = make_model();
    Train<TypeParam> trainer{group, model, std::make_shared<const Rows>(), make_config<TypeParam>(group, 9)};
    for (int step = 0; step < 3; ++step) {
      const auto readable = readable_of(*model);
      if (this->kArriveLate && step > 0) {  // received values are visible only after a wait for them
        EXPECT_EQ(readable.size(), 1u);
        EXPECT_TRUE(readable.contains("frozen"));
      }
      std::stringstream file;
      if (this->kSharded) {
        EXPECT_TRUE(readable.empty());
        PlainCall plain;
        LayerRunner run{plain};
        const std::vector<std::int64_t> rows{0, 1};
        EXPECT_THROW(static_cast<void>(model->forward(run, Rows{}.batch(rows))), c10::Error);
        EXPECT_THROW(model->out.detach().zero_(), c10::Error);
        EXPECT_THROW(static_cast<void>(model->clone()), c10::Error);
        EXPECT_ANY_THROW(torch::save(model, file)) << "torch::save wrote a file without weights";
      }
      [[maybe_unused]] const auto whole = trainer.strategy().gathered();
      const auto values = values_of(*model);
      for (const auto& [name, tensor] : readable) EXPECT_TRUE(at::equal(tensor, values.at(name))) << name;
      trainer.step();
    }
  });
}

/// A recurrent layer keeps its own list of parameters, which it passes to LibTorch unchanged.
struct Recurrent : torch::nn::LSTMImpl, Layer {
  Recurrent() : LSTMImpl{torch::nn::LSTMOptions{kWidth, kWidth}.batch_first(true)} {}
};
struct RecurrentNetwork : torch::nn::Module {
  template <class Run>
  Loss forward(Run& run, const Batch& batch) {
    const auto [outputs, state] = run(*layer, batch.inputs.unsqueeze(1));
    return {(outputs.sum({1, 2}) - batch.targets).square().sum()};
  }
  std::shared_ptr<Recurrent> layer = register_module("layer", std::make_shared<Recurrent>());
};

TEST(BesideTheRunner, AShardedLayerThrowsWithTheNameOfItsParameter) {
  spawn_ranks(2, [](Group& group) {
    at::manual_seed(3);
    const auto model = std::make_shared<RecurrentNetwork>();
    Trainer<RecurrentNetwork, Rows, AdamW, Float32, FSDP> trainer{group, model, std::make_shared<const Rows>(), {}};
    trainer.step();
    try {
      model->layer->forward(at::ones({2, 1, kWidth}));
      ADD_FAILURE() << "no error";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("parameter \"layer.bias_ih_l0\" has no values on this rank"));
      EXPECT_THAT(error.what(), HasSubstr("call a layer as run(*layer, x)"));
    }
    trainer.step();
    trainer.close();
    EXPECT_TRUE(std::get<0>(model->layer->forward(at::ones({2, 1, kWidth}))).isfinite().all().item<bool>());
  });
}

/// The error on a rank whose trainer differs in types or settings from the other ranks' trainers.
template <class S, class O = AdamW>
std::string refusal(Group& group, const typename S::Config& strategy = {}, double learning_rate = 1e-2) {
  using Made = Trainer<Network, Rows, O, Float32, S>;
  typename Made::Config config;
  config.batch_size = 4;
  config.optimizer.learning_rate = learning_rate;
  config.strategy = strategy;
  try {
    const Made trainer{group, make_model(), std::make_shared<const Rows>(), config};
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    return error.what();
  }
}

/// The trainers compare their settings before any other collective. Without the comparison, the ranks would start
/// different collectives and wait, or end by an exception of the backend.
TEST(RanksThatDiffer, AreToldByNameHoweverTheyWereSet) {
  spawn_ranks(2, [](Group& group) {
    const bool first = group.rank() == 0;
    const auto expect = [&](const std::string& refused, const char* sentence) {
      EXPECT_EQ(refused, std::string{"the ranks were started with different settings:\n  "} + sentence +
                             "\nstart all of them with one configuration and one text");
    };
    expect(first ? refusal<DDP>(group) : refusal<FSDP>(group), "strategy: DDP on rank 0, FSDP on rank 1");
    expect(first ? refusal<ZeRO1>(group) : refusal<ZeRO2>(group),
           "strategy: ZeRO<ZeROStage::optimizer> on rank 0, ZeRO<ZeROStage::gradients> on rank 1");
    expect(first ? refusal<HSDP>(group, {.shard_size = 1}) : refusal<HSDP>(group),
           "strategy.shard_size: 1 on rank 0, 0 on rank 1");
    expect(refusal<FSDP>(group, {.reshard_after_forward = first ? "true" : "false"}),
           "strategy.reshard_after_forward: \"true\" on rank 0, \"false\" on rank 1");
    expect(refusal<Recompute<FSDP>>(
               group, {.recompute = {.policy = first ? RecomputeConfig::Policy::all : RecomputeConfig::Policy::none}}),
           "strategy.recompute.policy: \"all\" on rank 0, \"none\" on rank 1");
    expect(refusal<DDP>(group, {}, first ? 0.1 : 0.2), "optimizer.learning_rate: 0.1 on rank 0, 0.2 on rank 1");
  });
}

TEST(RanksThatDiffer, AreToldInTheirEarlyStopping) {
  spawn_ranks(2, [](Group& group) {
    auto config = make_config<DDP>(group, 1);
    config.early_stopping.patience = 3 + group.rank();
    const auto refused = error_of([&] {
      const Train<DDP> trainer{group, make_model(), std::make_shared<const Rows>(), config};
    });
    EXPECT_THAT(refused, testing::HasSubstr("early_stopping.patience: 3 on rank 0, 4 on rank 1"));
  });
}

TEST(RanksThatDiffer, MayDoSoInWorkersDevicesAndThePathOfTheMetrics) {
  const TemporaryFolder folder;
  spawn_ranks(2, [&](Group& group) {
    auto config = make_config<DDP>(group, 1);
    config.num_workers = group.rank();
    config.training.device = group.rank() == 0 ? "auto" : "cpu";
    config.training.metrics = (folder / std::to_string(group.rank())).string();
    Train<DDP>{group, make_model(), std::make_shared<const Rows>(), config}.fit();
  });
}

}  // namespace
}  // namespace ddpxx::end_of_trainer_test
