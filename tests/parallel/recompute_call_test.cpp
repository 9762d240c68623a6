// A layer that is run again, and the results that it keeps by run.keep, against the layer without recomputation.
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/recompute.hpp>
#include <ddpxx/layers/tensors_in.hpp>

namespace ddpxx::recompute_call_test {
namespace {

constexpr std::int64_t kWidth = 6;

/// A linear layer that calls `forward` with itself.
template <class Forward>
struct Block : torch::nn::Module, Layer {
  explicit Block(Forward of) : function{std::move(of)} {}
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x) {
    return function(run, *this, x);
  }
  at::Tensor weight = register_parameter("weight", at::randn({kWidth, kWidth}));
  Forward function;
};

/// The result, and the gradients of the input and of the weight.
struct Outcome {
  at::Tensor result, input_gradient, weight_gradient;
};

/// Runs a block by `Wrap`; `behind` computes the result of the model from the block's.
template <class Wrap, class Forward, class Behind>
Outcome outcome(Forward forward, Behind behind) {
  at::manual_seed(5);
  Block block{std::move(forward)};
  const auto x = at::randn({3, kWidth}).requires_grad_();
  Wrap wrap;
  LayerRunner run{wrap};
  const auto result = behind(run(block, x), block);
  result.square().sum().backward();
  return {result.detach(), x.grad(), block.weight.grad()};
}

template <class Forward>
void expect_equal_runs(const Forward& forward) {
  const auto as_it_is = [](const at::Tensor& y, const auto&) { return y; };
  const auto plain = outcome<PlainCall>(forward, as_it_is), again = outcome<RecomputeCall>(forward, as_it_is);
  EXPECT_TRUE(at::equal(again.result, plain.result));
  EXPECT_TRUE(at::equal(again.input_gradient, plain.input_gradient));
  EXPECT_TRUE(at::equal(again.weight_gradient, plain.weight_gradient));
}

TEST(RecomputeCall, KeepsAResultThatDependsOnNoInputAsAConstant) {
  expect_equal_runs([](auto& run, auto& block, const at::Tensor& x) {
    const auto draw = [](const at::Tensor& y) { return at::bernoulli(at::full_like(y, 0.5)); };
    const auto mask = run.keep(draw, x);
    return at::dropout(at::linear(x, block.weight) * mask, 0.3, true);
  });
}

TEST(RecomputeCall, TakesAnUndefinedTensorAsInputOfKeptWork) {
  expect_equal_runs([](auto& run, auto& block, const at::Tensor& x) {
    const auto work = [&block](const at::Tensor& y, const at::Tensor& bias, const at::Tensor& scale) {
      return at::linear(y, block.weight, bias) * scale;
    };
    return run.keep(work, x, at::Tensor{}, x.sigmoid());
  });
}

TEST(RecomputeCall, KeepsAnUndefinedResult) {
  expect_equal_runs([](auto& run, auto& block, const at::Tensor& x) {
    const auto bias = run.keep([](const at::Tensor&) { return at::Tensor{}; }, x);
    return at::linear(x, block.weight, bias);
  });
}

TEST(RecomputeCall, KeepsNothingWithinKeptWork) {
  expect_equal_runs([](auto& run, auto& block, const at::Tensor& x) {
    const auto inner = [&block](const at::Tensor& y) { return at::linear(y, block.weight).tanh(); };
    const auto outer = [&](const at::Tensor& y) { return run.keep(inner, y).square(); };
    return run.keep(outer, x) * 2;
  });
}

TEST(RecomputeCall, TakesNoTupleOfReferences) {
  static_assert(!shows_its_tensors<std::tuple<at::Tensor&>> && !shows_its_tensors<std::pair<const at::Tensor&, int>>);
  static_assert(shows_its_tensors<std::tuple<at::Tensor, int>>);
}

TEST(RecomputeCall, MayGoBackTwiceThroughOneGraph) {
  Block block{[](auto& run, auto& self, const at::Tensor& x) {
    const auto work = [&self](const at::Tensor& y) { return at::linear(y, self.weight).tanh(); };
    return run.keep(work, at::dropout(x, 0.3, true)).square();
  }};
  const auto x = at::randn({3, kWidth}).requires_grad_();
  RecomputeCall wrap;
  LayerRunner run{wrap};
  const auto loss = run(block, x).sum();
  const auto first = torch::autograd::grad({loss}, {x, block.weight}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, {x, block.weight});
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
}

/// The gradients of several uses of a weight are added in 16 bits without recomputation, and in 32 bits with it.
void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_LT((actual - expected).norm().item<double>(), 0.02 * expected.norm().item<double>());
}

/// With the cache of cast weights a weight that several operations share is cast once, in the first of them.
template <class Forward, class Behind>
void expect_gradients_of_all_uses(const Forward& forward, const Behind& behind) {
  const auto plain = [&] {
    const AutocastScope scope{{.enabled = true}};
    return outcome<PlainCall>(forward, behind);
  }();
  const AutocastScope scope{{.enabled = true}};
  const auto again = outcome<RecomputeCall>(forward, behind);
  EXPECT_TRUE(at::equal(again.result, plain.result));
  expect_close(again.weight_gradient, plain.weight_gradient);
  expect_close(again.input_gradient, plain.input_gradient);
}

TEST(RecomputeCall, UnderAutocastLeavesTheGradientOfAWeightThatIsUsedBehindTheLayerToo) {
  expect_gradients_of_all_uses(
      [](auto&, auto& block, const at::Tensor& x) { return at::linear(x, block.weight).tanh(); },
      [](const at::Tensor& y, auto& block) { return at::linear(y, block.weight); });
}

TEST(RecomputeCall, UnderAutocastLeavesTheGradientOfAWeightThatKeptWorkUsesAgain) {
  expect_gradients_of_all_uses(
      [](auto& run, auto& block, const at::Tensor& x) {
        const auto work = [&block](const at::Tensor& y) { return at::linear(y, block.weight).tanh(); };
        return run.keep(work, at::linear(x, block.weight).tanh());
      },
      [](const at::Tensor& y, auto&) { return y; });
}

/// The error of running `block` on `x`, and `behind` on its result.
template <class Block, class Behind>
std::string error_of(Block& block, const at::Tensor& x, const Behind& behind) {
  RecomputeCall wrap;
  LayerRunner run{wrap};
  try {
    behind(run(block, x));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RecomputeCall, RefusesWhatItsSecondRunWouldComputeWrongly) {
  const auto x = at::randn({3, kWidth}).requires_grad_();
  const auto backward = [](const at::Tensor& y) { y.sum().backward(); };
  Block block{[](auto&, auto& self, const at::Tensor& in) { return at::linear(in, self.weight).tanh(); }};
  EXPECT_EQ(error_of(block, x, backward), "no error");
  EXPECT_THAT(error_of(block, x,
                       [&](const at::Tensor& y) {
                         torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
                       }),
              testing::HasSubstr("no second derivative"));
  Block changes{[](auto&, auto& self, const at::Tensor& in) {
    at::Tensor{in}.sub_(0.5);
    return at::linear(in, self.weight);
  }};
  EXPECT_THAT(error_of(changes, x.detach(), backward), testing::HasSubstr("changed an argument in place"));
  Block changes_kept{[](auto& run, auto& self, const at::Tensor& in) {
    const auto work = [&self](const at::Tensor& y) { return at::linear(y, self.weight); };
    auto kept = run.keep(work, in);
    return kept.add_(1.0).square();
  }};
  EXPECT_THAT(error_of(changes_kept, x, backward), testing::HasSubstr("changed a result of run.keep in place"));
  block.weight.register_hook([](const at::Tensor& gradient) { return 0.1 * gradient; });
  EXPECT_THAT(error_of(block, x, backward), testing::HasSubstr("register_hook()"));
}

}  // namespace
}  // namespace ddpxx::recompute_call_test
