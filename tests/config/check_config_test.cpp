// Configs that were set in code obey the rules of parse_config, and the errors use its sentences.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/check_config.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::check_config_test {
namespace {

using namespace std::chrono_literals;

enum class Color { red, green };
constexpr auto enum_names(Color) { return std::array{Named{Color::red, "red"}, Named{Color::green, "green"}}; }

struct Sgd {
  double momentum = 0.9;
  static constexpr auto describe() { return fields(field<&Sgd::momentum>("Momentum", between(0.0, 1.0))); }
};
struct NoOptimizer {};

struct Part {
  double rate = 0.1;
  std::int64_t count = 1;
  std::string choice = "a";
  Color color = Color::red;
  std::vector<std::int64_t> sizes = {1};
  std::map<std::string, double> weights;
  std::optional<double> maybe;
  std::chrono::seconds wait{1};
  std::variant<NoOptimizer, Sgd> optimizer;
  std::string secret_word = "x";

  static constexpr auto describe() {
    return fields(field<&Part::rate>("A rate", above(0.0)), field<&Part::count>("A count", at_least(1)),
                  field<&Part::choice>("A choice", choices("a", "b")), field<&Part::sizes>("Sizes", at_least(1)),
                  field<&Part::weights>("Weights", at_least(0.0)), field<&Part::maybe>("Perhaps", below(1.0)),
                  field<&Part::wait>("A while", above(0s)), field<&Part::optimizer>("One", choices("none", "sgd")),
                  field<&Part::secret_word>("Secret", choices("x"), secret()));
  }
  std::vector<FieldError> check() const {
    if (count > 5) return {{"count", "is a warning", Severity::warning}};
    if (count > 2) return {{"count", "is above 2"}, {"", "is no good part"}};
    return {};
  }
};
struct Whole {
  Part part;
  std::int64_t number = 1;
  static constexpr auto describe() { return fields(field<&Whole::number>("A number", at_least(0))); }
};

std::string told(const auto& config, std::string_view path = "") {
  std::string text;
  for (const auto& [field, why, severity] : config_errors(config, path)) text += field + ": " + why + '\n';
  return text;
}

TEST(AConfigOfCode, IsRightWithItsDefaults) { EXPECT_EQ(told(Whole{}), ""); }

TEST(AConfigOfCode, TakesTheBoundOfAFloat) {
  struct Single {
    float low = 0.1F;
    float high = 0.7F;
    static constexpr auto describe() {
      return fields(field<&Single::low>("0.1F is above 0.1", at_most(0.1)),
                    field<&Single::high>("0.7F is below 0.7", at_least(0.7)));
    }
  };
  EXPECT_EQ(told(Single{}), "");
  EXPECT_NE(told(Single{.low = std::nextafter(0.1F, 1.0F)}), "");
  const char* const arguments[] = {"program", "low=0.1", "high=0.7"};
  EXPECT_EQ(parse_config<Single>(3, arguments).low, 0.1F);
  struct Below {
    float rate = 0.05F;
    static constexpr auto describe() { return fields(field<&Below::rate>("An open bound is not taken", below(0.1))); }
  };
  EXPECT_NE(told(Below{.rate = 0.1F}), "");
}

TEST(AConfigOfCode, IsHeldToRangesAndChoices) {
  Whole whole;
  whole.part.rate = -1;
  whole.part.count = 0;
  whole.part.choice = "c";
  whole.part.color = static_cast<Color>(7);
  whole.part.sizes = {1, 0};
  whole.part.weights = {{"a", 1}, {"b", -1}};
  whole.part.maybe = 2;
  whole.part.wait = 0s;
  whole.part.optimizer = Sgd{.momentum = 2};
  whole.part.secret_word = "y";
  whole.number = -1;
  EXPECT_EQ(told(whole),
            "part.rate: \"-1.0\" is out of range (allowed: above 0)\n"
            "part.count: \"0\" is out of range (allowed: at least 1)\n"
            "part.choice: \"c\" is not known (allowed: a or b)\n"
            "part.color: \"7\" is not known (allowed: red or green)\n"
            "part.sizes: item 1: \"0\" is out of range (allowed: at least 1)\n"
            "part.weights: item b: \"-1.0\" is out of range (allowed: at least 0)\n"
            "part.maybe: \"2.0\" is out of range (allowed: below 1)\n"
            "part.wait: \"0s\" is out of range (allowed: above 0s)\n"
            "part.optimizer.momentum: \"2.0\" is out of range (allowed: 0 to 1)\n"
            "part.secret_word: the value of this secret is not taken\n"
            "number: \"-1\" is out of range (allowed: at least 0)\n");
  whole.part.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(told(whole).substr(0, 60), "part.rate: \".nan\" is not a finite number (allowed: above 0)\n");
}

TEST(AConfigOfCode, IsHeldToRulesBetweenFields) {
  Whole whole;
  whole.part.count = 3;
  EXPECT_EQ(told(whole, "run"), "run.part.count: is above 2\nrun.part: is no good part\n");
  whole.part.rate = -1;
  EXPECT_EQ(told(whole), "part.rate: \"-1.0\" is out of range (allowed: above 0)\n")
      << "rules between fields are checked only if each value is valid";
  whole.part = {.count = 6};
  EXPECT_EQ(told(whole), "") << "a warning must not refuse the config";
}

struct Handmade {
  Handmade() = default;
  int value = -1;
  std::vector<FieldError> check() const { return {{"value", "is negative"}}; }
};
struct Opaque {
  Opaque() = default;
  int value = -1;
};
struct Around {  // like Recompute's config: not a config struct, because a file cannot set `chosen`
  Part inner;
  std::function<bool()> chosen;
  int* pointer = nullptr;
};
struct Derived : Part {
  double more = -1;
};

TEST(AConfigOfCode, OfAnotherKindIsAskedForItsRulesOrLeftAlone) {
  EXPECT_EQ(told(Handmade{}, "strategy"), "strategy.value: is negative\n");
  EXPECT_EQ(told(Opaque{}, "strategy"), "");
  Around around;
  around.inner.count = 0;
  EXPECT_EQ(told(around, "strategy"), "strategy.inner.count: \"0\" is out of range (allowed: at least 1)\n");
  Derived derived;
  derived.count = 3;
  EXPECT_EQ(told(derived), "count: is above 2\n: is no good part\n");
}

TEST(AConfigOfCode, IsRefusedWithAllThatIsWrong) {
  Whole whole;
  whole.part.count = 0;
  whole.number = -1;
  try {
    check_config(whole);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(),
                 "part.count: \"0\" is out of range (allowed: at least 1)\n"
                 "number: \"-1\" is out of range (allowed: at least 0)");
  }
}

}  // namespace
}  // namespace ddpxx::check_config_test
