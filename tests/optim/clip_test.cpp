// Clipping by value and by the norm on slices of flat memory, compared with torch's clip_grad_value_ and
// clip_grad_norm_.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/clip.hpp>

namespace ddpxx::clip_test {
namespace {

Arena make_arena() {
  at::manual_seed(5);
  Arena arena{{{"a", at::rand({3, 5}).set_requires_grad(true), 0, 0},
               {"b", at::rand({7}).set_requires_grad(true), 0, 1},
               {"c", at::rand({33}).set_requires_grad(true), 0, 1}}};
  for (const auto& entry : arena.entries()) at::Tensor{entry.gradient}.normal_();
  at::Tensor{arena[1].gradient}[0].fill_(std::numeric_limits<float>::infinity());
  at::Tensor{arena[1].gradient}[1].fill_(-std::numeric_limits<float>::infinity());
  return arena;
}

TEST(ClipByValue, IsThatOfTorch) {
  for (const double max_value : {0.0, 0.3, 100.0}) {
    const auto arena = make_arena();
    ASSERT_EQ(arena.slices().size(), 2U);
    std::vector<at::Tensor> values;
    for (const auto& entry : arena.entries()) {
      values.push_back(at::zeros_like(entry.parameter));
      values.back().mutable_grad() = entry.gradient.clone();
    }
    clip_by_value(arena.slices(), max_value);
    torch::nn::utils::clip_grad_value_(values, max_value);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(at::equal(arena[i].gradient, values[i].grad())) << arena[i].name << " at " << max_value;
  }
}

TEST(ClipByValue, LeavesGapsAtZeroAndANaNForTheNormToFind) {
  const auto arena = make_arena();
  at::Tensor{arena[2].gradient}[4].fill_(std::nan(""));
  clip_by_value(arena.slices(), 0.3);
  auto gaps = arena.gradients().clone();
  for (const auto& entry : arena.entries()) Arena::part(gaps, entry).zero_();
  EXPECT_TRUE(at::equal(gaps, at::zeros_like(gaps)));
  EXPECT_TRUE(std::isnan(arena[2].gradient[4].item<float>()));
  EXPECT_EQ(arena.gradients().isnan().sum().item<std::int64_t>(), 1);
}

TEST(ClipByValue, RefusesAnInvalidBound) {
  const auto arena = make_arena();
  const auto before = arena.gradients().clone();
  for (const double wrong : {-1.0, std::nan("")}) {
    try {
      clip_by_value(arena.slices(), wrong);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("give a bound of at least 0"), std::string::npos);
    }
  }
  EXPECT_TRUE(at::equal(arena.gradients(), before));
}

/// The factors are those that Python prints for this line, with limits that are not powers of two:
///   torch.clamp(max_norm / (torch.tensor(norm, dtype=type) + 1e-6), max=1.0).item()
TEST(ClipByNorm, HasTheFactorOfPythonBitForBit) {
  struct Case {
    at::ScalarType type;
    double max_norm, norm, factor;
  };
  const std::vector<Case> cases{{at::kFloat, 5.0, 11.0, 0.45454543828964233},
                                {at::kFloat, 5.0, 23.7, 0.2109704315662384},
                                {at::kFloat, 0.3, 11.0, 0.027272727340459824},
                                {at::kFloat, 0.3, 2.5, 0.119999960064888},
                                {at::kFloat, 1.0, 11.0, 0.090909086167812347},
                                {at::kFloat, 5.0, 0.7, 1.0},
                                {at::kDouble, 0.3, 17.9, 0.016759775600012534},
                                {at::kBFloat16, 0.3, 3.1, 0.0966796875},
                                {at::kHalf, 5.0, 7.3, 0.6845703125}};
  for (const auto& [type, max_norm, norm, factor] : cases) {
    const Arena arena{{{"a", at::zeros({2}, type).set_requires_grad(true), 0, 0}}};
    at::Tensor{arena[0].gradient}.fill_(1.0);
    clip_by_norm(arena.slices(), at::full({}, norm, type), max_norm);
    EXPECT_EQ(arena[0].gradient[0].item<double>(), factor)
        << c10::toString(type) << ", norm " << norm << ", limit " << max_norm;
  }
}

TEST(GradientNorm, Of16BitsIsThatOfTorch) {
  at::manual_seed(6);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const std::vector<at::Tensor> gradients{at::randn({300}).mul_(20).to(type), at::randn({7, 11}).to(type)};
    const auto norm = gradient_norm(gradients, gradients[0].options(), [](const at::Tensor& square) { return square; });
    ASSERT_GT(norm.item<double>(), 256);  // float16 does not hold its square
    EXPECT_EQ(norm.scalar_type(), type);
    EXPECT_TRUE(at::equal(norm, at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)))));
  }
}

}  // namespace
}  // namespace ddpxx::clip_test
