#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/evaluation_mode.hpp>
#include <ddpxx/nn/generate.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/nn/key_value_cache.hpp>
#include <ddpxx/nn/make_model.hpp>

#include "../error_of.hpp"

namespace ddpxx::gpt_test {
namespace {

constexpr std::int64_t kVocabulary = 200;
constexpr std::int64_t kBlock = 64;
constexpr std::array kLayouts{GPTLayout::gpt2, GPTLayout::mingpt_ddp};

GPTConfig small(GPTLayout layout = GPTLayout::gpt2) {
  return {.n_layer = 2, .n_head = 4, .n_embd = 128, .dropout = 0.5, .layout = layout};
}

/// A model whose next token depends strongly on the tokens before, so that two different texts do not agree by chance.
GPT decided_gpt(std::int64_t block_size = 8) {
  at::manual_seed(1);
  GPT gpt{small(), kVocabulary, block_size};
  const c10::NoGradGuard no_grad;
  for (auto& parameter : gpt.parameters())
    if (parameter.dim() == 2) parameter.mul_(10);
  return gpt;
}

PlainCall plain;
LayerRunner run{plain};

at::Tensor some_ids(std::int64_t length) { return (at::arange(length, at::kLong) * 37 % kVocabulary).unsqueeze(0); }

at::Tensor greedy(GPT& gpt, const at::Tensor& ids, std::int64_t tokens) {
  return generate(gpt, run, ids, {.tokens = tokens, .sample = false});
}

std::vector<std::string> names(const GPT& gpt) {
  std::vector<std::string> names;
  for (const auto& item : gpt.named_parameters()) names.push_back(item.key());
  return names;
}

TEST(GPT, Gpt2LayoutHasTheNamesOfMinGPT) {
  std::vector<std::string> expected{"transformer.wte.weight", "transformer.wpe.weight"};
  for (const std::string block : {"transformer.h.0.", "transformer.h.1."})
    for (const char* name : {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                             "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                             "mlp.c_proj.weight", "mlp.c_proj.bias"})
      expected.push_back(block + name);
  for (const char* name : {"transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"})
    expected.push_back(name);
  EXPECT_EQ(names(GPT{small(), kVocabulary, kBlock}), expected);
}

TEST(GPT, MingptDdpLayoutHasTheNamesOfMinGPTDdp) {
  std::vector<std::string> expected{"emb_stem.pos_emb", "emb_stem.tok_emb.weight", "head.weight", "ln_f.bias",
                                    "ln_f.weight"};
  for (const std::string block : {"blocks.0.", "blocks.1."})
    for (const char* name :
         {"attn.attn.in_proj_bias", "attn.attn.in_proj_weight", "attn.attn.out_proj.bias", "attn.attn.out_proj.weight",
          "attn.c_proj.bias", "attn.c_proj.weight", "ln1.bias", "ln1.weight", "ln2.bias", "ln2.weight", "mlp.0.bias",
          "mlp.0.weight", "mlp.2.bias", "mlp.2.weight"})
      expected.push_back(block + name);
  std::sort(expected.begin(), expected.end());
  auto found = names(GPT{small(GPTLayout::mingpt_ddp), kVocabulary, kBlock});
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

TEST(GPT, ConfigurationOfMinGPTDdpHasItsNumberOfParameters) {
  const GPT gpt{{.n_layer = 8, .n_head = 8, .n_embd = 512, .layout = GPTLayout::mingpt_ddp}, 59, 128};
  char text[32];
  std::snprintf(text, sizeof text, "%.2fM", static_cast<double>(gpt.num_block_parameters()) / 1e6);
  EXPECT_STREQ(text, "27.32M");
}

TEST(GPT, EachKindOfParameterBeginsAsInMinGPT) {
  for (const auto layout : kLayouts) {
    at::manual_seed(2);
    const GPT gpt{small(layout), kVocabulary, kBlock};
    for (const auto& item : gpt.named_parameters()) {
      const auto& name = item.key();
      SCOPED_TRACE(name);
      const auto value = item.value().detach().to(at::kDouble);
      const auto largest = value.abs().max().item<double>();
      double expected = 0.02;
      if (name.ends_with("in_proj_weight")) {
        const double bound = std::sqrt(6.0 / (128 + 3 * 128));  // Xavier initialization
        EXPECT_LE(largest, bound + 1e-7);
        expected = bound / std::sqrt(3.0);
      } else if (name.ends_with("c_proj.weight")) {
        expected = 0.02 / std::sqrt(2.0 * 2);
      } else if (name.ends_with("bias") || name.ends_with("pos_emb")) {
        EXPECT_EQ(largest, 0.0);
        continue;
      } else if (value.dim() == 1) {
        EXPECT_TRUE(at::equal(value, at::ones_like(value)));
        continue;
      }
      const auto count = static_cast<double>(value.numel());
      EXPECT_NEAR(value.mean().item<double>(), 0.0, 5 * expected / std::sqrt(count));
      EXPECT_NEAR(value.std().item<double>(), expected, 5 * expected / std::sqrt(2 * count));
    }
  }
}

TEST(GPT, DecaysTheMatricesOfLinearLayersAndNothingElse) {
  for (const auto layout : kLayouts) {
    const GPT gpt{small(layout), kVocabulary, kBlock};
    std::vector<std::string> decaying;
    for (const auto& item : gpt.named_parameters())
      if (gpt.decays(item.key(), item.value())) decaying.push_back(item.key());
    std::vector<std::string> expected;
    for (const auto& name : names(gpt))
      for (const char* linear : {"c_attn.weight", "in_proj_weight", "out_proj.weight", "c_proj.weight", "c_fc.weight",
                                 "mlp.0.weight", "mlp.2.weight", "head.weight"})
        if (name.ends_with(linear)) expected.push_back(name);
    EXPECT_EQ(decaying, expected);
  }
}

TEST(GPT, PresetsAreThoseOfMinGPT) {
  const auto expect_sizes = [](const char* preset, std::int64_t layers, std::int64_t heads, std::int64_t width) {
    const auto sizes = GPTConfig{.model_type = preset}.sizes();
    EXPECT_EQ((std::array{sizes.n_layer, sizes.n_head, sizes.n_embd}), (std::array{layers, heads, width})) << preset;
  };
  expect_sizes("openai-gpt", 12, 12, 768);
  expect_sizes("gpt2", 12, 12, 768);
  expect_sizes("gpt2-medium", 24, 16, 1024);
  expect_sizes("gpt2-large", 36, 20, 1280);
  expect_sizes("gpt2-xl", 48, 25, 1600);
  expect_sizes("gopher-44m", 8, 16, 512);
  expect_sizes("gpt-mini", 6, 6, 192);
  expect_sizes("gpt-micro", 4, 4, 128);
  expect_sizes("gpt-nano", 3, 3, 48);
  const auto sizes = GPTConfig{.model_type = "gpt-mini", .n_layer = 2}.sizes();
  EXPECT_EQ(sizes.n_layer, 2);
  EXPECT_EQ(sizes.n_embd, 192);
}

TEST(GPT, AWidthThatTheHeadsDoNotDivideIsAConfigError) {
  try {
    GPT{{.n_layer = 1, .n_head = 4, .n_embd = 50}, kVocabulary, kBlock};
    FAIL() << "a width of 50 was accepted with 4 heads";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("n_embd: 50 is not divisible by n_head (4); nearest: 48 or 52"),
              std::string::npos)
        << error.what();
  }
}

TEST(GPT, ASizeBelowOneIsAConfigError) {
  for (const auto& [config, message] : {std::pair{GPTConfig{.n_layer = 0}, "model.n_layer: 0 is below 1"},
                                        std::pair{GPTConfig{.n_head = 0}, "model.n_head: 0 is below 1"},
                                        std::pair{GPTConfig{.n_head = -4, .n_embd = 48}, "model.n_head: -4 is below 1"},
                                        std::pair{GPTConfig{.n_embd = 0}, "model.n_embd: 0 is below 1"}}) {
    try {
      GPT{config, kVocabulary, kBlock};
      FAIL() << "no error, where " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_STREQ(error.what(), message);
    }
  }
}

TEST(GPT, ASizeBeyondThisMachineIsAConfigErrorWithTheBytes) {
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  for (const auto& config : {GPTConfig{.n_layer = 1'000'000'000}, GPTConfig{.n_layer = kHuge},
                             GPTConfig{.n_head = 1, .n_embd = kHuge}, GPTConfig{.n_head = 1, .n_embd = 1'000'000}})
    for (const auto layout : {GPTLayout::gpt2, GPTLayout::mingpt_ddp}) {
      auto sized = config;
      sized.layout = layout;
      try {
        const GPT model{sized, 65, 64};
        ADD_FAILURE() << "the model was made";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::config);
        const std::string text = error.what();
        EXPECT_NE(text.find("iB, and this machine has "), std::string::npos) << text;
      }
    }
}

TEST(GPT, CountsItsParametersBeforeItIsMade) {
  for (const auto layout : {GPTLayout::gpt2, GPTLayout::mingpt_ddp}) {
    const GPTConfig config{.n_layer = 2, .n_head = 2, .n_embd = 12, .layout = layout};
    std::int64_t count = 0;
    for (const auto& parameter : GPT{config, 11, 8}.parameters()) count += parameter.numel();
    EXPECT_EQ(GPT::count_parameters(config, 11, 8), static_cast<double>(count));
  }
}

TEST(GPT, ATiedHeadIsOneParameterWithTheTokenEmbedding) {
  for (const auto layout : kLayouts) {
    auto config = small(layout);
    config.dropout = 0;
    GPT own{config, kVocabulary, kBlock};
    config.tied_head = true;
    GPT tied{config, kVocabulary, kBlock};
    const std::string head = layout == GPTLayout::gpt2 ? "lm_head.weight" : "head.weight";
    auto expected = names(own);
    std::erase(expected, head);
    EXPECT_EQ(names(tied), expected);
    std::int64_t count = 0;
    for (const auto& parameter : tied.parameters()) count += parameter.numel();
    EXPECT_EQ(GPT::count_parameters(config, kVocabulary, kBlock), static_cast<double>(count));

    const std::string table = layout == GPTLayout::gpt2 ? "transformer.wte.weight" : "emb_stem.tok_emb.weight";
    const auto from = tied.named_parameters();
    auto into = own.named_parameters();
    {
      const c10::NoGradGuard no_grad;
      for (const auto& item : from) into[item.key()].copy_(item.value());
      into[head].copy_(from[table]);
    }
    const auto ids = some_ids(9);
    const Batch batch{ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), 8};
    EXPECT_TRUE(at::equal(tied.logits(run, batch.inputs), own.logits(run, batch.inputs)));
    tied.forward(run, batch).sum.backward();
    own.forward(run, batch).sum.backward();
    for (const auto& item : from) {
      auto gradient = into[item.key()].grad();
      if (item.key() == table) gradient = gradient + into[head].grad();
      EXPECT_TRUE(at::allclose(item.value().grad(), gradient, 1e-5, 1e-6)) << item.key();
    }
    EXPECT_FALSE(tied.decays(table, from[table])) << "the token embedding does not decay in minGPT";
    const auto copy = std::dynamic_pointer_cast<GPT>(tied.clone());
    EXPECT_EQ(names(*copy), expected);
    EXPECT_TRUE(at::equal(copy->logits(run, batch.inputs), tied.logits(run, batch.inputs)));
  }
}

TEST(GPT, GPT2WithATiedHeadHas124MillionParameters) {
  constexpr std::int64_t kPadded = 50304, kLength = 1024;
  EXPECT_EQ(GPT::count_parameters({.model_type = "gpt2", .tied_head = true}, kPadded, kLength), 124'475'904);
}

TEST(GPT, WithoutBiasesHasAllOtherParameters) {
  for (const auto layout : kLayouts) {
    auto config = small(layout);
    config.dropout = 0;
    auto expected = names(GPT{config, kVocabulary, kBlock});
    const auto count = std::erase_if(expected, [](const auto& name) { return name.ends_with("bias"); });
    EXPECT_EQ(count, 2 * (layout == GPTLayout::gpt2 ? 6U : 7U) + 1U);
    config.bias = false;
    GPT gpt{config, kVocabulary, kBlock};
    EXPECT_EQ(names(gpt), expected);
    std::int64_t numbers = 0;
    for (const auto& item : gpt.named_parameters()) {
      numbers += item.value().numel();
      if (item.value().dim() == 1) EXPECT_FALSE(gpt.decays(item.key(), item.value())) << item.key();
    }
    EXPECT_EQ(GPT::count_parameters(config, kVocabulary, kBlock), static_cast<double>(numbers));

    const auto ids = some_ids(9);
    const auto copy = std::dynamic_pointer_cast<GPT>(gpt.clone());
    EXPECT_EQ(names(*copy), expected);
    EXPECT_TRUE(at::equal(copy->logits(run, ids), gpt.logits(run, ids)));
    config.bias = true;
    GPT with_zeros{config, kVocabulary, kBlock};
    load_gpt2(with_zeros, parameters_by_name(gpt));
    EXPECT_TRUE(at::allclose(with_zeros.logits(run, ids), gpt.logits(run, ids), 1e-5, 1e-6));
    EXPECT_NO_THROW(load_gpt2(gpt, parameters_by_name(with_zeros))) << "zeros change nothing";
    {
      const c10::NoGradGuard no_grad;
      for (auto& item : with_zeros.named_parameters())
        if (item.key().ends_with("ln_f.bias")) item.value()[0] = 1;
    }
    EXPECT_THAT(error_of([&] { load_gpt2(gpt, parameters_by_name(with_zeros)); }),
                testing::EndsWith("the weights of this GPT:\n  biases: only in the file, and this model has none: set "
                                  "bias=true"));
  }
}

TEST(GPT, HasTheGELUOfItsLayoutUnlessAnotherIsSet) {
  for (const auto layout : kLayouts)
    for (const bool fused : {false, true}) {
      const auto logits = [&](std::optional<GELUForm> gelu, bool in_kernels) {
        at::manual_seed(4);
        auto config = small(layout);
        config.dropout = 0;
        config.gelu = gelu;
        config.fused = in_kernels;
        GPT gpt{config, kVocabulary, kBlock};
        const c10::NoGradGuard no_grad;
        for (auto& parameter : gpt.parameters())
          if (parameter.dim() == 2) parameter.mul_(3);  // inputs of GELU for which its forms differ
        return gpt.logits(run, some_ids(kBlock));
      };
      const auto distance = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); };
      const auto own = layout == GPTLayout::gpt2 ? GELUForm::tanh : GELUForm::exact;
      const auto other = layout == GPTLayout::gpt2 ? GELUForm::exact : GELUForm::tanh;
      EXPECT_TRUE(at::equal(logits({}, fused), logits(own, fused)));
      EXPECT_LT(distance(logits(own, fused), logits(own, false)), 2e-5);
      EXPECT_LT(distance(logits(other, fused), logits(other, false)), 2e-5);
      EXPECT_GT(distance(logits(own, fused), logits(other, fused)), 2e-4);
    }
}

TEST(MakeModel, DrawsWeightsThatDependOnTheSeedAlone) {
  const GPTConfig config{.n_layer = 1, .n_head = 1, .n_embd = 8};
  const auto weights = [&](std::uint64_t seed) {
    return torch::nn::utils::parameters_to_vector(make_model<GPT>(seed, at::kCPU, config, 11, 8)->parameters());
  };
  at::manual_seed(1);
  const auto first = weights(7), next = at::rand({3});
  EXPECT_TRUE(at::equal(weights(7), first));
  EXPECT_FALSE(at::equal(weights(8), first));
  at::manual_seed(1);
  EXPECT_TRUE(at::equal(at::rand({3}), next)) << "the program's random number generator was used";
}

TEST(GPT, DoesNotSeeTheFuture) {
  for (const auto layout : kLayouts) {
    GPT gpt{small(layout), kVocabulary, kBlock};
    gpt.eval();
    constexpr std::int64_t kChanged = 20;
    const auto ids = some_ids(kBlock);
    auto other = ids.clone();
    other[0][kChanged] += 1;
    const auto difference = (gpt.logits(run, ids) - gpt.logits(run, other)).abs().amax({0, 2});
    EXPECT_EQ(difference.narrow(0, 0, kChanged).max().item<float>(), 0.0F);
    EXPECT_GT(difference.narrow(0, kChanged, kBlock - kChanged).min().item<float>(), 0.0F)
        << "the change must reach all later positions";
  }
}

TEST(GPT, ATargetOfMinusOneIsLeftOutOfTheLoss) {
  GPT gpt{small(), kVocabulary, kBlock};
  gpt.eval();
  const auto ids = some_ids(9);
  const auto inputs = ids.narrow(1, 0, 8);
  const auto loss_of = [&](const at::Tensor& targets) {
    return gpt.forward(run, Batch{inputs, targets, targets.numel()}).sum.item<double>();
  };
  const auto targets = ids.narrow(1, 1, 8);
  auto first = targets.clone(), second = targets.clone();
  first.narrow(1, 0, 4).fill_(-1);
  second.narrow(1, 4, 4).fill_(-1);
  EXPECT_NEAR(loss_of(first) + loss_of(second), loss_of(targets), 1e-4);
}

TEST(GPT, OfFloat64ComputesInFloat64) {
  const auto ids = some_ids(9);
  const Batch batch{ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), 8};
  const auto loss_of = [&](GPTConfig config) {
    at::manual_seed(3);
    config.dropout = 0;
    GPT gpt{config, kVocabulary, kBlock};
    gpt.to(at::kDouble);
    return gpt.forward(run, batch).sum;
  };
  auto in_chunks = small(), fused = small();
  in_chunks.loss_chunk = 3;
  fused.fused = true;
  const auto expected = loss_of(small());
  EXPECT_EQ(expected.scalar_type(), at::kDouble);
  for (const auto& config : {in_chunks, fused}) {
    const auto loss = loss_of(config);
    EXPECT_EQ(loss.scalar_type(), at::kDouble);
    EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1, 1e-12);
    const AutocastScope autocast{{.enabled = true}};  // which casts no float64
    EXPECT_TRUE(at::equal(loss_of(config), loss));
  }
}

TEST(GPT, ACloneHasTheTypesAndTheFrozenParametersOfItsModel) {
  GPT gpt{small(), kVocabulary, kBlock};
  gpt.to(at::kBFloat16);
  auto parameters = gpt.parameters();
  parameters.front().set_requires_grad(false);
  parameters.back().set_data(parameters.back().to(at::kFloat));
  const auto copies = gpt.clone()->parameters();
  ASSERT_EQ(copies.size(), parameters.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(copies[i].scalar_type(), parameters[i].scalar_type());
    EXPECT_EQ(copies[i].requires_grad(), parameters[i].requires_grad());
    EXPECT_TRUE(at::equal(copies[i], parameters[i]));
    EXPECT_FALSE(copies[i].is_alias_of(parameters[i]));
  }
}

TEST(GPT, ACloneHasTheModesOfTheModulesOfItsModel) {
  GPT gpt{small(), kVocabulary, kBlock};
  const auto modules = gpt.modules(/*include_self=*/false);
  constexpr std::size_t kFirstBlock = 4, kItsFirstNorm = 5;  // behind transformer, wte, wpe and h
  modules[kFirstBlock]->eval();
  modules[kItsFirstNorm]->train();
  const auto copies = gpt.clone()->modules(/*include_self=*/false);
  ASSERT_EQ(copies.size(), modules.size());
  for (std::size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(copies[i]->is_training(), modules[i]->is_training()) << i;
  EXPECT_FALSE(copies[kFirstBlock]->is_training());
}

TEST(GPT, RefusesToCloneWhatItsCopyWouldLack) {
  struct Derived : GPT {
    using GPT::GPT;
  };
  const auto code_of_clone = [](const GPT& gpt) { return code_of([&] { static_cast<void>(gpt.clone()); }); };
  EXPECT_EQ(code_of_clone(Derived{small(), kVocabulary, kBlock}), Errc::config);
  GPT with_parameter{small(), kVocabulary, kBlock};
  with_parameter.register_parameter("scale", at::ones({1}));
  EXPECT_EQ(code_of_clone(with_parameter), Errc::config);
  GPT with_buffer{small(), kVocabulary, kBlock};
  with_buffer.register_buffer("table", at::ones({1}));
  EXPECT_EQ(code_of_clone(with_buffer), Errc::config);
  GPT with_module{small(), kVocabulary, kBlock};
  with_module.register_module("adapter", std::make_shared<torch::nn::Module>());
  EXPECT_EQ(code_of_clone(with_module), Errc::config);
}

TEST(Generate, AppendsTokensAfterThePrompt) {
  auto gpt = decided_gpt();
  const auto prompt = some_ids(3);
  const auto ids = greedy(gpt, prompt, 12);
  EXPECT_EQ(ids.sizes(), (std::vector<std::int64_t>{1, 15}));
  EXPECT_TRUE(at::equal(ids.narrow(1, 0, 3), prompt));
}

TEST(Generate, GreedyTextIsTheSameEachTimeEvenWithDropout) {
  auto gpt = decided_gpt();
  EXPECT_TRUE(at::equal(greedy(gpt, some_ids(3), 12), greedy(gpt, some_ids(3), 12)));
}

TEST(Generate, SamplingFromTheLikeliestTokenOnlyIsGreedy) {
  auto gpt = decided_gpt();
  EXPECT_TRUE(at::equal(generate(gpt, run, some_ids(3), {.tokens = 12, .top_k = 1}), greedy(gpt, some_ids(3), 12)));
}

TEST(Generate, SamplesComeFromTheLikeliestTokensOnly) {
  auto gpt = decided_gpt();
  gpt.eval();
  const auto prompt = some_ids(3).repeat({200, 1});
  const auto allowed = std::get<1>(at::topk(gpt.logits(run, some_ids(3)).select(1, -1), 3)).flatten();
  const auto drawn = std::get<0>(
      at::_unique(generate(gpt, run, prompt, {.tokens = 1, .temperature = 100.0, .top_k = 3}).select(1, 3)));
  EXPECT_TRUE(at::equal(drawn, std::get<0>(allowed.sort())));
}

TEST(Generate, TopPLeavesTheFewestTokensThatReachIt) {
  const auto left = [](const std::vector<double>& probabilities, const GenerateConfig& config) {
    auto scores_BV = at::tensor(probabilities).log().unsqueeze(0) + 3.0;  // scores are known up to a constant
    detail::leave_likely(scores_BV, config);
    std::vector<std::int64_t> tokens;
    for (std::int64_t v = 0; v < scores_BV.size(1); ++v)
      if (std::isfinite(scores_BV[0][v].item<double>())) tokens.push_back(v);
    return tokens;
  };
  using Tokens = std::vector<std::int64_t>;
  const std::vector<double> p{0.1, 0.4, 0.05, 0.3, 0.15};
  EXPECT_EQ(left(p, {.top_p = 0.01}), (Tokens{1}));
  EXPECT_EQ(left(p, {.top_p = 1e-60}), (Tokens{1})) << "a number that is 0 in float32";
  EXPECT_EQ(left(p, {.top_p = 0.39}), (Tokens{1}));
  EXPECT_EQ(left(p, {.top_p = 0.41}), (Tokens{1, 3}));
  EXPECT_EQ(left(p, {.top_p = 0.84}), (Tokens{1, 3, 4}));
  EXPECT_EQ(left(p, {.top_p = 0.86}), (Tokens{0, 1, 3, 4}));
  EXPECT_EQ(left(p, {.top_p = 1.0}), (Tokens{0, 1, 2, 3, 4}));
  // Of the two most likely tokens the first has 4/7: top_p counts what top_k has left.
  EXPECT_EQ(left(p, {.top_k = 2, .top_p = 0.56}), (Tokens{1}));
  EXPECT_EQ(left(p, {.top_k = 2, .top_p = 0.58}), (Tokens{1, 3}));
}

TEST(Generate, SamplesOfTopPComeFromTheLikelyTokens) {
  auto gpt = decided_gpt();
  gpt.eval();
  const auto prompt = some_ids(3).repeat({300, 1});
  auto scores_BV = gpt.logits(run, some_ids(3)).select(1, -1) / 30.0;
  detail::leave_likely(scores_BV, {.top_p = 0.3});
  const auto allowed = at::isfinite(scores_BV)[0].nonzero().flatten();
  ASSERT_GT(allowed.numel(), 3);
  ASSERT_LT(allowed.numel(), 150);
  const auto drawn = generate(gpt, run, prompt, {.tokens = 1, .temperature = 30.0, .top_p = 0.3}).select(1, 3);
  EXPECT_TRUE(at::isin(drawn, allowed).all().item<bool>());
  EXPECT_GT(std::get<0>(at::_unique(drawn)).numel(), 3);
}

TEST(Generate, ACacheGivesTheScoresOfTheWholeText) {
  for (const auto layout : kLayouts) {
    at::manual_seed(3);
    GPT gpt{small(layout), kVocabulary, kBlock};
    const EvaluationMode mode{gpt};
    const auto ids = at::randint(kVocabulary, {2, 20}, at::kLong);
    const auto whole = gpt.logits(run, ids);
    KeyValueCache cache;
    std::vector<at::Tensor> parts;
    for (const std::int64_t length : {5, 1, 1, 4, 9}) {  // with a prompt in two parts
      parts.push_back(gpt.logits(run, ids.narrow(1, cache.num_tokens(), length), cache));
      EXPECT_EQ(parts.back().size(1), length);
    }
    EXPECT_EQ(cache.num_tokens(), 20);
    EXPECT_LT((at::cat(parts, 1) - whole).abs().max().item<double>(), 1e-5);
  }
}

TEST(Generate, GreedyTextIsEqualWithAndWithoutACache) {
  auto gpt = decided_gpt(16);
  const auto prompt = some_ids(6).view({2, 3});
  const auto text = [&](bool cache) {
    return generate(gpt, run, prompt, {.tokens = 30, .sample = false, .cache = cache});  // longer than the context
  };
  EXPECT_TRUE(at::equal(text(true), text(false)));
}

/// Remembers how many tokens each call has computed.
class CountingModel : public torch::nn::Module {
 public:
  std::int64_t block_size() const { return 8; }
  template <class Run>
  at::Tensor logits(Run&, const at::Tensor& ids_BT) {
    counts.push_back(ids_BT.size(1));
    return at::zeros({ids_BT.size(0), ids_BT.size(1), 5});
  }
  template <class Run>
  at::Tensor logits(Run& runner, const at::Tensor& ids_BT, KeyValueCache& cache) {
    const auto some = at::zeros({1, 1, ids_BT.size(1), 1});
    cache.layer(0).append(some, some);
    return logits(runner, ids_BT);
  }
  std::vector<std::int64_t> counts;
};

TEST(Generate, ComputesATokenOnceWhileTheTextFitsTheContext) {
  CountingModel model;
  generate(model, run, some_ids(4), {.tokens = 7});
  EXPECT_EQ(model.counts, (std::vector<std::int64_t>{4, 1, 1, 1, 1, 8, 8}));
  model.counts.clear();
  generate(model, run, some_ids(4), {.tokens = 3, .cache = false});
  EXPECT_EQ(model.counts, (std::vector<std::int64_t>{4, 5, 6}));
}

TEST(Generate, TemperatureMakesTextCertainOrVaried) {
  auto gpt = decided_gpt();
  const auto prompt = some_ids(3).repeat({100, 1});
  const auto kinds = [&](double temperature) {
    const auto next = generate(gpt, run, prompt, {.tokens = 1, .temperature = temperature}).select(1, 3);
    return std::get<0>(at::_unique(next)).numel();
  };
  EXPECT_EQ(kinds(1e-4), 1);
  EXPECT_EQ(kinds(1e-300), 1);
  EXPECT_GT(kinds(1e4), 50);  // 100 draws out of 200
}

TEST(Generate, RefusesSettingsByWhichNoTokenCanBeDrawn) {
  auto gpt = decided_gpt();
  const auto refused = [&](const GenerateConfig& config) {
    try {
      generate(gpt, run, some_ids(3), config);
      return false;
    } catch (const Error& error) {
      return error.code() == Errc::config;
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {0.0, -1.0, nan}) EXPECT_TRUE(refused({.tokens = 1, .temperature = temperature}));
  for (const double top_p : {0.0, -1.0, 1.1, nan}) EXPECT_TRUE(refused({.tokens = 1, .top_p = top_p}));
  const GenerateConfig most_likely{.tokens = 12, .temperature = 0.0, .top_p = 0.0, .sample = false};
  EXPECT_TRUE(at::equal(generate(gpt, run, some_ids(3), most_likely), greedy(gpt, some_ids(3), 12)));
}

/// A model of 16 bits whose logits are those given, at each position.
class ScoredModel : public torch::nn::Module {
 public:
  explicit ScoredModel(at::Tensor scores_V) : scores_V_{std::move(scores_V)} {}
  std::int64_t block_size() const { return 4; }
  template <class Run>
  at::Tensor logits(Run&, const at::Tensor& ids_BT) {
    return scores_V_.expand({ids_BT.size(0), ids_BT.size(1), -1});
  }

 private:
  at::Tensor scores_V_;
};

TEST(Generate, DrawsFromScoresOf16BitsAsFromThoseOfFloat32) {
  const auto prompt = at::zeros({1, 1}, at::kLong);
  // float16 has no number as large as 4 / 1e-5.
  ScoredModel large{at::tensor({1.0, 4.0, 2.0}).to(at::kHalf)};
  EXPECT_EQ(generate(large, run, prompt, {.tokens = 1, .temperature = 1e-5})[0][1].item<std::int64_t>(), 1);
  // Of 2,000 equal tokens top_p leaves half. A sum in bfloat16 stays at 1/4, to which it cannot add 1/2,000.
  ScoredModel even{at::zeros({2000}, at::kBFloat16)};
  const auto drawn = generate(even, run, prompt.expand({4000, 1}), {.tokens = 1, .top_p = 0.5}).select(1, 1);
  EXPECT_NEAR(static_cast<double>(std::get<0>(at::_unique(drawn)).numel()), 1000, 60);
}

TEST(Generate, TheSameRandomNumbersMakeTheSameText) {
  auto gpt = decided_gpt();
  const auto text = [&](std::uint64_t seed) {
    return generate(gpt, run, some_ids(3), {.tokens = 12, .temperature = 10}, at::detail::createCPUGenerator(seed));
  };
  EXPECT_TRUE(at::equal(text(4), text(4)));
  EXPECT_FALSE(at::equal(text(4), text(5)));
}

TEST(Generate, SeesTheLastBlockOfALongText) {
  auto gpt = decided_gpt(8);
  const auto ids = some_ids(30);
  const auto whole = greedy(gpt, ids, 6).narrow(1, 30, 6);
  EXPECT_TRUE(at::equal(whole, greedy(gpt, ids.narrow(1, 22, 8), 6).narrow(1, 8, 6)));
  EXPECT_FALSE(at::equal(whole, greedy(gpt, ids.narrow(1, 0, 8), 6).narrow(1, 8, 6)));
}

TEST(EvaluationMode, LeavesEachModuleInItsOwnMode) {
  torch::nn::ModuleList inner{torch::nn::Dropout{}, torch::nn::Dropout{}};
  torch::nn::ModuleList model{inner, torch::nn::Dropout{}};
  inner->eval();
  inner[1]->train();
  const auto modes = [&] {
    std::vector<bool> all;
    for (const auto& part : model->modules()) all.push_back(part->is_training());
    return all;
  };
  const auto before = modes();
  EXPECT_THAT(before, testing::ElementsAre(true, false, false, true, true));
  {
    const EvaluationMode mode{*model};
    EXPECT_THAT(modes(), testing::Each(false));
  }
  EXPECT_EQ(modes(), before);
}

TEST(Generate, LeavesTheModelInItsMode) {
  auto gpt = decided_gpt();
  for (const bool training : {true, false}) {
    gpt.train(training);
    greedy(gpt, some_ids(3), 2);
    EXPECT_EQ(gpt.is_training(), training);
  }
}

}  // namespace
}  // namespace ddpxx::gpt_test
