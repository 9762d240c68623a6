#include <string>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/gradient_sum.hpp>

namespace ddpxx::arena_test {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return at::rand(sizes).set_requires_grad(true); }

TEST(Arena, KeepsValuesAndMakesThemViewsOfOneMemory) {
  auto a = leaf({3, 5}), b = leaf({7});
  const auto a_before = a.detach().clone(), b_before = b.detach().clone();
  const Arena arena{{{"a", a}, {"b", b}}};
  EXPECT_TRUE(at::equal(a, a_before));
  EXPECT_TRUE(at::equal(b, b_before));
  EXPECT_TRUE(a.is_leaf() && a.requires_grad());
  EXPECT_TRUE(arena.segments()[0].values.storage().is_alias_of(a.storage()));
  at::Tensor{arena.segments()[0].values}.fill_(2.0);
  EXPECT_TRUE(at::equal(b.detach(), at::full({7}, 2.0)));
}

TEST(Arena, AlignsEveryParameterTo64BytesAndZeroesTheGaps) {
  const Arena arena{{{"a", leaf({3, 5})}, {"b", leaf({1})}, {"c", leaf({16})}}};
  for (const auto& entry : arena.entries()) EXPECT_EQ(entry.offset % 16, 0) << entry.name;
  const auto& values = arena.segments()[0].values;
  EXPECT_EQ(values.numel(), 16 + 16 + 16);
  EXPECT_EQ(values[15].item<float>(), 0.0F);
  EXPECT_TRUE(at::equal(values.narrow(0, 17, 15), at::zeros({15})));
}

TEST(Arena, CutsSlicesWhereTheGroupChanges) {
  const Arena arena{{{"a", leaf({2}), 1, 0}, {"b", leaf({2}), 1, 0}, {"c", leaf({2}), 1, 1}, {"d", leaf({2}), 0, 1}}};
  const auto slices = arena.slices();
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].end, 32);
  EXPECT_EQ(slices[1].group, 1);
  EXPECT_EQ(slices[1].begin, slices[0].end);
  EXPECT_EQ(slices[1].end, arena.numel());
}

TEST(Arena, CutsEverySegmentIntoPiecesThatTogetherAreTheWhole) {
  for (const auto cut : {CutAt::formats, CutAt::units, CutAt::bytes}) {
    std::vector<at::Tensor> pieces;
    std::vector<std::int64_t> covered;
    for (int piece = 0; piece < 3; ++piece) {
      const Arena arena{{{"a", at::full({5, 7}, 1.0).set_requires_grad(true), 1, 0},
                         {"b", at::full({3}, 2.0).set_requires_grad(true), 1, 1},
                         {"c", at::full({1}, 3.0).set_requires_grad(true), 0, 1}},
                        {.gradients = Gradients::piece,
                         .masters = Masters::apart,
                         .pieces = 3,
                         .piece = piece,
                         .cut = cut,
                         .first_segment_bytes = 64,
                         .segment_bytes = 64}};
      EXPECT_EQ(arena.segments().size(), cut == CutAt::formats ? 1u : cut == CutAt::units ? 2u : 3u);
      double sum = 0;
      for (const auto& slice : arena.slices()) {
        covered.push_back(slice.end - slice.begin);
        EXPECT_EQ(slice.values.numel(), slice.end - slice.begin);
        EXPECT_EQ(slice.gradients.numel(), slice.end - slice.begin);
        EXPECT_EQ(slice.begin % 16, 0) << "a slice must start at a multiple of 64 bytes";
        sum += slice.values.sum().item<double>();
      }
      pieces.push_back(at::tensor(sum));
    }
    EXPECT_EQ(at::stack(pieces).sum().item<float>(), 35 + 6 + 3);
  }
}

TEST(Arena, KeepsACopyForTheOptimizerWhereTheModelComputesInAnotherFormat) {
  auto a = at::full({20}, 1.0 / 3.0).set_requires_grad(true), b = at::full({4}, 1.0 / 3.0).set_requires_grad(true);
  const Arena arena{{{"a", a, 0, 0, at::kBFloat16}, {"b", b}}};
  ASSERT_EQ(arena.segments().size(), 2u);
  EXPECT_EQ(a.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(a.is_leaf() && a.requires_grad());
  EXPECT_EQ(b.scalar_type(), at::kFloat);
  EXPECT_EQ(arena.slices()[0].values[0].item<double>(), static_cast<double>(1.0F / 3.0F))
      << "the value was rounded to a 16-bit format";
  EXPECT_EQ(arena.gradients().scalar_type(), at::kFloat);
  at::Tensor{arena.slices()[0].values}.fill_(2.0);
  arena.publish_masters();
  EXPECT_TRUE(at::equal(a.detach(), at::full({20}, 2.0, at::kBFloat16)));
}

TEST(Arena, NoticesAParameterThatHasLeft) {
  auto a = leaf({4});
  const Arena arena{{{"weight", a}}};
  EXPECT_TRUE(arena.owns(0));
  a.set_data(at::zeros({4}));
  EXPECT_FALSE(arena.owns(0));
  try {
    arena.check_owned();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("\"weight\" has left the flat memory"), std::string::npos);
  }
}

TEST(Arena, NoticesAChangeInPlaceThatItsCopyWouldOverwrite) {
  auto a = leaf({20}), b = leaf({4});
  const Arena arena{{{"a", a, 0, 0, at::kBFloat16}, {"b", b}}};
  const c10::NoGradGuard no_grad;
  at::Tensor{arena.slices()[0].values}.fill_(2.0);
  arena.publish_masters();
  b.clamp_(0, 0.1);  // the optimizer steps the memory that the model computes with: the change stays
  EXPECT_NO_THROW(arena.check_unchanged());
  a.clamp_(0, 0.1);
  EXPECT_THAT([&] { arena.check_unchanged(); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("parameter \"a\" was changed in place")));
  arena.publish_masters();
  EXPECT_NO_THROW(arena.check_unchanged()) << "the change is undone";
}

TEST(Arena, ForgetsChangesThatItsCopyHasReplaced) {
  auto a = leaf({20});
  Arena arena{{{"a", a, 0, 0, at::kBFloat16}}, {.pieces = 2, .piece = 0}};
  const c10::NoGradGuard no_grad;
  a.clamp_(0, 0.1);
  EXPECT_THROW(arena.check_unchanged(), Error);
  arena.forget_changes();
  EXPECT_NO_THROW(arena.check_unchanged());
}

TEST(Arena, KeepsAChangeOfAFrozenParameterInPlace) {
  auto a = leaf({20}).requires_grad_(false);
  const Arena arena{{{"a", a, 0, 0, at::kBFloat16}}};
  a.clamp_(0, 0.1);
  EXPECT_NO_THROW(arena.check_unchanged());
}

TEST(Arena, RefusesMixedTypesNamingBothParameters) {
  try {
    const Arena arena{{{"a", leaf({4})}, {"b", at::zeros({2}, at::kDouble)}}};
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(
        error.what(),
        "parameters of one model must share dtype and device, but \"b\" is Double on cpu and \"a\" is Float on cpu: "
        "convert the model by to() before the trainer takes it");
  }
}

TEST(Arena, RefusesAComplexParameterAmongRealOnesAndSaysHowToHoldIt) {
  EXPECT_THAT(([] {
                const Arena arena{{{"a", leaf({4})}, {"b", at::zeros({2}, at::kComplexFloat)}}};
              }),
              testing::ThrowsMessage<Error>(testing::HasSubstr("call at::view_as_complex() in forward")));
}

struct Block : torch::nn::Module, Layer {
  Block() {
    register_parameter("weight", at::rand({4, 4}));
    register_parameter("bias", at::rand({4}));
  }
};
struct Net : torch::nn::Module {
  Net() {
    register_parameter("stem", at::rand({4}));
    blocks = {register_module("0", std::make_shared<Block>()), register_module("1", std::make_shared<Block>())};
    register_parameter("head", at::rand({4}));
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

std::string order_of(const std::vector<NamedParameter>& parameters) {
  std::string names;
  for (const auto& parameter : parameters) names += parameter.name + " ";
  return names;
}

TEST(FlatModel, LaysOutUnitsInReverseThenGroupsThenTheRoot) {
  Net net;
  const FlatModel flat{net, [](const std::string&, const at::Tensor& p) { return p.dim() == 2 ? 0 : 1; }};
  EXPECT_EQ(order_of(flat.trainable()), "1.weight 1.bias 0.weight 0.bias head stem ");
}

TEST(FlatModel, KeepsFrozenParametersApart) {
  Net net;
  for (auto& p : net.blocks[0]->parameters()) p.set_requires_grad(false);
  const FlatModel flat{net};
  EXPECT_EQ(order_of(flat.frozen()), "0.bias 0.weight ");
  EXPECT_EQ(order_of(flat.trainable()), "1.bias 1.weight head stem ");
}

TEST(FlatModel, GivesASharedParameterToTheRootOnce) {
  struct Tied : torch::nn::Module {
    Tied() {
      auto block = std::make_shared<Block>();
      register_parameter("tied", block->parameters()[0]);
      register_module("block", block);
    }
  } net;
  const FlatModel flat{net};
  ASSERT_EQ(flat.trainable().size(), 2u);
  EXPECT_EQ(order_of(flat.trainable()), "block.bias tied ");
}

TEST(FlatModel, RefusesAModelWithNothingToTrain) {
  Net net;
  for (auto& p : net.parameters()) p.set_requires_grad(false);
  EXPECT_THROW(FlatModel{net}, Error);
}

TEST(FlatModel, RefusesALayerInsideALayer) {
  struct Outer : torch::nn::Module, Layer {
    Outer() { register_module("inner", std::make_shared<Block>()); }
  };
  struct Nested : torch::nn::Module {
    Nested() { register_module("outer", std::make_shared<Outer>()); }
  } net;
  EXPECT_THROW(FlatModel{net}, Error);
}

TEST(GradientSum, AddsBackwardPassesAndScalesOnce) {
  auto w = leaf({3});
  Arena arena{{{"w", w}}};
  GradientSum sum{arena};
  GradientHooks hooks{arena, [&](std::size_t i, const at::Tensor& gradient) { sum.add(i, gradient); }};
  sum.begin_pass();
  (w * 2).sum().backward();
  EXPECT_FALSE(w.grad().defined()) << "the hook drops .grad";
  (w * 3).sum().backward();
  sum.publish();
  EXPECT_TRUE(at::equal(arena.gradients().narrow(0, 0, 3), at::full({3}, 5.0)));
  EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 5.0))) << ".grad must show the reduced gradient";
  sum.begin_pass();
  (w * 4).sum().backward();
  sum.publish();
  EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 4.0))) << "the next step must replace the gradient, not add to it";
}

/// The product of 0.3 with a third, or of 1.7, has another last bit if it is computed in float64 and then rounded.
TEST(GradientSum, ScalesAGradientWithoutDimensionsAsANumberDoes) {
  auto w = leaf({});
  Arena arena{{{"w", w}}};
  GradientSum sum{arena};
  constexpr double kThird = 1.0 / 3;
  for (const double value : {0.1, 0.3, 1.7, 2.3}) {
    const auto gradient = at::full({}, value, at::kFloat);
    EXPECT_TRUE(sum.add(0, gradient, kThird));
    EXPECT_TRUE(at::equal(arena[0].gradient, gradient * kThird)) << value;
    sum.publish();
  }
}

TEST(GradientSum, TakesASparseGradient) {
  auto w = leaf({3});
  Arena arena{{{"w", w}}};
  GradientSum sum{arena};
  const auto sparse = [](double value) {
    return at::sparse_coo_tensor(at::tensor({0, 2, 2}, at::kLong).unsqueeze(0), at::full({3}, value, at::kFloat), {3});
  };
  sum.add(0, sparse(1.0));
  EXPECT_TRUE(at::equal(arena[0].gradient, at::tensor({1.0F, 0.0F, 2.0F})));
  sum.add(0, sparse(2.0));
  EXPECT_TRUE(at::equal(arena[0].gradient, at::tensor({3.0F, 0.0F, 6.0F})));
  sum.publish();
  EXPECT_TRUE(sum.add(0, sparse(1.0), 0.5)) << "the first gradient is scaled while it is copied";
  EXPECT_TRUE(at::equal(arena[0].gradient, at::tensor({0.5F, 0.0F, 1.0F})));
}

TEST(GradientSum, WhatWasNeverWrittenIsZero) {
  auto used = leaf({2}), unused = leaf({2});
  Arena arena{{{"used", used}, {"unused", unused}}};
  at::Tensor{arena.gradients()}.fill_(9.0);
  GradientSum sum{arena};
  EXPECT_TRUE(sum.add(0, at::ones({2}), 0.5));
  sum.publish();
  EXPECT_TRUE(at::equal(used.grad(), at::full({2}, 0.5)));
  EXPECT_TRUE(at::equal(unused.grad(), at::zeros({2})));
}

TEST(GradientSum, GivesThePlaceOfAFirstGradientOnceInAPass) {
  auto w = leaf({3}), other = leaf({3});
  Arena arena{{{"w", w}}};
  GradientSum sum{arena};
  const GradientHooks hooks{arena, [&](std::size_t i, const at::Tensor& gradient) { sum.add(i, gradient); },
                            [&](std::size_t i) { return sum.place(i); }};
  EXPECT_FALSE(GradientHooks::place_of(other).defined()) << "a parameter of no arena";
  EXPECT_FALSE(GradientHooks::place_of(w).defined()) << "no pass has begun";
  sum.begin_pass();
  const auto place = GradientHooks::place_of(w);
  ASSERT_TRUE(place.defined());
  EXPECT_EQ(place.const_data_ptr(), arena[0].gradient.const_data_ptr());
  EXPECT_FALSE(GradientHooks::place_of(w).defined()) << "another operation of this pass has taken it";
  at::Tensor{place}.fill_(6.0);
  EXPECT_FALSE(sum.add(0, place, 0.5)) << "nothing is copied, so that the caller has to scale it";
  EXPECT_TRUE(at::equal(arena[0].gradient, at::full({3}, 6.0)));
  sum.begin_pass();
  EXPECT_FALSE(GradientHooks::place_of(w).defined()) << "the gradient of a second pass is added";
  sum.publish();
  EXPECT_FALSE(GradientHooks::place_of(w).defined()) << "the step is over";
  sum.begin_pass();
  EXPECT_TRUE(GradientHooks::place_of(w).defined()) << "the next step replaces the gradient";
}

TEST(GradientHooks, AreRemovedWithTheObject) {
  auto w = leaf({2});
  Arena arena{{{"w", w}}};
  int calls = 0;
  {
    const GradientHooks hooks{arena, [&](std::size_t, const at::Tensor&) { ++calls; }};
    w.sum().backward();
  }
  w.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(w.grad().defined());
}

TEST(FlatModel, RefusesParametersThatShareMemoryWithoutBeingOne) {
  torch::nn::Sequential model{torch::nn::Linear{2, 2}, torch::nn::Linear{2, 2}};
  const FlatModel apart{*model};
  EXPECT_EQ(apart.trainable().size(), 4U);
  const auto weight_of = [&](std::size_t i) { return model[i]->as<torch::nn::Linear>()->weight; };
  weight_of(1).set_data(weight_of(0).data());
  try {
    const FlatModel flat{*model};
    FAIL() << "the weights would be separated";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "parameters \"0.weight\" and \"1.weight\" share memory, but a trainer gives each parameter its own, so "
        "that they would be trained apart: register one tensor in both modules");
  }
}

TEST(FlatModel, RefusesParametersThatOverlap) {
  struct Parts : torch::nn::Module {
    Parts(const at::Tensor& first, const at::Tensor& second) {
      register_parameter("first", first);
      register_parameter("second", second);
    }
  };
  const auto memory = at::zeros({4, 6});
  const auto overlapping = [&](std::int64_t begin, std::int64_t rows, bool second_trains) {
    Parts parts{memory.narrow(0, 0, 2).set_requires_grad(true),
                memory.narrow(0, begin, rows).set_requires_grad(second_trains)};
    try {
      const FlatModel flat{parts};
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("parameters \"first\" and \"second\" share memory"));
      return true;
    }
    return false;
  };
  EXPECT_TRUE(overlapping(1, 2, true));
  EXPECT_TRUE(overlapping(1, 1, false));
  EXPECT_TRUE(overlapping(0, 4, false));
  EXPECT_FALSE(overlapping(2, 2, true));
  Parts columns{memory.narrow(1, 0, 3).set_requires_grad(true), memory.narrow(1, 3, 3).set_requires_grad(true)};
  EXPECT_EQ(FlatModel{columns}.trainable().size(), 2U);
}

}  // namespace
}  // namespace ddpxx::arena_test
