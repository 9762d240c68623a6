#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <ddpxx/config/print.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx {
namespace {

using namespace std::chrono_literals;

struct Config {
  std::chrono::seconds timeout{30min};
  std::chrono::milliseconds pause{250ms};
  std::optional<std::chrono::hours> limit;
  std::chrono::nanoseconds exact{1};
};

TEST(ADuration, IsReadExactly) {
  const auto filled = fill<Config>("timeout: 1h30m\npause: 1.5s\nlimit: 2d\nexact: 0.000001ms\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.timeout, 90min);
  EXPECT_EQ(filled.config.pause, 1500ms);
  EXPECT_EQ(filled.config.limit, 48h);
  EXPECT_EQ(filled.config.exact, 1ns);
  EXPECT_EQ(fill<Config>("timeout: -5s\n").config.timeout, -5s);
}

TEST(ADuration, IsPrintedInItsLongestUnitAndReadsBack) {
  Config config{.timeout = 90s, .pause = 0ms, .limit = 26h, .exact = std::chrono::nanoseconds::max()};
  const auto yaml = print_yaml(config);
  EXPECT_EQ(yaml, "timeout: \"90s\"\npause: \"0s\"\nlimit: \"26h\"\nexact: \"9223372036854775807ns\"\n");
  EXPECT_EQ(print_yaml(fill<Config>(yaml).config), yaml);
}

TEST(ADuration, NeedsAUnitThatItIsAMultipleOf) {
  const auto problem = [](const char* argument) {
    const auto problems = fill<Config>("", {argument}).problems;
    return problems.substr(problems.find("\": ") + 3);
  };
  const std::string allowed = " is not a duration (allowed: as 500ms, 30s, 10m, 1h30m, 2d)";
  for (const std::string text : {"5", "5 minuets", "", "m", "5x", "1h30", "1e400s", "3000000d", "0.5ns"})
    EXPECT_EQ(problem(("exact=" + text).c_str()), '"' + text + '"' + allowed);
  EXPECT_EQ(problem("limit=90m"), "\"90m\" is no multiple of 1h");
  EXPECT_EQ(problem("timeout=1500ms"), "\"1500ms\" is no multiple of 1s");
}

}  // namespace
}  // namespace ddpxx
