// A transformer block as one operation against a block of LibTorch's operations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/gradient_sum.hpp>
#include <ddpxx/flat/sizes_only.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/nn/attention.hpp>
#include <ddpxx/nn/cpu/attention_rows.hpp>
#include <ddpxx/nn/cpu/lanes.hpp>
#include <ddpxx/nn/fused_block.hpp>
#include <ddpxx/nn/gpt.hpp>

#include "../error_of.hpp"

namespace ddpxx::fused_block_test {
namespace {

struct Sizes {
  std::int64_t B, T, C, H;
};

BlockParameters parameters_of(const std::vector<at::Tensor>& all) {
  return {all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10], all[11], all[12]};
}

/// An input and the parameters of a block, in order.
std::vector<at::Tensor> random_tensors(const Sizes& sizes) {
  at::manual_seed(7);
  const auto C = sizes.C;
  const std::vector<std::vector<std::int64_t>> shapes{{sizes.B, sizes.T, C},
                                                      {C},
                                                      {C},
                                                      {3 * C, C},
                                                      {3 * C},
                                                      {C, C},
                                                      {C},
                                                      {C},
                                                      {C},
                                                      {4 * C, C},
                                                      {4 * C},
                                                      {C, 4 * C},
                                                      {C}};
  std::vector<at::Tensor> all;
  for (const auto& shape : shapes) all.push_back(at::randn(shape) * (shape.size() == 2 ? 0.3 : 1.0));
  for (auto& tensor : all) tensor.requires_grad_();
  return all;
}

at::Tensor plain_block(const at::Tensor& x, const BlockParameters& p, std::int64_t heads) {
  const auto C = x.size(2);
  const auto qkv =
      at::linear(at::layer_norm(x, {C}, p.norm_1_weight, p.norm_1_bias), p.qkv_weight, p.qkv_bias).chunk(3, -1);
  const auto attended = causal_attention(qkv[0], qkv[1], qkv[2], heads, 0.0);
  const auto y = x + at::linear(attended, p.projection_weight, p.projection_bias);
  const auto wide = at::linear(at::layer_norm(y, {C}, p.norm_2_weight, p.norm_2_bias), p.widen_weight, p.widen_bias);
  return y + at::linear(at::gelu(wide, "tanh"), p.narrow_weight, p.narrow_bias);
}

/// The result of a block and the gradients of all its inputs, for one incoming gradient.
std::vector<at::Tensor> run(const std::vector<at::Tensor>& all, std::int64_t heads, const auto& block) {
  const auto result = block(all[0], parameters_of(all), heads);
  at::manual_seed(9);
  auto found = torch::autograd::grad({result}, all, {at::randn(result.sizes()).to(result.scalar_type())});
  found.insert(found.begin(), result.detach());
  return found;
}

std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : all) copies.push_back(tensor.detach().to(at::kDouble).requires_grad_());
  return copies;
}

/// The largest distance between two tensors, relative to the largest element.
double distance(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).abs().max() / expected.abs().max()).item<double>();
}

/// A scope in which operations on a CPU autocast to bfloat16.
AutocastScope in_bfloat16() { return AutocastScope{{.device = at::kCPU, .enabled = true, .type = at::kBFloat16}}; }

class FusedBlock : public testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    if (const auto all = random_tensors({1, 1, 8, 1}); !fused_block_runs(all[0], parameters_of(all), 1))
      GTEST_SKIP() << "this processor has no AVX2, which the fused block needs";
  }
};

TEST_P(FusedBlock, IsAsCloseToDoublesAsThePlainOperations) {
  const auto all = random_tensors(GetParam());
  const auto heads = GetParam().H;
  const auto got = run(all, heads, fused_block), plain = run(all, heads, plain_block);
  const auto expected = run(in_double(all), heads, plain_block);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(distance(got[i], expected[i]), 4 * distance(plain[i], expected[i]) + 1e-6) << "tensor " << i;
}

TEST_P(FusedBlock, HasEqualResultsWithSeveralThreads) {
  const auto all = random_tensors(GetParam());
  for (const bool autocast : {false, true}) {
    const AutocastScope scope{{.device = at::kCPU, .enabled = autocast, .type = at::kBFloat16}};
    const auto expected = run(all, GetParam().H, fused_block);
    const auto threads = at::get_num_threads();
    at::set_num_threads(3);
    const auto got = run(all, GetParam().H, fused_block);
    at::set_num_threads(threads);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_LT(distance(got[i], expected[i]), 1e-5) << "tensor " << i << (autocast ? ", autocast" : "");
  }
}

// Both round to bfloat16, but not the same sums, so that either may be a little closer.
TEST_P(FusedBlock, InBFloat16IsAsCloseToDoublesAsAutocast) {
  const auto all = random_tensors(GetParam());
  const auto heads = GetParam().H;
  const auto expected = run(in_double(all), heads, plain_block);
  const auto scope = in_bfloat16();
  const auto got = run(all, heads, fused_block), plain = run(all, heads, plain_block);
  const auto error = [&](const at::Tensor& found, std::size_t i) {
    return (found - expected[i]).norm().item<double>();
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kFloat) << "tensor " << i;
    EXPECT_LE(error(got[i], i), 2.5 * error(plain[i], i)) << "tensor " << i;
  }
}

TEST_P(FusedBlock, InBFloat16RoundsTheOperandsOfItsProducts) {
  const auto all = random_tensors(GetParam());
  const auto with_floats = run(all, GetParam().H, fused_block);
  const auto scope = in_bfloat16();
  const auto got = run(all, GetParam().H, fused_block);
  // The gradient of the last bias is the sum of the gradients that come in.
  EXPECT_TRUE(got.back().equal(with_floats.back()));
  for (std::size_t i = 0; i + 1 < got.size(); ++i) EXPECT_GT(distance(got[i], with_floats[i]), 1e-5) << "tensor " << i;
}

std::string name_of(const testing::TestParamInfo<Sizes>& given) {
  const auto& [B, T, C, H] = given.param;
  return std::to_string(B) + "x" + std::to_string(T) + "x" + std::to_string(C) + "in" + std::to_string(H);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedBlock,
                         testing::Values(Sizes{1, 1, 8, 1}, Sizes{3, 5, 24, 3}, Sizes{2, 24, 16, 2},
                                         Sizes{2, 67, 48, 3}, Sizes{4, 64, 64, 1}, Sizes{2, 128, 128, 4},
                                         Sizes{5, 49, 32, 2}, Sizes{2, 33, 24, 1}, Sizes{1, 300, 128, 2}),
                         name_of);

class OneFusedBlock : public FusedBlock {};
INSTANTIATE_TEST_SUITE_P(Shape, OneFusedBlock, testing::Values(Sizes{2, 9, 16, 2}));

TEST_P(OneFusedBlock, SeesNoLaterToken) {
  auto all = random_tensors(GetParam());
  const auto before = fused_block(all[0], parameters_of(all), 2).detach();
  all[0] = all[0].detach().clone();
  all[0].select(1, 8).fill_(3.0);
  const auto after = fused_block(all[0], parameters_of(all), 2).detach();
  EXPECT_TRUE(before.narrow(1, 0, 8).equal(after.narrow(1, 0, 8)));
  EXPECT_FALSE(before.select(1, 8).equal(after.select(1, 8)));
}

TEST_P(OneFusedBlock, KeepsNaN) {
  for (const std::size_t place : {std::size_t{0}, std::size_t{3}, std::size_t{9}, std::size_t{10}}) {
    auto all = random_tensors(GetParam());
    all[place] = all[place].detach().clone();
    all[place].view({-1})[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(fused_block(all[0], parameters_of(all), 2).isnan().any().item<bool>()) << "tensor " << place;
    const auto scope = in_bfloat16();
    EXPECT_TRUE(fused_block(all[0], parameters_of(all), 2).isnan().any().item<bool>()) << "tensor " << place;
  }
}

TEST_P(OneFusedBlock, ComputesNoGradientOfAFrozenParameter) {
  auto all = random_tensors(GetParam());
  const auto expected = run(all, 2, fused_block);
  for (std::size_t frozen = 1; frozen < all.size(); ++frozen) {
    auto some = all;
    some[frozen] = all[frozen].detach();
    const auto result = fused_block(some[0], parameters_of(some), 2);
    at::manual_seed(9);
    result.backward(at::randn(result.sizes()));
    EXPECT_FALSE(some[frozen].grad().defined());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i != frozen) {
        EXPECT_TRUE(all[i].grad().equal(expected[i + 1])) << "tensor " << i << " beside " << frozen;
      }
      all[i].mutable_grad().reset();
    }
  }
}

TEST_P(OneFusedBlock, TakesAnInputAndAGradientInAnyOrderOfMemory) {
  auto all = random_tensors(GetParam());
  const auto expected = run(all, 2, fused_block);
  const auto strided = all[0].detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_();
  const auto result = fused_block(strided, parameters_of(all), 2);
  at::manual_seed(9);
  const auto gradient = at::randn(result.sizes()).transpose(1, 2).contiguous().transpose(1, 2);
  const auto got = torch::autograd::grad({result}, {strided}, {gradient});
  EXPECT_TRUE(result.equal(expected[0]));
  EXPECT_TRUE(got[0].equal(expected[1]));
}

TEST_P(OneFusedBlock, RefusesWhatItCannotCompute) {
  const auto all = random_tensors(GetParam());
  const auto p = parameters_of(all);
  EXPECT_FALSE(fused_block_runs(all[0].to(at::kBFloat16), p, 2));
  EXPECT_FALSE(fused_block_runs(all[0], p, 4)) << "heads of width 4";
  EXPECT_FALSE(fused_block_runs(all[0], p, 0)) << "no heads";
  EXPECT_FALSE(fused_block_runs(all[0][0], p, 2)) << "two dimensions";
  for (std::size_t i = 1; i < all.size(); ++i) {
    auto wrong = all;
    wrong[i] = all[i].detach().to(at::kBFloat16);
    EXPECT_FALSE(fused_block_runs(all[0], parameters_of(wrong), 2)) << "the type of tensor " << i;
    wrong[i] = at::ones({all[i].size(0) + 8, 3});
    EXPECT_FALSE(fused_block_runs(all[0], parameters_of(wrong), 2)) << "the sizes of tensor " << i;
    wrong[i].reset();
    EXPECT_FALSE(fused_block_runs(all[0], parameters_of(wrong), 2)) << "no tensor " << i << ", such as a bias";
  }
  auto strided = all;
  strided[5] = all[5].detach().t();
  EXPECT_FALSE(fused_block_runs(all[0], parameters_of(strided), 2)) << "a transposed weight";
  {
    const AutocastScope scope{{.device = at::kCPU, .enabled = true, .type = at::kHalf}};
    EXPECT_FALSE(fused_block_runs(all[0], p, 2)) << "autocast to float16";
  }
  EXPECT_THROW(fused_block(all[0].to(at::kDouble), p, 2), Error);
  const auto result = fused_block(all[0], p, 2);
  EXPECT_THROW(torch::autograd::grad({result}, {all[0]}, {at::ones_like(result)}, true, true), Error);
}

TEST_P(OneFusedBlock, GoesBackwardTwiceWhereItsGraphIsRetained) {
  const auto all = random_tensors(GetParam());
  const auto result = fused_block(all[0], parameters_of(all), 2).sum();
  const auto first = torch::autograd::grad({result}, {all[0], all[3]}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({result}, {all[0], all[3]});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
  EXPECT_THAT(error_of([&] { torch::autograd::grad({result}, {all[0]}); }), testing::HasSubstr("called a second time"));
}

TEST_P(OneFusedBlock, RefusesToGoBackwardWithWhatWasChangedMeanwhile) {
  const auto all = random_tensors(GetParam());
  for (const std::size_t changed : {0U, 3U, 12U}) {
    auto input = (all[0] * 1).detach().requires_grad_();
    const auto x = input * 1;  // no leaf, which may be changed in place
    const auto result = fused_block(x, parameters_of(all), 2).sum();
    {
      const at::NoGradGuard no_grad;
      (changed == 0 ? x : all[changed]).mul_(1);
    }
    EXPECT_THROW(torch::autograd::grad({result}, {input}), Error) << "tensor " << changed;
  }
}

TEST_P(OneFusedBlock, HasAGraphOnlyWhereAGradientIsWanted) {
  auto all = random_tensors(GetParam());
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(fused_block(all[0], parameters_of(all), 2).requires_grad());
  }
  for (auto& tensor : all) tensor = tensor.detach();
  EXPECT_FALSE(fused_block(all[0], parameters_of(all), 2).requires_grad());
  all[12].requires_grad_();  // the last bias only
  const auto result = fused_block(all[0], parameters_of(all), 2);
  EXPECT_TRUE(result.requires_grad());
  const auto gradient = torch::autograd::grad({result.sum()}, {all[12]})[0];
  EXPECT_TRUE(at::allclose(gradient, at::full_like(gradient, static_cast<double>(all[0].size(0) * all[0].size(1)))));
}

TEST_P(OneFusedBlock, IsNotUsedWhereOnlySizesAreWanted) {
  const auto all = random_tensors(GetParam());
  const SizesOnly sizes_only;
  EXPECT_FALSE(fused_block_runs(all[0], parameters_of(all), 2));
}

TEST_P(OneFusedBlock, GivesAResultThatMayBeChangedInPlace) {
  const auto all = random_tensors(GetParam());
  auto result = fused_block(all[0], parameters_of(all), 2);
  result.mul_(2.0);
  at::manual_seed(9);
  const auto got = torch::autograd::grad({result}, {all[0]}, {at::randn(result.sizes())});
  EXPECT_LT(distance(got[0], 2 * run(all, 2, fused_block)[1]), 1e-6);
}

TEST_P(OneFusedBlock, HasTheTypesOfItsForwardPassInBackwardWhateverAutocastIsThen) {
  const auto all = random_tensors(GetParam());
  const auto weight_gradient = [&](const at::Tensor& result) {
    return torch::autograd::grad({result}, {all[3]}, {at::ones_like(result)}, true)[0];
  };
  const auto result = fused_block(all[0], parameters_of(all), 2);
  const auto expected = weight_gradient(result);
  at::Tensor result_in_bfloat16, expected_in_bfloat16;
  {
    const auto scope = in_bfloat16();
    EXPECT_TRUE(weight_gradient(result).equal(expected));
    result_in_bfloat16 = fused_block(all[0], parameters_of(all), 2);
    expected_in_bfloat16 = weight_gradient(result_in_bfloat16);
  }
  EXPECT_TRUE(weight_gradient(result_in_bfloat16).equal(expected_in_bfloat16));
  EXPECT_FALSE(expected_in_bfloat16.equal(expected));
}

TEST_P(OneFusedBlock, WritesTheGradientsOfItsParametersIntoTheirPlaces) {
  const auto all = random_tensors({4, 33, 16, 2});  // enough rows for two threads
  struct Case {
    int uses;  // with two, autograd adds the gradients of two operations
    bool autocast;
    int threads;
  };
  const auto threads_before = at::get_num_threads();
  for (const auto& [uses, autocast, threads] :
       std::vector<Case>{{1, false, 1}, {2, false, 1}, {1, true, 1}, {1, false, 3}, {1, true, 3}}) {
    at::set_num_threads(threads);
    const auto backward = [&, uses = uses, autocast = autocast] {
      const AutocastScope scope{{.device = at::kCPU, .enabled = autocast, .type = at::kBFloat16}};
      auto x = all[0];
      for (int use = 0; use < uses; ++use) x = fused_block(x, parameters_of(all), 2);
      x.sum().backward();
    };
    backward();
    std::vector<NamedParameter> parameters;
    std::vector<at::Tensor> expected;
    for (std::size_t i = 1; i < all.size(); ++i) {
      parameters.push_back({std::to_string(i), all[i]});
      expected.push_back(std::exchange(all[i].mutable_grad(), {}).clone());
    }
    Arena arena{parameters};
    GradientSum sum{arena};
    std::size_t in_place = 0;
    const GradientHooks hooks{arena,
                              [&](std::size_t i, const at::Tensor& gradient) {
                                in_place += gradient.const_data_ptr() == arena[i].gradient.const_data_ptr();
                                sum.add(i, gradient);
                              },
                              [&](std::size_t i) { return sum.place(i); }};
    sum.begin_pass();
    backward();
    EXPECT_EQ(in_place, uses == 1 ? 12U : 0U);
    for (std::size_t i = 0; i < arena.size(); ++i) {
      const auto& want = expected[static_cast<std::size_t>(std::stoi(arena[i].name)) - 1];
      EXPECT_TRUE(at::equal(arena[i].gradient, want)) << "tensor " << arena[i].name << ", " << uses << " uses, "
                                                      << threads << " threads" << (autocast ? ", autocast" : "");
    }
    for (std::size_t i = 1; i < all.size(); ++i) all[i].mutable_grad().reset();
  }
  at::set_num_threads(threads_before);
}

#if defined(__x86_64__)
/// Calls `run(lanes)` with each number of lanes that this processor has.
void in_all_lanes(const auto& run) {
  detail::with_avx2(run);
  if (detail::cpu_has_avx512()) detail::with_avx512(run);
}

TEST_P(OneFusedBlock, HasAnExponentialWithinTwoUnitsInTheLastPlaceThatKeepsNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> from{kNaN, -kNaN, -kInfinity, -1e30F, -87.5F, 88.5F, 1e30F, kInfinity};
  for (float x = -87.0F; from.size() < 100'000; x += 175.0F / 100'000) from.push_back(x);
  std::vector<float> to(from.size());
  in_all_lanes([&](auto lanes) __attribute__((always_inline)) {
    for (std::size_t i = 0; i < from.size(); i += lanes())
      detail::store(&to[i], detail::exp_of(detail::load<lanes()>(&from[i])));
    EXPECT_TRUE(std::isnan(to[0]) && std::isnan(to[1]));
    for (std::size_t i = 2; i < from.size(); ++i) {
      const double expected = std::exp(static_cast<double>(std::clamp(from[i], -87.0F, 88.0F)));
      ASSERT_NEAR(to[i] / expected, 1.0, 2 * 0x1p-23) << from[i] << " in " << lanes() << " lanes";
    }
    float of_nan[lanes()];
    detail::store(of_nan, detail::exp_of(detail::Floats<lanes()>{kNaN}));
    EXPECT_TRUE(std::isnan(of_nan[0])) << "of a constant, in " << lanes() << " lanes";
  });
}

TEST_P(OneFusedBlock, HasTheSameAttentionInEachNumberOfLanes) {
  constexpr std::int64_t kTokens = 43, kWidth = 16;
  const detail::HeadSizes sizes{.tokens = kTokens, .width = kWidth, .stride = 3 * kWidth, .out_stride = kWidth};
  at::manual_seed(7);
  const auto qkv = at::randn({kTokens, 3 * kWidth}), bias = at::randn({3 * kWidth}),
             d_out = at::randn({kTokens, kWidth});
  const auto parts = [](auto* first) {
    return detail::HeadParts<std::remove_pointer_t<decltype(first)>>{first, first + kWidth, first + 2 * kWidth};
  };
  std::vector<std::vector<at::Tensor>> found;  // for each number of lanes
  in_all_lanes([&](auto lanes) __attribute__((always_inline)) {
    const auto out = at::empty({kTokens, kWidth}), log_sums = at::empty({kTokens}), d_qkv = at::empty_like(qkv);
    const auto buffer = at::empty({sizes.backward_buffer()});
    detail::attend(lanes, sizes, parts(qkv.const_data_ptr<float>()), parts(bias.const_data_ptr<float>()),
                   out.mutable_data_ptr<float>(), log_sums.mutable_data_ptr<float>(), buffer.mutable_data_ptr<float>());
    detail::attend_backward(lanes, sizes, parts(qkv.const_data_ptr<float>()), parts(bias.const_data_ptr<float>()),
                            detail::HeadGradient<float>{out.const_data_ptr<float>(), log_sums.const_data_ptr<float>(),
                                                        d_out.const_data_ptr<float>()},
                            parts(d_qkv.mutable_data_ptr<float>()), buffer.mutable_data_ptr<float>());
    found.push_back({out, log_sums, d_qkv});
  });
  if (found.size() == 1) GTEST_SKIP() << "this processor has no AVX-512, so that 8 lanes are all it has";
  for (std::size_t i = 0; i < found[0].size(); ++i)
    EXPECT_LT(distance(found[1][i], found[0][i]), 1e-5) << "tensor " << i;
}

TEST_P(OneFusedBlock, RoundsToBFloat16AsLibTorchDoes) {
  // All bits of the upper half, with lower halves at, below and above the middle between two numbers of bfloat16.
  std::vector<float> from;
  for (std::uint32_t upper = 0; upper <= 0xFFFF; ++upper)
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      from.push_back(std::bit_cast<float>(upper << 16 | lower));
  in_all_lanes([&](auto lanes) __attribute__((always_inline)) {
    std::vector<c10::BFloat16> to(from.size());
    for (std::size_t i = 0; i < from.size(); i += lanes()) detail::store(&to[i], detail::load<lanes()>(&from[i]));
    for (std::size_t i = 0; i < from.size(); ++i) {
      const c10::BFloat16 expected{from[i]};
      if (std::isnan(from[i]))
        ASSERT_TRUE(std::isnan(static_cast<float>(to[i]))) << std::bit_cast<std::uint32_t>(from[i]);
      else
        ASSERT_EQ(to[i].x, expected.x) << std::bit_cast<std::uint32_t>(from[i]);
    }
  });
}
#endif

/// The operations of autograd between the result of a model and its inputs.
std::size_t operations_behind(const at::Tensor& result) {
  std::vector<torch::autograd::Node*> seen, next{result.grad_fn().get()};
  while (!next.empty()) {
    auto* const node = next.back();
    next.pop_back();
    if (node == nullptr || std::find(seen.begin(), seen.end(), node) != seen.end()) continue;
    seen.push_back(node);
    for (const auto& edge : node->next_edges()) next.push_back(edge.function.get());
  }
  return seen.size();
}

TEST_P(OneFusedBlock, IsWhatAGPTUsesWithoutDropoutOnly) {
  const auto operations = [](bool fused, double dropout, bool training, GPTLayout layout) {
    const GPTConfig config{
        .n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = dropout, .layout = layout, .fused = fused};
    GPT gpt{config, 11, 8};
    gpt.train(training);
    PlainCall plain;
    LayerRunner runner{plain};
    return operations_behind(gpt.logits(runner, at::arange(8, at::kLong).view({1, 8})));
  };
  // Twelve parameters and the block; stem and head have as many operations in each case.
  const auto at_once = operations(true, 0.0, true, GPTLayout::gpt2);
  EXPECT_LT(at_once + 8, operations(false, 0.0, true, GPTLayout::gpt2));
  EXPECT_EQ(at_once, operations(true, 0.1, false, GPTLayout::gpt2));
  EXPECT_LT(at_once + 8, operations(true, 0.1, true, GPTLayout::gpt2));
  EXPECT_LT(at_once + 8, operations(true, 0.0, true, GPTLayout::mingpt_ddp));
  const auto scope = in_bfloat16();  // stem and head have some casts in addition
  EXPECT_LT(operations(true, 0.0, true, GPTLayout::gpt2) + 8, operations(false, 0.0, true, GPTLayout::gpt2));
}

}  // namespace
}  // namespace ddpxx::fused_block_test
