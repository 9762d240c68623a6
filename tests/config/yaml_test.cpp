#include <cstddef>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/text/source.hpp>

#include "entries_text.hpp"

namespace ddpxx::yaml_test {
namespace {

using namespace detail;

SourceEntries read(std::string_view text) { return read_yaml_text(text, "t.yaml", 0); }

struct Good {
  std::string yaml;
  std::string entries_text;
};

class GoodYaml : public testing::TestWithParam<Good> {};

TEST_P(GoodYaml, IsToldWithThePlaceOfEveryKeyAndValue) {
  const auto entries = read(GetParam().yaml);
  EXPECT_EQ(problem_report(entries.problems), "");
  EXPECT_EQ(entries_text(entries), GetParam().entries_text);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, GoodYaml,
    testing::Values(
        Good{"", ""}, Good{"# nothing\n", ""}, Good{"---\n", ""}, Good{"a: 1\n", "a@1:1=1@1:4"},
        Good{"a: 1\n...\n", "a@1:1=1@1:4"}, Good{"a:\n  b: x\n  c: 'y'\n", "a.b@2:3=x@2:6 a.c@3:3=\"y\"@3:6"},
        Good{"a: [1, [2, x]]\n", "a@1:1=[1@1:5,[2@1:9,x@1:12]]"}, Good{"a:\n- 1\n- 2\n", "a@1:1=[1@2:3,2@3:3]"},
        Good{"a:\nb: ~\nc: null\nd: {}\ne: []\n", "a@1:1=none b@2:1=none c@3:1=none d@4:1={} e@5:1=[]"},
        Good{"\xEF\xBB\xBF"
             "a: 1\r\nb: 2\r\n",
             "a@1:1=1@1:4 b@2:1=2@2:4"},
        Good{"\xC3\xA9: {b: \xC3\xA9, c: 1}\n", "\xC3\xA9.b@1:5=\xC3\xA9@1:8 \xC3\xA9.c@1:11=1@1:14"},
        Good{"a.b: 1\na:\n  c: 2\n", "a.b@1:1=1@1:6 a.c@3:3=2@3:6"},
        Good{"a: &x 5\nb: *x\n", "a@1:1=5@1:4 b@2:1=5@2:4"},
        Good{"a: &x {p: 1}\nb: *x\n", "a.p@1:8=1@1:11 b.p@1:8=1@1:11"},
        Good{"a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x\n  r: 4\n",
             "a.p@1:8=1@1:11 a.q@1:14=2@1:17 b.q@3:3=3@3:6 b.r@5:3=4@5:6 b.p@1:8=1@1:11"},
        Good{"a: &x {p: 1}\nb: &y {p: 2, q: 3}\nc: {<<: [*x, *y, {r: 4}]}\n",
             "a.p@1:8=1@1:11 b.p@2:8=2@2:11 b.q@2:14=3@2:17 c.p@1:8=1@1:11 c.q@2:14=3@2:17 "
             "c.r@3:19=4@3:22"},
        Good{"a: &x {p: {q: 1, r: 2}}\nb: &y {<<: *x, s: 3}\nc: {<<: *y, p: {q: 5}}\n",
             "a.p.q@1:12=1@1:15 a.p.r@1:18=2@1:21 b.s@2:16=3@2:19 b.p.q@1:12=1@1:15 b.p.r@1:18=2@1:21 "
             "c.p.q@3:17=5@3:20 c.s@2:16=3@2:19"},
        Good{"'<<': 1\n", "<<@1:1=1@1:7"}, Good{"a: 'it''s'\nb: \"\\\"\"\n", "a@1:1=\"it's\"@1:4 b@2:1=\"\"\"@2:4"},
        Good{"a: !!str 5\n", "a@1:1=\"5\"@1:4"}, Good{"a: 1\t# tabs may stand here\n", "a@1:1=1@1:4"},
        Good{"a: |\n  x\n  \ty\n", "a@1:1=\"x\n\ty\n\"@1:4"}));

struct Bad {
  std::string yaml;
  std::string report;
};

class BadYaml : public testing::TestWithParam<Bad> {};

TEST_P(BadYaml, IsRefusedAtItsPlace) { EXPECT_EQ(problem_report(read(GetParam().yaml).problems), GetParam().report); }

INSTANTIATE_TEST_SUITE_P(
    Texts, BadYaml,
    testing::Values(
        Bad{"a: 1\nb: {c: 2}\na: 3\n", "t.yaml:3:1: a: is given twice; the first is at t.yaml:1:1\n    a: 3\n    ^"},
        Bad{"b:\n  c: 2\nb.c: 4\n", "t.yaml:3:1: b.c: is given twice; the first is at t.yaml:2:3\n    b.c: 4\n    ^"},
        Bad{"b:\n  c: 2\nb:\n  d: 4\n", "t.yaml:3:1: b: is given twice; the first is at t.yaml:1:1\n    b:\n    ^"},
        Bad{"a:\n\tb: 3\n", "t.yaml:2:1: a tab in the indentation; YAML wants spaces\n     b: 3\n    ^"},
        Bad{"a:\n  b: 1\n \tc: 2\n", "t.yaml:3:2: a tab in the indentation; YAML wants spaces\n      c: 2\n     ^"},
        Bad{"a: [1,\n\t2]\n", "t.yaml:2:1: a tab in the indentation; YAML wants spaces\n     2]\n    ^"},
        Bad{"a:\n\t- 1\n", "t.yaml:2:1: a tab in the indentation; YAML wants spaces\n     - 1\n    ^"},
        Bad{"a: [1, 2\nb: 3\n", "t.yaml:1:4: this [ is never closed\n    a: [1, 2\n       ^"},
        Bad{"a: {b: 1\n", "t.yaml:1:4: this { is never closed\n    a: {b: 1\n       ^"},
        Bad{"a: \"x\nb: 1\n", "t.yaml:1:4: this quote is never closed\n    a: \"x\n       ^"},
        Bad{"a: 'x''\nb: 1\n", "t.yaml:1:4: this quote is never closed\n    a: 'x''\n       ^"},
        Bad{"a: [1]]\n", "t.yaml:1:7: this bracket was never opened\n    a: [1]]\n          ^"},
        Bad{"a: 1\n b: 2\n",
            "t.yaml:2:3: a value is not expected here (is the indentation right? a text with a colon in it needs "
            "quotes)\n"
            "     b: 2\n      ^"},
        Bad{"a: \"x\" y\n",
            "t.yaml:1:8: this does not belong here (is the indentation right? is a quote closed too early?)\n"
            "    a: \"x\" y\n           ^"},
        Bad{"a: - 1\n",
            "t.yaml:1:4: a list item is not expected here; start it on a line of its own\n    a: - 1\n       ^"},
        Bad{"a: @x\n", "t.yaml:1:4: a text that starts with this character needs quotes\n    a: @x\n       ^"},
        Bad{"a: 1\n---\nb: 2\n", "t.yaml:2:1: a second document starts here; a configuration is one\n    ---\n    ^"},
        Bad{"[1, 2]\n",
            "t.yaml:1:1: a configuration has lines `key: value` (is the space after the colon missing?)\n    [1, 2]\n  "
            "  ^"},
        Bad{"a:1\n",
            "t.yaml:1:1: a configuration has lines `key: value` (is the space after the colon missing?)\n    a:1\n    "
            "^"},
        Bad{"? [a]\n: 1\n", "t.yaml:1:3: a key must be a plain text\n    ? [a]\n      ^"},
        Bad{"{a: 1,, b: 2}\n", "t.yaml:1:7: a key is missing\n    {a: 1,, b: 2}\n          ^"},
        Bad{"a: *x\n", "t.yaml:1:4: the referenced anchor is not defined\n    a: *x\n       ^"},
        Bad{"a: &x [1, *x]\n",
            "t.yaml:1:11: an alias inside of what it stands for\n    a: &x [1, *x]\n              ^"},
        Bad{"a: !foo 1\n", "t.yaml:1:4: the tag \"!foo\" is not supported\n    a: !foo 1\n       ^"},
        Bad{"a: &x 1\nb:\n  <<: *x\n",
            "t.yaml:3:7: b.<<: merges groups only; write <<: *name or <<: [*one, *other]\n      <<: *x\n          ^"},
        Bad{"a: &x {p: 1}\nb:\n  <<: *x\n  <<: *x\n",
            "t.yaml:4:3: b.<<: is given twice; write a list of groups\n      <<: *x\n      ^"},
        Bad{"a: &x {p: 1, p: 2}\nb: {<<: *x}\n",
            "t.yaml:1:14: a.p: is given twice; the first is at t.yaml:1:8\n    a: &x {p: 1, p: 2}\n                 ^"},
        Bad{"\xC3\xA9: [1\n", "t.yaml:1:4: this [ is never closed\n    \xC3\xA9: [1\n       ^"},
        Bad{"a: 1\nb: \xC3\xA9\xFF\n", "t.yaml:2:5: byte 10 is not UTF-8\n    b: \xC3\xA9\\xff\n        ^"},
        Bad{"a: 1\nb: \"x\\0y\"\n",
            "t.yaml:2:4: this text has a NUL character, which no setting can have\n    b: \"x\\0y\"\n       ^"},
        Bad{"\"\\u0000\": 1\n",
            "t.yaml:1:1: this text has a NUL character, which no setting can have\n    \"\\u0000\": 1\n    ^"},
        Bad{std::string{"a: 1\nb: \0\n", 10},
            "t.yaml:2:4: a NUL byte; this is not a text file\n    b: \\x00\n       ^"}));

TEST(YamlLimits, RefuseDeepNesting) {
  std::string brackets = "a: ";
  for (int i = 0; i < 70; ++i) brackets += '[';
  for (int i = 0; i < 70; ++i) brackets += ']';
  ASSERT_EQ(read(brackets).problems.size(), 1U);
  EXPECT_EQ(read(brackets).problems[0].text, "nested more than 64 levels deep");
  const std::string deep(100'000, '[');
  EXPECT_EQ(read(deep).problems.size(), 1U);
}

TEST(YamlLimits, TakeWhatIsJustNotTooDeep) {
  std::string brackets = "a: ";
  for (int i = 0; i < 63; ++i) brackets += '[';
  for (int i = 0; i < 63; ++i) brackets += ']';
  EXPECT_EQ(problem_report(read(brackets).problems), "");
}

TEST(YamlLimits, RefuseTooManyKeys) {
  std::string many;
  for (int i = 0; i < 150'000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  const auto entries = read(many);
  ASSERT_EQ(entries.problems.size(), 1U);
  EXPECT_EQ(entries.problems[0].text, "more than 100000 values");
}

TEST(YamlLimits, CountWhatAliasesStandFor) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 6; ++i) {  // the aliases stand for a million values
    const auto below = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int j = 0; j < 9; ++j) bomb += ", " + below;
    bomb += "]\n";
  }
  const auto entries = read(bomb);
  ASSERT_EQ(entries.problems.size(), 1U);
  EXPECT_EQ(entries.problems[0].text, "more than 100000 values, counting what aliases stand for");
}

TEST(YamlLimits, CountDepthThroughAliases) {
  std::string ladder = "a0: &a0 [x]\n";
  for (int i = 1; i < 80; ++i)
    ladder += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  const auto entries = read(ladder);
  ASSERT_EQ(entries.problems.size(), 1U);
  EXPECT_EQ(entries.problems[0].text, "nested more than 64 levels deep, through aliases");
}

/// The alias stands for 1 MB of text and is used 100 times.
TEST(YamlLimits, CountTheTextThatAliasesStandFor) {
  const std::string large(1'000'000, 'x');
  std::string value = "a: &x '" + large + "'\nb: [*x";
  std::string key = "a: &x\n  p:\n    ? " + large + "\n    : 1\nc:\n";
  for (int i = 0; i < 100; ++i) {
    value += ", *x";
    key += "  k" + std::to_string(i) + ": *x\n";
  }
  const auto values = read(value + "]\n");
  ASSERT_EQ(values.problems.size(), 1U);
  EXPECT_EQ(values.problems[0].text, "more than 16 MiB of text, counting what aliases stand for");
  const auto keys = read(key);
  EXPECT_EQ(keys.problems.back().text, "more than 16 MiB of text, counting what aliases stand for");
  EXPECT_LT(keys.problems.size(), 20U);
}

TEST(YamlLimits, CountWhatMergesStandFor) {
  std::string bomb = "a0: &a0 {x: 1}\n", ladder = bomb;
  for (int i = 1; i < 80; ++i) {
    const auto head = "a" + std::to_string(i) + ": &a" + std::to_string(i), below = "*a" + std::to_string(i - 1);
    ladder += head + " {<<: " + below + "}\n";
    bomb += head + " {<<: [" + below + ", " + below + ", " + below + "]}\n";
  }
  ASSERT_EQ(read(bomb).problems.size(), 1U);
  EXPECT_EQ(read(bomb).problems[0].text, "more than 100000 values, counting what aliases stand for");
  ASSERT_EQ(read(ladder).problems.size(), 1U);
  EXPECT_EQ(read(ladder).problems[0].text, "nested more than 64 levels deep, through aliases");
}

TEST(YamlPlaces, AreFoundFastInALongLine) {
  std::string line = "a: [";
  for (int i = 0; i < 40'000; ++i) line += "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9, ";
  const auto entries = read(line + "x]\n");
  ASSERT_EQ(entries.list.size(), 1U);
  EXPECT_EQ(entries.list[0].value.items.back().place.column, 5U + 10U * 40'000U);
}

TEST(YamlReport, CutsALongLineAroundTheCaret) {
  const auto entries = read("a: \"" + std::string(300, 'x') + "\" y" + std::string(300, 'z') + "\n");
  const auto report = problem_report(entries.problems);
  EXPECT_LT(report.size(), 400U);
  EXPECT_NE(report.find("xxx\" y"), std::string::npos);
  const auto caret = report.size() - report.rfind('\n') - 1;
  const auto line_start = report.rfind('\n', report.rfind('\n') - 1) + 1;
  EXPECT_EQ(report[line_start + caret - 1], 'y');
}

}  // namespace
}  // namespace ddpxx::yaml_test
