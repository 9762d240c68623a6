#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/number.hpp>

namespace ddpxx::number_test {
namespace {

TEST(Number, IsNotRoundedToTheSixteenBitsOfTheOtherFactor) {
  at::manual_seed(1);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto values = at::randn({1000}, type);
    EXPECT_TRUE(at::equal(values.clone().mul_(as_number(0.3)), (values.to(at::kFloat) * 0.3F).to(type))) << type;
  }
}

TEST(Number, DoesNotChangeTheTypeOfTheProduct) {
  const auto value = at::full({}, 0.3, at::kFloat);
  EXPECT_EQ((value * as_number(1.0 / 3)).scalar_type(), at::kFloat);
  EXPECT_EQ((value.to(at::kDouble) * as_number(0.1)).item<double>(), value.item<double>() * 0.1);
}

}  // namespace
}  // namespace ddpxx::number_test
