// Optimizers refuse parameters in groups that they do not have, and decay rates of 1.
#include <cstddef>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/optim/sgd.hpp>

#include "../config/filled.hpp"

namespace ddpxx::groups_test {
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

TYPED_TEST(Optimizer, RefusesASliceOfAGroupBehindTheLastOfItsTable) {
  const Arena arena{{{"a", at::ones({16}).requires_grad_(), 0, 0}, {"b", at::ones({16}).requires_grad_(), 0, 3}}};
  const std::vector<ParameterGroup> groups(3);
  try {
    const TypeParam optimizer{{}, arena.slices(), groups};
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::EndsWith("has the groups 0 (weights that decay) to 2 only"));
  }
}

TYPED_TEST(Optimizer, RefusesALearningRateOfAGroupIfItsPeakIsZero) {
  const Arena arena{{{"a", at::ones({16}).requires_grad_(), 0, 0}}};
  const std::vector<ParameterGroup> groups{{.learning_rate = 0.1}};
  typename TypeParam::Config config;
  config.learning_rate = 0;
  try {
    const TypeParam optimizer{config, arena.slices(), groups};
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), testing::HasSubstr("the optimizer's learning_rate is 0"));
  }
}

TEST(GroupTable, HasTheSettingsOfTheOptimizerUnlessAGroupHasItsOwn) {
  const std::vector<ParameterGroup> groups{{.decays = true},
                                           {.decays = false},
                                           {.decays = false, .learning_rate = 0.2},
                                           {.decays = true, .weight_decay = 0.0},
                                           {.decays = true, .learning_rate = 0.0, .weight_decay = 0.5}};
  const GroupTable table{groups, 0.1, 0.25};
  std::vector<double> rates, decays;
  for (std::size_t group = 0; group < table.size(); ++group) {
    rates.push_back(table.learning_rate(group, 0.05));  // half of the peak
    decays.push_back(table.weight_decay(group));
  }
  EXPECT_EQ(rates, (std::vector<double>{0.05, 0.05, 0.1, 0.05, 0.0}));
  EXPECT_EQ(decays, (std::vector<double>{0.25, 0.0, 0.0, 0.0, 0.5}));
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
}  // namespace ddpxx::groups_test
