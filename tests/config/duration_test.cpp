#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <ratio>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/show/schema.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::duration_test {
namespace {

using namespace detail;
using namespace std::chrono_literals;

struct Config {
  std::chrono::seconds timeout{30min};
  std::chrono::milliseconds pause{250ms};
  std::optional<std::chrono::hours> limit;
  std::chrono::nanoseconds exact{1};
};

struct Limited {
  std::chrono::milliseconds pause{250ms};
  std::optional<std::chrono::seconds> limit;
  std::chrono::seconds timeout{30min};
  std::vector<std::chrono::seconds> steps;
  static constexpr auto describe() {
    return fields(field<&Limited::pause>("Between tries", at_least(100ms), below(10)),
                  field<&Limited::limit>("In all", above(0)), field<&Limited::timeout>("", between(1min, 1h)),
                  field<&Limited::steps>("", at_most(1.5)));
  }
};

struct Short {
  std::chrono::duration<std::int16_t> wait{1};
  std::chrono::duration<std::uint32_t, std::milli> pause{1};
};

TEST(ADuration, HasFiniteBounds) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto add = [](const Range& range) {
    FieldFacts facts;
    detail::add_fact<Limited, std::chrono::milliseconds>(facts, range);
    return range_text(facts.range);
  };
  EXPECT_EQ(add(at_most(1h)), "at most 1h");
  for (const auto& range : {at_most(kInfinity), above(-kInfinity), below(std::nan("")), at_most(1e10)})
    EXPECT_THROW(add(range), std::invalid_argument);
}

TEST(ADuration, IsReadExactly) {
  EXPECT_EQ(fill<Config>("limit: 48:00:00\n").config.limit, fill<Config>("limit: 2880min\n").config.limit);
  EXPECT_EQ(fill<Config>("limit: 48:00:00\n").problems, "");
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

TEST(ADuration, OfMoreThan292YearsIsPrintedAs292Years) {
  using Seconds = std::chrono::seconds;
  EXPECT_EQ(ConfigCodec<Seconds>::print(Seconds::max()), "\"9223372036s\"");
  EXPECT_EQ(ConfigCodec<Seconds>::print(Seconds::min()), "\"-9223372036s\"");
  using UnsignedHours = std::chrono::duration<std::uint64_t, std::ratio<3600>>;
  EXPECT_EQ(ConfigCodec<UnsignedHours>::print(UnsignedHours::max()), "\"2562047h\"");
}

TEST(ADuration, HasARangeOfDurationsOrSeconds) {
  EXPECT_EQ(fill<Limited>("pause: 100ms\nlimit: 1s\ntimeout: 1h\nsteps: [1s, -5s]\n").problems, "");
  EXPECT_EQ(fill<Limited>("", {"limit=null"}).problems, "");
  const auto filled = fill<Limited>("", {"pause=99ms", "limit=0s", "timeout=61m", "steps=[1s,2s]"});
  EXPECT_EQ(filled.problems,
            "argument 1: \"pause=99ms\": \"99ms\" is out of range (allowed: at least 100ms and below 10s)\n"
            "argument 2: \"limit=0s\": \"0s\" is out of range (allowed: above 0s)\n"
            "argument 3: \"timeout=61m\": \"61m\" is out of range (allowed: 1m to 1h)\n"
            "argument 4: \"steps=[1s,2s]\": \"2s\" is out of range (allowed: at most 1500ms)");
  EXPECT_EQ(filled.config.pause, 250ms);
  EXPECT_EQ(fill<Limited>("", {"timeout=5"}).problems,
            "argument 1: \"timeout=5\": \"5\" is not a duration (allowed: 1m to 1h, as 500ms, 30s, 10m, 1h30m, 2d)");
}

TEST(ADuration, IsOutOfRangeWhereItsTypeCannotCountIt) {
  EXPECT_EQ(fill<Short>("", {"wait=10h", "pause=-5ms"}).problems,
            "argument 1: \"wait=10h\": \"10h\" is out of range (allowed: at most 32767s)\n"
            "argument 2: \"pause=-5ms\": \"-5ms\" is out of range (allowed: at least 0s)");
  EXPECT_EQ(fill<Short>("wait: -32768s\npause: 4294967295ms\n").problems, "");
}

TEST(ADuration, ShowsItsRangeInHelpAndSchema) {
  const auto& table = table_of<Limited>();
  EXPECT_EQ(help_text(table, "limit"),
            "  limit=null                                In all (a duration such as 500ms, 30s, 10m or 1h30m or null, "
            "above 0s)\n");
  EXPECT_NE(json_schema(table, "t").find("Takes a duration such as 500ms, 30s, 10m or 1h30m, 1m to 1h"),
            std::string::npos);
}

TEST(ADuration, NeedsAUnitThatItIsAMultipleOf) {
  const auto problem = [](const char* argument) {
    const auto problems = fill<Config>("", {argument}).problems;
    return problems.substr(problems.find("\": ") + 3);
  };
  const std::string allowed = " is not a duration (allowed: as 500ms, 30s, 10m, 1h30m, 2d)";
  for (const std::string text :
       {"5", "5 minuets", "", "m", "5x", "1h30", "1e400s", "3000000d", "0.5ns", "5mins", "1:30:5u"})
    EXPECT_EQ(problem(("exact=" + text).c_str()), '"' + text + '"' + allowed);
  EXPECT_EQ(problem("limit=90m"), "\"90m\" is not a multiple of 1h");
  EXPECT_EQ(problem("timeout=1500ms"), "\"1500ms\" is not a multiple of 1s");
}

}  // namespace
}  // namespace ddpxx::duration_test
