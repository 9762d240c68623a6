#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::codec_test {
namespace {

using namespace detail;

enum class Layout { gpt2, mingpt_ddp, automatic };
constexpr auto enum_names(Layout) {
  return std::array{Named{Layout::gpt2, "gpt2"}, Named{Layout::mingpt_ddp, "mingpt_ddp"},
                    Named{Layout::automatic, "auto"}};
}

struct Every {
  bool flag = false;
  std::optional<bool> maybe_flag;
  std::int64_t steps = 7;
  std::uint64_t seed = 7;
  std::uint8_t small = 7;
  std::int8_t signed_small = 7;
  int batch = 7;
  double rate = 7;
  float share = 7;
  double clip = 7;
  std::int64_t size = 7;
  std::int64_t time = 7;
  double pause = 7;
  double warmup = 7;
  double open_ended = 7;
  std::string text = "seven";
  std::string model = "gpt2";
  std::filesystem::path path = "seven";
  Layout layout = Layout::gpt2;
  std::optional<std::int64_t> layers;
  std::optional<std::string> name;
  std::vector<double> numbers{7};
  std::vector<std::string> files{"seven"};
  std::vector<bool> flags;
  std::array<double, 2> betas{0.9, 0.95};
  std::vector<std::vector<int>> table;

  static constexpr auto describe() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return fields(
        field<&Every::batch>("", Unit::samples, at_least(1)), field<&Every::rate>("", above(0.0), at_most(1.0)),
        field<&Every::clip>("", above(0.0), at_most(kInfinity)), field<&Every::size>("", Unit::bytes, at_least(1)),
        field<&Every::time>("", Unit::seconds, at_least(0)), field<&Every::pause>("", Unit::seconds),
        field<&Every::warmup>("", Unit::steps), field<&Every::open_ended>("", below(kInfinity)),
        field<&Every::model>("", choices("gpt2", "gpt-mini")), field<&Every::numbers>("", below(100)),
        field<&Every::betas>("", between(0.0, 1.0)), field<&Every::layers>("", at_least(1)));
  }
};

struct Taken {
  std::string yaml;
  std::string key;
  std::string printed;
};

class TakenValue : public testing::TestWithParam<Taken> {};

TEST_P(TakenValue, IsPrintedBack) {
  const auto filled = fill<Every>(GetParam().key + ": " + GetParam().yaml + "\n");
  const auto& table = table_of<Every>();
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(table.print(*table.find(GetParam().key), &filled.config), GetParam().printed);
}

INSTANTIATE_TEST_SUITE_P(
    Values, TakenValue,
    testing::Values(
        Taken{"true", "flag", "true"}, Taken{"yes", "flag", "true"}, Taken{"On", "flag", "true"},
        Taken{"1", "flag", "true"}, Taken{"FALSE", "flag", "false"}, Taken{"no", "flag", "false"},
        Taken{"off", "flag", "false"}, Taken{"0", "flag", "false"}, Taken{"on", "maybe_flag", "true"},
        Taken{"~", "maybe_flag", "null"}, Taken{"1e3", "steps", "1000"}, Taken{"1_000", "steps", "1000"},
        Taken{"50k", "steps", "50000"}, Taken{"1.5M", "steps", "1500000"}, Taken{"-3", "steps", "-3"},
        Taken{"+3", "steps", "3"}, Taken{"0", "steps", "0"}, Taken{"10e-1", "steps", "1"}, Taken{"2.0", "steps", "2"},
        Taken{"\"12\"", "steps", "12"}, Taken{"9223372036854775807", "steps", "9223372036854775807"},
        Taken{"-9223372036854775808", "steps", "-9223372036854775808"},
        Taken{"18446744073709551615", "seed", "18446744073709551615"}, Taken{"255", "small", "255"},
        Taken{"-128", "signed_small", "-128"}, Taken{"1e-3", "rate", "0.001"}, Taken{"1", "rate", "1.0"},
        Taken{".5", "rate", "0.5"}, Taken{"1e-10", "rate", "1.0e-10"}, Taken{"0.1", "share", "0.1"},
        Taken{"3k", "share", "3000.0"}, Taken{"-0.0", "share", "-0.0"}, Taken{".inf", "clip", ".inf"},
        Taken{"inf", "clip", ".inf"}, Taken{"Infinity", "clip", ".inf"}, Taken{"25MiB", "size", "26214400"},
        Taken{"2GB", "size", "2000000000"}, Taken{"1.5 KiB", "size", "1536"}, Taken{"64kb", "size", "64000"},
        Taken{"100", "size", "100"}, Taken{"1e6", "size", "1000000"}, Taken{"10m", "time", "600"},
        Taken{"1h30m", "time", "5400"}, Taken{"90", "time", "90"}, Taken{"500ms", "pause", "0.5"},
        Taken{"4.1m", "time", "246"}, Taken{"4.1m", "pause", "246.0"},
        Taken{"9223372036854775807", "time", "9223372036854775807"}, Taken{"no", "text", "\"no\""},
        Taken{"1e3", "text", "\"1e3\""}, Taken{"\"null\"", "text", "\"null\""}, Taken{"''", "text", "\"\""},
        Taken{"gpt-mini", "model", "\"gpt-mini\""}, Taken{"a/b c", "path", "\"a/b c\""},
        Taken{"mingpt_ddp", "layout", "\"mingpt_ddp\""}, Taken{"\"auto\"", "layout", "\"auto\""},
        Taken{"12", "layers", "12"}, Taken{"null", "layers", "null"}, Taken{"", "layers", "null"},
        Taken{"null", "name", "null"}, Taken{"'null'", "name", "\"null\""}, Taken{"1.5k", "warmup", "1500.0"},
        Taken{"0x1F", "batch", "31"}, Taken{"[1, 2e1]", "numbers", "[1.0, 20.0]"}, Taken{"[]", "numbers", "[]"},
        Taken{"[a, 'b, c']", "files", "[\"a\", \"b, c\"]"}, Taken{"[on, off]", "flags", "[true, false]"},
        Taken{"[0.9, 1]", "betas", "[0.9, 1.0]"}, Taken{"[[1], [], [2, 3]]", "table", "[[1], [], [2, 3]]"}));

struct Refused {
  std::string yaml;
  std::string key;
  std::string problem;
};

class RefusedValue : public testing::TestWithParam<Refused> {};

TEST_P(RefusedValue, LeavesTheFieldAloneAndSaysWhatIsAllowed) {
  const auto& [yaml, key, problem] = GetParam();
  const auto line = key + ": " + yaml;
  const auto filled = fill<Every>(line + '\n');
  const auto first_line = filled.problems.substr(0, filled.problems.find('\n'));
  const auto after_place = first_line.find(": ") + 2;
  EXPECT_EQ(first_line.substr(after_place), key + problem);
  const auto& table = table_of<Every>();
  EXPECT_EQ(table.print(*table.find(key), &filled.config), table.print(*table.find(key), table.defaults));
}

INSTANTIATE_TEST_SUITE_P(
    Values, RefusedValue,
    testing::Values(
        Refused{"maybe", "flag", ": \"maybe\" is not true or false (allowed: true, false, yes, no, on, off, 1, 0)"},
        Refused{"y", "flag", ": \"y\" is not true or false (allowed: true, false, yes, no, on, off, 1, 0)"},
        Refused{"", "flag", ": has no value where true or false is expected"},
        Refused{"3.9", "steps", ": \"3.9\" is not a whole number"},
        Refused{"1e-1", "steps", ": \"1e-1\" is not a whole number"},
        Refused{"true", "steps", ": \"true\" is not a whole number"},
        Refused{"12x", "steps", ": \"12x\" is not a whole number"},
        Refused{"1__0", "steps", ": \"1__0\" is not a whole number"},
        Refused{"''", "steps", ": \"\" is not a whole number"},
        Refused{"010", "steps", ": \"010\" starts with a zero, which some read as octal; write 10"},
        Refused{"-007", "steps", ": \"-007\" starts with a zero, which some read as octal; write -7"},
        Refused{"00", "steps", ": \"00\" starts with a zero, which some read as octal; write 0"},
        Refused{"1e20", "steps", ": \"1e20\" is out of range (allowed: -9223372036854775808 to 9223372036854775807)"},
        Refused{"9223372036854775808", "steps",
                ": \"9223372036854775808\" is out of range (allowed: -9223372036854775808 to 9223372036854775807)"},
        Refused{"-1", "seed", ": \"-1\" is out of range (allowed: 0 to 18446744073709551615)"},
        Refused{"256", "small", ": \"256\" is out of range (allowed: 0 to 255)"},
        Refused{"-129", "signed_small", ": \"-129\" is out of range (allowed: -128 to 127)"},
        Refused{"4294967297", "batch", ": \"4294967297\" is out of range (allowed: -2147483648 to 2147483647)"},
        Refused{"0", "batch", ": \"0\" is out of range (allowed: at least 1)"},
        Refused{"three", "batch", ": \"three\" is not a whole number (allowed: at least 1)"},
        Refused{"3e-4x", "rate", ": \"3e-4x\" is not a number (allowed: above 0 and at most 1)"},
        Refused{"0", "rate", ": \"0\" is out of range (allowed: above 0 and at most 1)"},
        Refused{"nan", "rate", ": \"nan\" is not a finite number (allowed: above 0 and at most 1)"},
        Refused{".inf", "rate", ": \".inf\" is not a finite number (allowed: above 0 and at most 1)"},
        Refused{".NaN", "share", ": \".NaN\" is not a finite number"},
        Refused{"-.inf", "share", ": \"-.inf\" is not a finite number"},
        Refused{".nan", "clip", ": \".nan\" is not a finite number (allowed: above 0 and at most .inf)"},
        Refused{"inf", "open_ended", ": \"inf\" is not a finite number (allowed: below .inf)"},
        Refused{"1e39", "share", ": \"1e39\" does not fit a floating-point number"},
        Refused{"1e-60", "share", ": \"1e-60\" does not fit a floating-point number"},
        Refused{"1e400", "clip", ": \"1e400\" does not fit a floating-point number"},
        Refused{"25M", "size", ": \"25M\" is not a size (allowed: at least 1, in bytes, or as 64kB, 25MiB, 2GB)"},
        Refused{"0.5B", "size", ": \"0.5B\" is not a size (allowed: at least 1, in bytes, or as 64kB, 25MiB, 2GB)"},
        Refused{"0B", "size", ": \"0B\" is out of range (allowed: at least 1, in bytes, or as 64kB, 25MiB, 2GB)"},
        Refused{
            "5 minuets", "time",
            ": \"5 minuets\" is not a duration (allowed: at least 0, in seconds, or as 500ms, 30s, 10m, 1h30m, 2d)"},
        Refused{"500ms", "time",
                ": \"500ms\" is not a duration (allowed: at least 0, in seconds, or as 500ms, 30s, 10m, 1h30m, 2d)"},
        Refused{"null", "text", ": has no value where a text is expected"},
        Refused{"~", "path", ": has no value where a path is expected"},
        Refused{"[a]", "text", ": is a list where a text is expected"},
        Refused{"{}", "text", ": is a group where a text is expected"},
        Refused{"gpt3", "model", ": \"gpt3\" is not known (allowed: gpt2 or gpt-mini); did you mean gpt2?"},
        Refused{"zebra", "layout", ": \"zebra\" is not known (allowed: gpt2, mingpt_ddp or auto)"},
        Refused{"2", "layout", ": \"2\" is not known (allowed: gpt2, mingpt_ddp or auto)"},
        Refused{"0", "layers", ": \"0\" is out of range (allowed: at least 1)"},
        Refused{"3", "numbers", ": \"3\" is not a list; write [a, b, c]"},
        Refused{"", "numbers", ": has no value where a list is expected; write [] for an empty one"},
        Refused{"[1, x]", "numbers", "[1]: \"x\" is not a number (allowed: below 100)"},
        Refused{"[100]", "numbers", "[0]: \"100\" is out of range (allowed: below 100)"},
        Refused{"[a, [b]]", "files", "[1]: is a list where a text is expected"},
        Refused{"[[1], [2, x]]", "table", "[1][1]: \"x\" is not a whole number"},
        Refused{"[1]", "betas", ": needs 2 items, and has 1"},
        Refused{"[1, 2]", "betas", "[1]: \"2\" is out of range (allowed: 0 to 1)"}));

TEST(ValueProblems, PointAtTheItem) {
  EXPECT_EQ(fill<Every>("numbers:\n  - 1\n  - x\n").problems,
            "t.yaml:3:5: numbers[1]: \"x\" is not a number (allowed: below 100)\n      - x\n        ^");
}

TEST(ValueProblems, ShowALongTextShort) {
  const auto problems = fill<Every>("steps: '" + std::string(1000, 'x') + "'\n").problems;
  EXPECT_NE(problems.find("steps: \"" + std::string(60, 'x') + "...\" is not a whole number"), std::string::npos);
}

TEST(ValueNotices, NameHexadecimalNumbers) {
  const auto filled = fill<Every>("steps: 0x10\n");
  EXPECT_EQ(filled.config.steps, 16);
  EXPECT_EQ(filled.notices, "t.yaml:1:8: steps: \"0x10\" is hexadecimal and read as 16\n");
}

TEST(RealText, IsWhatEveryYamlReaderTakesForANumber) {
  EXPECT_EQ(real_text(3e-4), "0.0003");
  EXPECT_EQ(real_text(1e-5), "0.00001");
  EXPECT_EQ(real_text(9e-6), "9.0e-06");
  EXPECT_EQ(real_text(1e15), "1.0e+15");
  EXPECT_EQ(real_text(123456.75), "123456.75");
  EXPECT_EQ(real_text(0.1F), "0.1");
  EXPECT_EQ(real_text(-std::numeric_limits<double>::infinity()), "-.inf");
}

TEST(RangeText, ReadsAsASentence) {
  EXPECT_EQ(range_text({}), "");
  EXPECT_EQ(range_text(above(0)), "above 0");
  EXPECT_EQ(range_text(at_least(1)), "at least 1");
  EXPECT_EQ(range_text(below(1)), "below 1");
  EXPECT_EQ(range_text(at_most(2.5)), "at most 2.5");
  EXPECT_EQ(range_text(between(0, 1)), "0 to 1");
  EXPECT_EQ(range_text({.low = Bound{0, false}, .high = Bound{1, true}}), "at least 0 and below 1");
}

}  // namespace
}  // namespace ddpxx::codec_test
