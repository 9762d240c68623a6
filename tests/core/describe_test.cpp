#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/describe.hpp>

namespace ddpxx::describe_test {
namespace {

struct Other {
  int x = 0;
};
struct Sample {
  double rate = 1;
  std::optional<std::int64_t> layers;
  std::vector<double> betas;
  std::string name;
  bool flag = false;

  static constexpr auto describe() {
    return fields(field<&Sample::rate>("Rate", above(0.0), at_most(1.0), Resume::must_match),
                  field<&Sample::layers>("Layers", Unit::steps, at_least(1)),
                  field<&Sample::betas>("Betas", between(0.0, 1.0)),
                  field<&Sample::name>("Name", choices("a", "b"), resets<&Sample::rate, &Sample::layers>()),
                  field<&Sample::flag>("Flag"));
  }
};

template <auto First, auto Second>
concept CanDescribeTogether = requires { fields(field<First>(""), field<Second>("")); };
static_assert(CanDescribeTogether<&Sample::rate, &Sample::name>);
static_assert(!CanDescribeTogether<&Sample::rate, &Other::x>, "fields of two structs");

template <auto First, auto Second>
concept CanResetTogether = requires { resets<First, Second>(); };
static_assert(CanResetTogether<&Sample::rate, &Sample::name>);
static_assert(!CanResetTogether<&Sample::rate, &Other::x>, "siblings of two structs");

static_assert(Sample::describe()[0].facts.range.low->open, "descriptions are constants");

TEST(Descriptions, HoldTheFactsOfTheirField) {
  const auto entries = Sample::describe();
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].facts.help, "Rate");
  EXPECT_EQ(entries[0].facts.resume, Resume::must_match);
  EXPECT_EQ(entries[0].facts.range.high.value().value, 1.0);
  EXPECT_FALSE(entries[0].facts.range.high.value().open);
  EXPECT_EQ(entries[1].facts.unit, Unit::steps);
  EXPECT_EQ(entries[1].facts.range.low.value().value, 1.0);
  EXPECT_EQ(entries[3].facts.choices.count, 2U);
  EXPECT_EQ(entries[3].facts.choices.names[1], "b");
  EXPECT_FALSE(entries[4].facts.resume.has_value());
}

TEST(Descriptions, FindTheirFieldInAnyObject) {
  const Sample sample;
  const auto entries = Sample::describe();
  EXPECT_EQ(entries[0].address(sample), &sample.rate);
  EXPECT_EQ(entries[3].address(sample), &sample.name);
  EXPECT_EQ(entries[3].facts.resets(&sample), (std::vector<const void*>{&sample.rate, &sample.layers}));
}

TEST(Bounds, SayWhatTheyExclude) {
  EXPECT_TRUE(above(1).low.value().open);
  EXPECT_FALSE(at_least(1).low.value().open);
  EXPECT_TRUE(below(1).high.value().open);
  EXPECT_FALSE(at_most(1).high.value().open);
  EXPECT_FALSE(at_most(1).low.has_value());
}

}  // namespace
}  // namespace ddpxx::describe_test
