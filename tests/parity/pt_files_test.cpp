// .pt files and GPT-2's weights: Python's torch reads what ddpxx writes, and the other way round.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/checkpoint_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/storage/folder.hpp>

#include "../temporary_folder.hpp"
#include "python.hpp"

namespace ddpxx::pt_files_test {
namespace {

std::string hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes)
    for (const unsigned shift : {4U, 0U})
      digits += "0123456789abcdef"[(static_cast<unsigned char>(byte) >> shift) & 15U];
  return digits;
}

std::string describe(const at::Tensor& tensor) {
  static const std::map<at::ScalarType, std::string> names{
      {at::kFloat, "float32"}, {at::kDouble, "float64"}, {at::kHalf, "float16"}, {at::kBFloat16, "bfloat16"},
      {at::kLong, "int64"},    {at::kInt, "int32"},      {at::kShort, "int16"},  {at::kByte, "uint8"},
      {at::kChar, "int8"},     {at::kBool, "bool"}};
  const auto list = [](at::IntArrayRef numbers) {
    std::string text;
    for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return " [" + text + "]";
  };
  const auto values = tensor.contiguous();
  return "<" + names.at(tensor.scalar_type()) + list(tensor.sizes()) + list(tensor.strides()) + ' ' +
         hex({static_cast<const char*>(values.const_data_ptr()), values.nbytes()}) + '>';
}

/// The text that pt_files.py prints for an equal value.
std::string describe(const PickleValue& value) {
  const auto all = [](const PickleList& items) {
    std::string text;
    for (const auto& item : items) text += describe(item) + ", ";
    return text;
  };
  return value.visit([&]<class T>(const T& content) -> std::string {
    if constexpr (std::is_same_v<T, std::monostate>) {
      return "None";
    } else if constexpr (std::is_same_v<T, bool>) {
      return content ? "True" : "False";
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return std::to_string(content);
    } else if constexpr (std::is_same_v<T, double>) {
      auto bits = std::bit_cast<std::array<char, 8>>(content);
      return "f" + hex(std::string{bits.rbegin(), bits.rend()});
    } else if constexpr (std::is_same_v<T, std::string>) {
      return "'" + content + "'";
    } else if constexpr (std::is_same_v<T, PickleList>) {
      return "[" + all(content) + "]";
    } else if constexpr (std::is_same_v<T, PickleTuple>) {
      return "(" + all(content.items) + ")";
    } else if constexpr (std::is_same_v<T, PickleDict>) {
      std::string text;
      for (const auto& [key, item] : content.entries) text += describe(key) + ": " + describe(item) + ", ";
      return "{" + text + "}";
    } else {
      return describe(content);
    }
  });
}

std::vector<double> numbers(const std::string& line) {
  std::istringstream words{line};
  return {std::istream_iterator<double>{words}, {}};
}

const PickleDict& as_dict(const PickleValue& value) { return value.get<PickleDict>("the file"); }
at::Tensor tensor_at(const PickleValue& value, const char* name) {
  return as_dict(value).find(name)->get<at::Tensor>(name);
}

/// The optimizer groups of the small model in pt_files.py.
std::vector<OptimizerGroup> groups_of(const NamedTensors& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model) names.push_back(name);
  return mingpt_groups(names, [](const std::string& name) { return name.ends_with("weight"); },
                       {.learning_rate = 1e-2, .beta2 = 0.95, .weight_decay = 0.1});
}

/// Writes a checkpoint as minGPT-ddp does, with the data that pt_files.py trains on.
void write_run(const std::filesystem::path& path, const TrainingCheckpoint& checkpoint, const at::Tensor& x,
               const at::Tensor& y) {
  auto dict = to_python(checkpoint).get<PickleDict>("the checkpoint");
  write_pt(path, dict.add("x", x).add("y", y));
}

TEST(PtFiles, WhatPythonWritesIsReadBitForBitAndGoesBackTheSame) {
  const TemporaryFolder folder;
  const auto path = (folder / "python.pt").string(), back = (folder / "back.pt").string();
  const auto expected = run_python("pt_files.py", {"write", path});
  const auto value = read_pt(path);
  EXPECT_EQ(describe(value) + '\n', expected);
  write_pt(back, value);
  EXPECT_EQ(run_python("pt_files.py", {"describe", back}), expected)
      << "torch.load with weights_only=True must read the file";
}

TEST(PtFiles, PythonGoesOnFromOurCheckpointWithTheSameLosses) {
  const TemporaryFolder folder;
  const auto path = (folder / "python.pt").string(), ours = (folder / "ours.pt").string();
  const auto expected = run_python("pt_files.py", {"train", path});
  const auto value = read_pt(path);
  auto checkpoint = from_python(value);
  EXPECT_EQ(checkpoint.layout, CheckpointLayout::mingpt_ddp);
  EXPECT_EQ(checkpoint.epoch, 3);
  ASSERT_EQ(checkpoint.model.size(), 4U) << "the prefix `module.` must be removed";

  // Converts the optimizer state to the names of a snapshot and back.
  const auto groups = groups_of(checkpoint.model);
  const auto state = optimizer_from_python(checkpoint.optimizer, groups);
  EXPECT_EQ(state.at("optimizer.step").item<float>(), 3.0F);
  EXPECT_EQ(state.at("optimizer.exp_avg_sq.first.weight").sizes(), checkpoint.model.at("first.weight").sizes());
  checkpoint.optimizer = optimizer_to_python(state, groups);
  write_run(ours, checkpoint, tensor_at(value, "x"), tensor_at(value, "y"));
  EXPECT_EQ(run_python("pt_files.py", {"resume", ours}), expected);
}

TEST(PtFiles, PythonGoesOnFromOurTrainingAsWeDo) {
  const TemporaryFolder folder;
  const auto path = (folder / "python.pt").string(), ours = (folder / "ours.pt").string();
  run_python("pt_files.py", {"train", path});
  const auto value = read_pt(path);
  auto model = from_python(value).model;
  const auto x = tensor_at(value, "x"), y = tensor_at(value, "y");

  std::vector<Slice> slices;
  for (auto& [name, tensor] : model) {
    tensor = tensor.clone().requires_grad_();
    tensor.mutable_grad() = at::zeros_like(tensor);
    slices.push_back(
        {tensor.detach().view(-1), tensor.grad().view(-1), 0, tensor.numel(), name.ends_with("weight") ? 0 : 1});
  }
  AdamW optimizer{{.weight_decay = 0.1, .beta2 = 0.95}, slices};
  const auto step = [&] {
    for (const auto& slice : slices) at::Tensor{slice.gradients}.zero_();
    const auto hidden = at::gelu(at::linear(x, model.at("first.weight"), model.at("first.bias")));
    const auto loss = at::mse_loss(at::linear(hidden, model.at("second.weight"), model.at("second.bias")), y);
    loss.backward();
    optimizer.step(1e-2);
    return loss.item<double>();
  };
  step();
  step();

  NamedTensors state{{"optimizer.step", optimizer.step_count()}};
  for (const auto& moment : optimizer.moments())
    for (std::size_t i = 0; const auto& [name, tensor] : model)
      state.emplace("optimizer." + moment.name + '.' + name, moment.slices[i++].view(tensor.sizes()));
  TrainingCheckpoint checkpoint{CheckpointLayout::mingpt_ddp, model, optimizer_to_python(state, groups_of(model)), 3};
  write_run(ours, checkpoint, x, y);
  const auto python = numbers(run_python("pt_files.py", {"resume", ours}));
  ASSERT_EQ(python.size(), 3U);
  for (const auto loss : python) EXPECT_NEAR(step(), loss, 1e-6 * loss);
}

/// The model of pt_files.py in LibTorch.
struct Small : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear{3, 8});
  torch::nn::Linear second = register_module("second", torch::nn::Linear{8, 2});
};

template <class Optimizer, class Options>
void expect_python_goes_on(const char* name, const Options& options) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  std::ostringstream printed;
  Small model;
  Optimizer optimizer{model.parameters(), options};
  const auto x = at::arange(48, at::kFloat).view({16, 3}) / 48, y = at::arange(32, at::kFloat).view({16, 2}) / 32;
  const auto step = [&] {
    optimizer.zero_grad();
    const auto loss = at::mse_loss(model.second->forward(at::gelu(model.first->forward(x))), y);
    loss.backward();
    optimizer.step();
    return loss.template item<double>();
  };
  for (int i = 0; i < 3; ++i) step();
  CheckpointFiles{folder, printed}.save_checkpoint(3, model, optimizer, "ours.pt");
  const auto python = numbers(run_python("pt_files.py", {"guide", (place / "ours.pt").string(), name}));
  ASSERT_EQ(python.size(), 3U);
  for (const auto loss : python) EXPECT_NEAR(step(), loss, 1e-6 * loss) << name;
}

TEST(CheckpointFiles, LetPythonGoOnWithEachOptimizerOfLibTorch) {
  using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;
  expect_python_goes_on<torch::optim::AdamW>("AdamW", AdamWOptions{1e-2}.betas({0.8, 0.95}).weight_decay(0.2));
  expect_python_goes_on<torch::optim::Adam>("Adam", AdamOptions{1e-2}.weight_decay(0.1).amsgrad(true));
  expect_python_goes_on<torch::optim::SGD>("SGD", SGDOptions{1e-1}.momentum(0.9).weight_decay(0.1).nesterov(true));
}

TEST(CheckpointFiles, RefuseAnOptimizerThatTheyDoNotKnow) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  Small model;
  const torch::optim::Adagrad optimizer{model.parameters()};
  EXPECT_THROW(CheckpointFiles{folder}.save_checkpoint(3, model, optimizer, "ours.pt"), Error);
  EXPECT_FALSE(std::filesystem::exists(place / "ours.pt"));
}

TEST(GPT2Weights, GiveTheLogitsOfPythonAndGoBackTheSame) {
  const TemporaryFolder folder;
  const auto weights = (folder / "model.safetensors").string(), said = (folder / "said.pt").string();
  run_python("pt_files.py", {"gpt2", weights, said});
  const auto file = read_safetensors(weights, Checksum::optional).tensors;
  const GPTConfig config{.n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0.0};
  GPT gpt{config, 11, 16};
  load_gpt2(gpt, file);
  const auto value = read_pt(said);
  PlainCall plain;
  LayerRunner run{plain};
  EXPECT_TRUE(at::allclose(gpt.logits(run, tensor_at(value, "ids")), tensor_at(value, "logits"), 1e-5, 1e-5));

  auto back = gpt2_to_huggingface(parameters_by_name(gpt));
  EXPECT_TRUE(at::equal(back.at("lm_head.weight"), file.at("wte.weight")));
  back.erase("lm_head.weight");
  EXPECT_EQ(back.size() + 1, file.size()) << "all tensors but the mask must be written";
  for (const auto& [name, tensor] : back) EXPECT_TRUE(at::equal(tensor, file.at(name.substr(12)))) << name;

  GPT tied{{.n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0.0, .tied_head = true}, 11, 16};
  auto with_head = file;
  with_head["lm_head.weight"] = file.at("wte.weight").clone();
  for (const auto& weights_of_gpt2 : {file, with_head}) {
    load_gpt2(tied, weights_of_gpt2);
    EXPECT_TRUE(at::equal(tied.logits(run, tensor_at(value, "ids")), gpt.logits(run, tensor_at(value, "ids"))));
  }
  auto state = gpt2_to_huggingface(parameters_by_name(tied));
  EXPECT_EQ(state.size() + 1, file.size()) << "Hugging Face writes no weight of a tied head";
  add_tied_head(state);
  EXPECT_TRUE(state.at("lm_head.weight").is_same(state.at("transformer.wte.weight")));
  const auto equal_head = with_head.at("lm_head.weight");
  for (const auto& own_head : {equal_head + 1, equal_head.to(at::kHalf)}) {
    with_head["lm_head.weight"] = own_head;
    try {
      load_gpt2(tied, with_head);
      FAIL() << "a head of its own was read into a tied one";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("lm_head.weight: differs from transformer.wte.weight"));
    }
  }

  auto wrong = file;
  wrong.erase("ln_f.bias");
  wrong["h.2.ln_1.bias"] = at::zeros({8});
  wrong["wpe.weight"] = at::zeros({1024, 8});
  try {
    load_gpt2(gpt, wrong);
    FAIL() << "weights of another model were accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("transformer.ln_f.bias: missing in the file"));
    EXPECT_THAT(error.what(), testing::HasSubstr("transformer.h.2.ln_1.bias: only in the file"));
    EXPECT_THAT(error.what(),
                testing::HasSubstr("transformer.wpe.weight: [1024, 8] in the file, [16, 8] in the model"));
  }
}

}  // namespace
}  // namespace ddpxx::pt_files_test
