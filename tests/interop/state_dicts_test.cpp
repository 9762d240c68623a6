#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>

#include "../error_of.hpp"
#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::state_dicts_test {
namespace {

using testing::HasSubstr;

template <class Operation>
std::string refusal(Operation&& operation) {
  try {
    operation();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    return error.what();
  }
  return "it was accepted";
}

const std::vector<OptimizerGroup> kGroups =
    mingpt_groups({"b.weight", "a.weight", "b.bias"}, [](const auto& name) { return name.ends_with("weight"); }, {});

NamedTensors snapshot() {
  NamedTensors tensors{{"optimizer.step", at::full({}, 4.0F)}, {"model.a.weight", at::ones({2})}};
  double value = 0;
  for (const char* name : {"a.weight", "b.weight", "b.bias"})
    for (const char* moment : {"exp_avg", "exp_avg_sq"})
      tensors.emplace(std::string{"optimizer."} + moment + '.' + name, at::full({2}, ++value));
  return tensors;
}

TEST(StateDicts, EveryLayoutComesBackAsItself) {
  const NamedTensors model{{"a.weight", at::ones({2})}, {"b.bias", at::zeros({1})}};
  for (const auto layout : {CheckpointLayout::torchrun_tutorial, CheckpointLayout::mingpt_ddp, CheckpointLayout::guide,
                            CheckpointLayout::torchvision, CheckpointLayout::state_dict}) {
    const auto back = from_python(to_python(TrainingCheckpoint{layout, model, PickleDict{}.add("state", 1), 5}));
    EXPECT_EQ(back.layout, layout);
    EXPECT_EQ(back.model.size(), 2U);
    EXPECT_TRUE(at::equal(back.model.at("a.weight"), model.at("a.weight")));
    const bool has_none = layout == CheckpointLayout::torchrun_tutorial || layout == CheckpointLayout::state_dict;
    EXPECT_EQ(back.optimizer.is_none(), has_none);
    EXPECT_EQ(has_optimizer(layout), !has_none);
    EXPECT_EQ(back.epoch, layout == CheckpointLayout::state_dict ? 0 : 5);
  }
}

TEST(StateDicts, CountsTheEpochsOfTorchvisionFromTheOneThatHasEnded) {
  const auto weights = PickleDict{}.add("weight", at::ones({2}));
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(from_python(PickleDict{}.add("model", weights).add("epoch", 4)).epoch, 5);
  EXPECT_EQ(from_python(PickleDict{}.add("model", weights).add("epoch", kMax)).epoch, kMax);
  EXPECT_EQ(from_python(PickleDict{}.add("model", weights)).epoch, 0);
  EXPECT_EQ(from_python(PickleDict{}.add("model_state_dict", weights).add("epoch", 4)).epoch, 4);
  const auto written = to_python({.layout = CheckpointLayout::torchvision, .epoch = 5});
  EXPECT_EQ(written.get<PickleDict>("it").find("epoch")->get<std::int64_t>("epoch"), 4);
  EXPECT_EQ(from_python(PickleDict{}.add("model", at::ones({1}))).layout, CheckpointLayout::state_dict)
      << "a parameter of the name `model`";
  EXPECT_EQ(from_python(PickleDict{}.add("model", weights).add("iter_num", 4)).layout, CheckpointLayout::nanogpt);
  const auto arguments_in = [&](PickleDict arguments) {
    return from_python(PickleDict{}.add("model", weights).add("iter_num", 4).add("model_args", std::move(arguments)))
        .model_args;
  };
  const auto sizes =
      PickleDict{}.add("n_layer", 2).add("n_head", 3).add("n_embd", 6).add("block_size", 4).add("vocab_size", 5);
  EXPECT_TRUE(arguments_in(sizes).value().bias) << "nanoGPT's first versions always had biases";
  const auto arguments = arguments_in(PickleDict{sizes}.add("bias", false).add("dropout", 0)).value();
  EXPECT_EQ(arguments.n_head, 3);
  EXPECT_FALSE(arguments.bias);
  EXPECT_FALSE(arguments_in(PickleDict{}.add("dim", 6).add("n_heads", 3))) << "llama2.c's";
  EXPECT_THAT(refusal([&] { arguments_in(PickleDict{sizes}.add("bias", 1)); }), HasSubstr("bias of model_args"));
}

TEST(StateDicts, WrappersNamesComeOff) {
  const auto names = [](std::vector<std::string> written) {
    PickleDict dict;
    for (const auto& name : written) dict.add(name, at::ones({1}));
    std::string text;
    for (const auto& [name, tensor] : from_python(PickleDict{}.add("MODEL_STATE", dict)).model) text += name + ' ';
    return text;
  };
  EXPECT_EQ(names({"module.a", "module.b"}), "a b ");
  EXPECT_EQ(names({"_orig_mod.module.a"}), "a ");
  EXPECT_EQ(names({"module._orig_mod.a"}), "a ");
  EXPECT_EQ(names({"module.a", "b"}), "b module.a ") << "`module.` is a prefix only if all names have it";
}

TEST(StateDicts, NamesTheKeysOfWhatIsNoCheckpoint) {
  EXPECT_THAT(refusal([] { from_python(PickleDict{}.add("weights", 1).add("iter", 2)); }),
              HasSubstr(R"("weights" "iter")"));
  EXPECT_THAT(refusal([] { from_python(PickleValue{3}); }), HasSubstr("an integer"));
  EXPECT_THAT(refusal([] { from_python(PickleDict{}.add("MODEL_STATE", 1)); }), HasSubstr("should be a dict"));
  EXPECT_THAT(refusal([] { from_python(PickleDict{}.add("MODEL_STATE", PickleDict{}.add("a", "b"))); }),
              HasSubstr("\"a\" is a text, and should be a tensor"));
}

TEST(StateDicts, TheOptimizerKnowsParametersByTheirPlace) {
  const auto python = optimizer_to_python(snapshot(), kGroups);
  const auto& states = python.get<PickleDict>("it").find("state")->get<PickleDict>("state").entries;
  ASSERT_EQ(states.size(), 3U);
  // Parameters with weight decay come first: a.weight and b.weight, then b.bias.
  std::vector<double> firsts;
  for (const auto& [index, state] : states)
    firsts.push_back(state.get<PickleDict>("a state").find("exp_avg")->get<at::Tensor>("exp_avg")[0].item<double>());
  EXPECT_THAT(firsts, testing::ElementsAre(1, 3, 5));
  EXPECT_EQ(states[2].first.get<std::int64_t>("an index"), 2);
  const auto step = [&](std::size_t i) {
    return states[i].second.get<PickleDict>("a state").find("step")->get<at::Tensor>("step");
  };
  EXPECT_FALSE(step(0).is_alias_of(step(1))) << "Python increments the step in place, so states must not share it";

  const auto back = optimizer_from_python(python, kGroups);
  auto expected = snapshot();
  expected.erase("model.a.weight");
  ASSERT_EQ(back.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(back.at(name), tensor)) << name;
  EXPECT_TRUE(optimizer_from_python(optimizer_to_python({}, kGroups), kGroups).empty())
      << "without moments, as before the first step, the state must be empty";
}

/// An entry of param_groups as Python prints it.
std::string python_text(const PickleValue& value) {
  if (value.is_none()) return "None";
  if (const auto* flag = value.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* tuple = value.get_if<PickleTuple>())
    return '(' + python_text(tuple->items[0]) + ',' + python_text(tuple->items[1]) + ')';
  if (const auto* list = value.get_if<PickleList>())
    return '[' + std::to_string(list->front().get<std::int64_t>("an index")) + ']';
  return (std::ostringstream{} << value.get<double>("a number")).str();
}

const AdamWSettings kAdamW{.learning_rate = 0.01, .beta2 = 0.95, .epsilon = 1e-7, .weight_decay = 0.25};
const AdamWSettings kAdam{
    .learning_rate = 0.01, .beta2 = 0.95, .epsilon = 1e-7, .weight_decay = 0.25, .optimizer = PythonAdam::adam};
const SGDSettings kSGD{.learning_rate = 0.01, .momentum = 0.5, .dampening = 0.125, .weight_decay = 0.25};

TEST(StateDicts, GroupsSayWhatPythonsOwnSay) {
  std::string lines;
  for (const auto& [name, settings] :
       {std::pair{"AdamW", to_python(kAdamW)}, {"Adam", to_python(kAdam)}, {"SGD", to_python(kSGD)}}) {
    const std::vector<OptimizerGroup> groups{{{"a"}, settings}};
    const auto python = optimizer_to_python({}, groups);
    lines += name;
    for (const auto& [key, value] :
         python.get<PickleDict>("it").find("param_groups")->get<PickleList>("groups")[0].get<PickleDict>("one").entries)
      lines += ' ' + key.get<std::string>("a key") + '=' + python_text(value);
    lines += '\n';
  }
  EXPECT_EQ(lines, run_python("optimizer_files.py", {"groups"}));
}

/// Trains with an optimizer of ddpxx, then continues both in C++ and in Python.
template <class Optimizer, class Settings>
void expect_python_goes_on(const Settings& settings) {
  NamedTensors model{{"bias", at::zeros({2})}, {"weight", at::linspace(-1, 1, 6).view({3, 2})}};
  const auto x = at::linspace(-2, 3, 12).view({4, 3}), y = at::linspace(1, -1, 8).view({4, 2});
  std::vector<Slice> slices;
  for (auto& [name, tensor] : model) {
    tensor.requires_grad_();
    tensor.mutable_grad() = at::zeros_like(tensor);
    slices.push_back({tensor.detach().view(-1), tensor.grad().view(-1), 0, tensor.numel(), name == "weight" ? 0 : 1});
  }
  typename Optimizer::Config config;
  config.weight_decay = settings.weight_decay;
  if constexpr (requires { config.beta2; }) {
    config.beta2 = settings.beta2;
    config.epsilon = settings.epsilon;
  } else {
    config.momentum = settings.momentum;
    config.dampening = settings.dampening;
  }
  Optimizer optimizer{config, slices};
  const auto step = [&] {
    for (const auto& slice : slices) at::Tensor{slice.gradients}.zero_();
    const auto loss = at::mse_loss(at::matmul(x, model.at("weight")) + model.at("bias"), y);
    loss.backward();
    optimizer.step(settings.learning_rate);
    return loss.template item<double>();
  };
  for (int i = 0; i < 4; ++i) step();

  NamedTensors state;
  if constexpr (requires { optimizer.step_count(); }) state.emplace("optimizer.step", optimizer.step_count());
  for (const auto& moment : optimizer.moments())
    for (std::size_t i = 0; const auto& [name, tensor] : model)
      state.emplace("optimizer." + moment.name + '.' + name, moment.slices[i++].view(tensor.sizes()));
  const auto groups = mingpt_groups(
      {"bias", "weight"}, [](const auto& name) { return name == "weight"; }, settings);
  const TrainingCheckpoint checkpoint{CheckpointLayout::mingpt_ddp, model, optimizer_to_python(state, groups), 1};
  auto dict = to_python(checkpoint).get<PickleDict>("the checkpoint");
  const TemporaryFolder folder;
  const auto path = folder / "ours.pt";
  write_pt(path, dict.add("x", x).add("y", y));

  std::istringstream python{run_python("optimizer_files.py", {"resume", Optimizer::kPythonName, path.string()})};
  int compared = 0;
  for (double loss = 0; python >> loss; ++compared) EXPECT_NEAR(step(), loss, 2e-6 * loss) << "step " << compared;
  EXPECT_EQ(compared, 3);
}

TEST(StateDicts, PythonGoesOnWithAdamW) { expect_python_goes_on<AdamW>(kAdamW); }
TEST(StateDicts, PythonGoesOnWithAdam) { expect_python_goes_on<Adam>(kAdam); }
TEST(StateDicts, PythonGoesOnWithSGD) { expect_python_goes_on<SGD>(kSGD); }

TEST(StateDicts, AnOptimizerOfAnotherModelIsRefused) {
  auto fewer = kGroups;
  fewer[0].parameters.pop_back();
  EXPECT_THAT(refusal([&] { optimizer_to_python(snapshot(), fewer); }), HasSubstr("\"b.weight\""));
  const auto python = optimizer_to_python(snapshot(), kGroups);
  EXPECT_THAT(refusal([&] { optimizer_from_python(python, fewer); }), HasSubstr("2 parameters in the file, 1 here"));
  fewer.pop_back();
  EXPECT_THAT(refusal([&] { optimizer_from_python(python, fewer); }), HasSubstr("2 groups in the file, 1 here"));

  auto states = python.get<PickleDict>("it");
  auto entries = states.entries[0].second.get<PickleDict>("state");
  entries.entries[1].second = PickleDict{}.add("step", 5);
  states.entries[0].second = entries;
  EXPECT_THAT(refusal([&] { optimizer_from_python(states, kGroups); }), HasSubstr("different numbers of steps"));
  entries.entries.pop_back();
  states.entries[0].second = entries;
  EXPECT_THAT(refusal([&] { optimizer_from_python(states, kGroups); }), HasSubstr("steps"));
  EXPECT_EQ(refusal([&] { optimizer_from_python(PickleDict{}, kGroups); }), "the optimizer's state lacks state");
  EXPECT_EQ(refusal([&] { optimizer_from_python(PickleDict{}.add("state", PickleDict{}), kGroups); }),
            "the optimizer's state lacks param_groups");
}

TEST(StateDicts, RefuseAStepThatIsNotOneNumber) {
  auto states = optimizer_to_python(snapshot(), kGroups).get<PickleDict>("it");
  auto entries = states.entries[0].second.get<PickleDict>("state");
  for (const std::int64_t elements : {0, 2}) {
    entries.entries[0].second = PickleDict{}.add("step", at::ones({elements}));
    states.entries[0].second = entries;
    EXPECT_EQ(refusal([&] { optimizer_from_python(states, kGroups); }),
              "the optimizer's step is a tensor of " + std::to_string(elements) +
                  " elements, and should have one: the file is damaged, or PyTorch's optimizers did not write it");
  }
}

TEST(StateDicts, AreNotWrittenInTheLayoutsThatAreOnlyRead) {
  for (const auto layout : {CheckpointLayout::nanogpt, CheckpointLayout::lightning}) {
    const auto write = [&] { to_python(TrainingCheckpoint{.layout = layout}); };
    EXPECT_EQ(code_of(write), Errc::config);
    EXPECT_EQ(error_of(write),
              "checkpoints of nanoGPT and Lightning are read and not written: choose mingpt_ddp, torchrun_tutorial, "
              "guide, torchvision or state_dict");
  }
}

TEST(CheckpointFile, IsNamedWhereItsKeysAreNoCheckpoints) {
  const TemporaryFolder folder;
  const auto path = folder / "other.pt";
  write_pt(path, PickleDict{}.add("weights", 1));
  EXPECT_EQ(
      refusal([&] { read_checkpoint_file(path); }),
      path.string() +
          ": the checkpoint's keys are \"weights\"; expected MODEL_STATE, model_state, model_state_dict or model, "
          "Lightning's state_dict and global_step, or a model's tensors alone");
}

}  // namespace
}  // namespace ddpxx::state_dicts_test
