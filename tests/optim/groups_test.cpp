// Optimizers refuse parameters in groups that they do not have, and decay rates of 1.
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>

#include "../config/filled.hpp"

namespace ddpxx {
namespace {

template <class O>
class Optimizer : public testing::Test {};
using Optimizers = testing::Types<AdamW, Adam, SGD>;
TYPED_TEST_SUITE(Optimizer, Optimizers);

TYPED_TEST(Optimizer, RefusesASliceOfAGroupThatItDoesNotHave) {
  for (const int group : {-1, 2, 1 << 30}) try {
      const Arena arena{
          {{"a", at::ones({16}).requires_grad_(), 0, 0}, {"b", at::ones({16}).requires_grad_(), 0, group}}};
      const TypeParam optimizer{{}, arena.slices()};
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_THAT(error.what(), testing::StartsWith("a parameter was put into optimizer group " +
                                                    std::to_string(group) + ", but this optimizer has the groups 0"));
    }
}

template <class O>
class Momentum : public testing::Test {};
using Adams = testing::Types<AdamW, Adam>;
TYPED_TEST_SUITE(Momentum, Adams);

TYPED_TEST(Momentum, IsBelowOneAsInTorch) {
  using Config = typename TypeParam::Config;
  for (const std::string name : {"beta1", "beta2"}) {
    for (const char* good : {"0", "0.999999"}) EXPECT_EQ(fill<Config>(name + ": " + good).problems, "");
    for (const char* bad : {"1", "1.5", "-0.1"})
      EXPECT_THAT(fill<Config>(name + ": " + bad).problems, testing::HasSubstr(name + ": " + bad)) << bad;
  }
}

}  // namespace
}  // namespace ddpxx
