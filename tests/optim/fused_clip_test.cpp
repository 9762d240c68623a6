// Clipping by the norm inside AdamW's and Adam's fused step, against clipping in a pass of its own.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/clip.hpp>

namespace ddpxx::fused_clip_test {
namespace {

struct Outcome {
  at::Tensor values, gradients, steps;
  std::vector<at::Tensor> moments;
};

/// Three steps with gradients of a norm of about 11, clipped to `max_norm`; the second step is skipped if `skips`.
template <class Optimizer>
Outcome run(bool fused, double max_norm, bool skips = false) {
  at::manual_seed(5);
  Arena arena{{{"a", at::rand({3, 5}).set_requires_grad(true), 0, 0},
               {"b", at::rand({7}).set_requires_grad(true), 0, 1},
               {"c", at::rand({101}).set_requires_grad(true), 0, 1}}};
  Optimizer optimizer{{.learning_rate = 1e-2, .weight_decay = 0.1}, arena.slices()};
  for (int step = 0; step < 3; ++step) {
    for (const auto& entry : arena.entries()) at::Tensor{entry.gradient}.normal_();
    const auto norm =
        gradient_norm(parameter_gradients(arena.slices()), arena.options(), [](at::Tensor square) { return square; });
    std::optional<at::Tensor> found_inf, divisor;
    if (skips) found_inf = at::full({}, step == 1 ? 1.0 : 0.0);
    if (fused)
      divisor = clip_divisor(norm, max_norm);
    else
      clip_by_norm(arena.slices(), norm, max_norm);
    optimizer.step(1e-2, found_inf, divisor);
  }
  Outcome outcome{{}, arena.gradients().clone(), optimizer.step_count(), {}};
  std::vector<at::Tensor> values;
  for (const auto& entry : arena.entries()) values.push_back(entry.parameter.detach().flatten());
  outcome.values = at::cat(values);
  for (const auto& moment : optimizer.moments())
    for (const auto& slice : moment.slices) outcome.moments.push_back(slice);
  return outcome;
}

template <class Optimizer>
class FusedClip : public testing::Test {};
using Optimizers = testing::Types<AdamW, Adam>;
TYPED_TEST_SUITE(FusedClip, Optimizers);

/// A product with a factor and a quotient by its inverse differ by two roundings.
TYPED_TEST(FusedClip, IsThatOfAPassOfItsOwnButForTheRounding) {
  for (const bool skips : {false, true}) {
    const auto got = run<TypeParam>(true, 0.5, skips), expected = run<TypeParam>(false, 0.5, skips);
    EXPECT_TRUE(at::allclose(got.values, expected.values, 1e-6, 1e-7));
    for (std::size_t i = 0; i < got.moments.size(); ++i)
      EXPECT_TRUE(at::allclose(got.moments[i], expected.moments[i], 1e-5, 1e-8)) << i;
    EXPECT_TRUE(at::equal(got.steps, expected.steps));
    if (!skips) {
      EXPECT_TRUE(at::allclose(got.gradients, expected.gradients, 1e-6, 0)) << "the gradients are left clipped";
    }
  }
  EXPECT_FALSE(at::allclose(run<TypeParam>(true, 0.5).moments[0], run<TypeParam>(true, 1e9).moments[0], 1e-3, 1e-6))
      << "this test would not see whether gradients were clipped";
}

TYPED_TEST(FusedClip, ChangesNoBitOfGradientsBelowTheLimit) {
  const auto got = run<TypeParam>(true, 1e3), expected = run<TypeParam>(false, 1e3);
  EXPECT_TRUE(at::equal(got.values, expected.values));
  EXPECT_TRUE(at::equal(got.gradients, expected.gradients));
  for (std::size_t i = 0; i < got.moments.size(); ++i) EXPECT_TRUE(at::equal(got.moments[i], expected.moments[i])) << i;
}

TEST(ClipDivisor, IsTheInverseOfTheFactorAndKeepsWhatIsNotFinite) {
  EXPECT_EQ(clip_divisor(at::full({}, 0.0), 1.0).item<float>(), 1.0F);
  EXPECT_EQ(clip_divisor(at::full({}, 1.0), 2.0).item<float>(), 1.0F);
  EXPECT_NEAR(clip_divisor(at::full({}, 8.0), 2.0).item<float>(), 4.0F, 1e-5);
  EXPECT_TRUE(std::isinf(clip_divisor(at::full({}, std::numeric_limits<double>::infinity()), 2.0).item<float>()));
  EXPECT_TRUE(std::isnan(clip_divisor(at::full({}, std::nan("")), 2.0).item<float>()));
}

}  // namespace
}  // namespace ddpxx::fused_clip_test
