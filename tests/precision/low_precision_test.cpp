// Parameters in 16 bits: which parameters are converted, in which format their gradients are summed, and which keep
// their type.
#include <optional>
#include <set>
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/precision/low_precision.hpp>

namespace ddpxx::low_precision_test {
namespace {

TEST(LowPrecision, HoldsEveryParameterInItsTypeAndSumsInFloat32) {
  const NumberFormats formats = LowPrecision<>{{}}.formats();
  EXPECT_EQ(formats.of("transformer.h.0.ln_1.weight"), at::kBFloat16);
  EXPECT_EQ(formats.of("lm_head.weight"), at::kBFloat16);
  EXPECT_EQ(formats.reduction, at::kFloat);
}

TEST(LowPrecision, SumsInTheTypeOfTheParametersIfAsked) {
  EXPECT_EQ(LowPrecision<>{{.reduction = GradientSums::parameters}}.formats().reduction, at::kBFloat16);
  EXPECT_EQ(LowPrecision<at::kHalf>{{.reduction = GradientSums::parameters}}.formats().reduction, at::kHalf);
}

TEST(LowPrecision, TakesAnyRuleForWhatIsKept) {
  struct KeepHead {
    bool operator()(const std::string& name) const { return name == "head.weight"; }
  };
  const NumberFormats formats = LowPrecision<at::kBFloat16, KeepHead>{{}}.formats();
  EXPECT_EQ(formats.of("head.weight"), std::nullopt);
  EXPECT_EQ(formats.of("tail.weight"), at::kBFloat16);
}

TEST(LowPrecision, CastsFloatingPointInputsAndNothingElse) {
  const LowPrecision<> precision{{}};
  const Batch floats{at::rand({2, 3}), at::rand({2}), 2}, doubles{at::rand({2, 3}, at::kDouble), at::rand({2}), 2},
      ids{at::ones({2, 3}, at::kLong), at::ones({2}, at::kLong), 2};
  EXPECT_TRUE(at::equal(precision.cast_inputs(floats).inputs, floats.inputs.to(at::kBFloat16)));
  EXPECT_EQ(precision.cast_inputs(floats).targets.scalar_type(), at::kFloat);
  EXPECT_EQ(precision.cast_inputs(doubles).inputs.scalar_type(), at::kBFloat16);
  EXPECT_EQ(precision.cast_inputs(ids).inputs.scalar_type(), at::kLong);
  EXPECT_FALSE(precision.cast_inputs(Batch{}).inputs.defined());
  struct Points {
    at::Tensor points;
  };
  EXPECT_EQ(precision.cast_inputs(Points{at::rand({2})}).points.scalar_type(), at::kFloat);
}

TEST(LowPrecision, OnlyFloat16ScalesTheLoss) {
  EXPECT_FALSE(scales_loss<LowPrecision<>>);
  EXPECT_TRUE(scales_loss<LowPrecision<at::kHalf>>);
  const auto scaler = LowPrecision<at::kHalf>{{.scaler = {.initial_scale = 4.0}}}.make_scaler(at::kCPU);
  EXPECT_TRUE(at::equal(scaler.scale(at::ones({})), at::scalar_tensor(4.0F)));
}

struct Table : torch::nn::Module {
  Table() {
    rows = register_parameter("rows", at::ones({4}, at::kLong), /*requires_grad=*/false);
    head = register_parameter("head", at::ones({4}));
  }
  at::Tensor rows, head;
};

TEST(LowPrecision, ConvertsFloatingPointParametersOnly) {
  Table model;
  const FlatModel flat{model, {}, LowPrecision<>{{}}.formats()};
  EXPECT_EQ(flat.trainable().at(0).format, at::kBFloat16);
  EXPECT_EQ(flat.frozen().at(0).format, std::nullopt) << "integers were to be rounded to bfloat16";
}

TEST(LowPrecision, RefusesAModelWhoseTrainedParametersHaveNoExactValues) {
  struct KeepAll {
    bool operator()(const std::string&) const { return true; }
  };
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    Table model;
    model.rows.set_data(model.rows.to(type));
    EXPECT_NO_THROW((FlatModel{model, {}, LowPrecision<>{{}}.formats()})) << "a frozen parameter needs no exact values";
    model.head.set_data(model.head.to(type));
    EXPECT_NO_THROW(FlatModel{model}) << "no copy for the optimizer is asked for";
    for (const auto& formats : {LowPrecision<>{{}}.formats(), LowPrecision<at::kHalf>{{}}.formats(),
                                LowPrecision<at::kHalf, KeepAll>{{}}.formats()})
      try {
        const FlatModel flat{model, {}, formats};
        ADD_FAILURE() << "a parameter of 16 bits was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::config);
        EXPECT_NE(std::string{error.what()}.find("parameter \"head\" has 16 bits"), std::string::npos) << error.what();
        EXPECT_NE(std::string{error.what()}.find("convert the model to float32 first"), std::string::npos);
      }
  }
}

TEST(LowPrecision, CpusComputeInBothTypes) {
  EXPECT_NO_THROW(LowPrecision<>::check(at::kCPU));
  EXPECT_NO_THROW(LowPrecision<at::kHalf>::check(at::kCPU));
}

TEST(LowPrecision, ItsSettingsHaveNamesForTheUser) {
  EXPECT_NE(table_of<LowPrecision<>::Config>().find("reduction"), nullptr);
  EXPECT_EQ(table_of<LowPrecision<>::Config>().find("scaler.initial_scale"), nullptr);
  for (const auto* key :
       {"reduction", "scaler.initial_scale", "scaler.growth_factor", "scaler.backoff_factor", "scaler.growth_interval"})
    EXPECT_NE(table_of<LowPrecision<at::kHalf>::Config>().find(key), nullptr) << key;
}

TEST(KeepNorms, KeepsTheNormsOfAGptInBothLayoutsAndNothingElse) {
  for (const auto layout : {GPTLayout::gpt2, GPTLayout::mingpt_ddp}) {
    GPT model{{.layout = layout}, /*vocab_size=*/11, /*block_size=*/4};
    std::set<const void*> norms;
    for (const auto& module : model.modules(/*include_self=*/false))
      if (dynamic_cast<const LayerNorm*>(module.get()) != nullptr)
        for (const auto& parameter : module->parameters()) norms.insert(parameter.unsafeGetTensorImpl());
    EXPECT_EQ(norms.size(), 2 * (2 * 3 + 1))
        << "expected the weight and bias of two norms in each block and of the last norm";
    const FlatModel flat{model, {}, LowPrecision<at::kBFloat16, KeepNorms>{{}}.formats()};
    for (const auto& parameter : flat.trainable())
      EXPECT_EQ(parameter.format.has_value(), !norms.contains(parameter.tensor.unsafeGetTensorImpl()))
          << parameter.name;
  }
}

TEST(KeepNorms, KnowsANormByAPartOfItsName) {
  const KeepNorms kept;
  for (const auto* name : {"ln.weight", "ln1.bias", "h.0.ln_2.weight", "ln_f.weight", "encoder.layer_norm.bias",
                           "batchnorm2.running_mean", "norm"})
    EXPECT_TRUE(kept(name)) << name;
  for (const auto* name :
       {"", "weight", "lnk.weight", "h.0.vuln_1.weight", "aln.weight", "lm_head.weight", "attn.c_attn.bias"})
    EXPECT_FALSE(kept(name)) << name;
}

}  // namespace
}  // namespace ddpxx::low_precision_test
