// Reads tensors of a Python program into a model by their names.
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/torch_state.hpp>

#include "../error_of.hpp"
#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::torch_state_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// The network of state_dict.py.
struct Net : torch::nn::Module {
  Net() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(norm(conv(x)).flatten(1)); }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions{1, 2, 3}};
  torch::nn::BatchNorm2d norm{2};
  torch::nn::Linear head{32, 3};
};

TEST(LoadStateDict, GivesAModelTheNumbersOfPython) {
  const TemporaryFolder folder;
  run_python("../interop/state_dict.py", {folder.path().string()});
  Net net;
  net.eval();
  const auto unmatched = load_state_dict(net, read_model_file(folder / "net.pt"));
  EXPECT_THAT(unmatched.missing, IsEmpty());
  EXPECT_THAT(unmatched.unexpected, IsEmpty());
  const auto file = read_pt(folder / "computed.pt");
  const auto& computed = file.get<PickleDict>("the file");
  const auto& outputs = computed.find("outputs")->get<at::Tensor>("outputs");
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(net.forward(computed.find("inputs")->get<at::Tensor>("inputs")), outputs));
  EXPECT_EQ(net.norm->num_batches_tracked.item<std::int64_t>(), 3);
  EXPECT_TRUE(net.conv->weight.requires_grad() && net.conv->weight.is_leaf());
}

/// The tensors of another network, in float64.
NamedTensors others() {
  Net other;
  other.to(at::kDouble);
  auto tensors = state_dict(other);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().clone();
  return tensors;
}

TEST(LoadStateDict, RefusesOtherNamesAndShapesAndChangesNothing) {
  auto tensors = others();
  tensors.erase("conv.bias");
  tensors["head.weight"] = at::zeros({7, 32});
  tensors["more.weight"] = at::zeros({1});
  Net net;
  const auto before = net.norm->weight.detach().clone().fill_(5);
  {
    const c10::NoGradGuard no_grad;
    net.norm->weight.fill_(5);
  }
  const auto text = error_of([&] { load_state_dict(net, tensors); });
  EXPECT_THAT(text, HasSubstr("these are not the tensors of this model:"));
  EXPECT_THAT(text, HasSubstr("\n  conv.bias: missing in the file"));
  EXPECT_THAT(text, HasSubstr("\n  head.weight: [7, 32] in the file, [3, 32] in the model"));
  EXPECT_THAT(text, HasSubstr("\n  more.weight: only in the file"));
  EXPECT_TRUE(at::equal(net.norm->weight, before));

  const auto of_shape = error_of([&] { load_state_dict(net, tensors, Strict::no); });
  EXPECT_THAT(of_shape, HasSubstr("head.weight: [7, 32] in the file"));
  EXPECT_THAT(of_shape, Not(HasSubstr("missing")));
  EXPECT_TRUE(at::equal(net.norm->weight, before));
}

TEST(LoadStateDict, LeavesOutOtherNamesWhereItIsNotStrict) {
  auto tensors = others();
  tensors.erase("head.weight");
  tensors["more.weight"] = at::zeros({1});
  Net net;
  const auto head = net.head->weight.detach().clone();
  const auto unmatched = load_state_dict(net, tensors, Strict::no);
  EXPECT_THAT(unmatched.missing, ElementsAre("head.weight"));
  EXPECT_THAT(unmatched.unexpected, ElementsAre("more.weight"));
  EXPECT_TRUE(at::equal(net.head->weight, head));
  EXPECT_EQ(net.conv->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(net.conv->weight, tensors["conv.weight"].to(at::kFloat)));
}

/// A model that registers one layer under two names.
struct Tied : torch::nn::Module {
  Tied() {
    register_module("first", layer);
    register_module("second", layer);
  }
  torch::nn::Linear layer{torch::nn::LinearOptions{2, 2}.bias(false)};
};

TEST(LoadStateDict, NeedsOneNameOfATensorThatHasTwo) {
  for (const auto& names :
       {std::vector<std::string>{"first.weight"}, {"second.weight"}, {"first.weight", "second.weight"}}) {
    Tied tied;
    NamedTensors tensors;
    for (const auto& name : names) tensors.emplace(name, at::full({2, 2}, 3.0));
    const auto unmatched = load_state_dict(tied, tensors);
    EXPECT_THAT(unmatched.missing, IsEmpty());
    EXPECT_TRUE(at::equal(tied.layer->weight, at::full({2, 2}, 3.0))) << names.front();
  }
  Tied tied;
  EXPECT_THAT(error_of([&] { load_state_dict(tied, {}); }), HasSubstr("first.weight: missing in the file"));
}

}  // namespace
}  // namespace ddpxx::torch_state_test
