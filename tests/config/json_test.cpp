#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <ddpxx/config/files/json.hpp>
#include <ddpxx/config/text/source.hpp>

#include "entries_text.hpp"

namespace ddpxx::json_test {
namespace {

using namespace detail;

SourceEntries read(std::string_view text) { return read_json_text(text, "t.json", 0); }

struct Good {
  std::string json;
  std::string entries_text;
};

class GoodJson : public testing::TestWithParam<Good> {};

TEST_P(GoodJson, IsToldWithThePlaceOfEveryKeyAndValue) {
  const auto entries = read(GetParam().json);
  EXPECT_EQ(problem_report(entries.problems), "");
  EXPECT_EQ(entries_text(entries), GetParam().entries_text);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, GoodJson,
    testing::Values(
        Good{"", ""}, Good{" \r\n\t", ""}, Good{"null", ""}, Good{"{}", ""}, Good{R"({"a": 1})", "a@1:2=1@1:7"},
        Good{"{\n  \"a\" : {\n    \"b\" : \"x\",\n    \"c\":1.50\n  }\n}\n", "a.b@3:5=\"x\"@3:11 a.c@4:5=1.50@4:9"},
        Good{R"({"a":[1,[2,"x"],[],{}]})", "a@1:2=[1@1:7,[2@1:10,\"x\"@1:12],[],{}]"},
        Good{R"({"a":null,"b":{},"c":true,"d":false})", "a@1:2=none b@1:11={} c@1:18=true@1:22 d@1:27=false@1:31"},
        Good{R"({"a":1e3,"b":-1,"c":1E+20,"d":-0,"e":12345678901234567890123,"f":0.1e-7})",
             "a@1:2=1e3@1:6 b@1:10=-1@1:14 c@1:17=1E+20@1:21 d@1:27=-0@1:31 "
             "e@1:34=12345678901234567890123@1:38 f@1:62=0.1e-7@1:66"},
        Good{"\xEF\xBB\xBF{\r\n\"a\": 1,\r\n\"b\": 2}\r\n", "a@2:1=1@2:6 b@3:1=2@3:6"},
        Good{"{\"\xC3\xA9\": {\"b\": \"\xC3\xA9\", \"c\": 1}}",
             "\xC3\xA9.b@1:8=\"\xC3\xA9\"@1:13 \xC3\xA9.c@1:18=1@1:23"},
        Good{R"({"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00,:[]{}","b":1})",
             "a@1:2=\"\"\\/\b\f\n\r\t\xC3\xA9\xF0\x9F\x98\x80,:[]{}\"@1:6 b@1:49=1@1:53"},
        Good{R"({"a.b":1,"a":{"c":2},"<<":3})", "a.b@1:2=1@1:8 a.c@1:15=2@1:19 <<@1:22=3@1:27"}));

struct Bad {
  std::string json;
  std::string report;
};

class BadJson : public testing::TestWithParam<Bad> {};

TEST_P(BadJson, IsRefusedAtItsPlace) { EXPECT_EQ(problem_report(read(GetParam().json).problems), GetParam().report); }

/// The expected report for a text of one line.
Bad bad(const std::string& json, std::size_t column, const std::string& why) {
  return {json, "t.json:1:" + std::to_string(column) + ": " + why + "\n    " + json + "\n    " +
                    std::string(column - 1, ' ') + '^'};
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BadJson,
    testing::Values(
        bad(R"({"a":1,"b":{"c":2},"a":3})", 20, "a: is given twice; the first is at t.json:1:2"),
        bad(R"({"b":{"c":2},"b.c":4})", 14, "b.c: is given twice; the first is at t.json:1:7"),
        bad(R"([1, 2])", 1, "a configuration is an object: {\"key\": value}"),
        bad(R"("a")", 1, "a configuration is an object: {\"key\": value}"),
        bad(R"({"a": 1,})", 8, "nothing follows this comma; JSON has none behind the last value"),
        bad(R"({"a": [1, ]})", 9, "nothing follows this comma; JSON has none behind the last value"),
        bad(R"({"a": [1,,2]})", 10, "a value is missing here"),
        bad(R"({,})", 2, "a key in double quotes is expected here"), bad(R"({"a": })", 7, "a value is missing here"),
        bad(R"({"a"})", 5, "a colon is missing in front of this"),
        bad(R"({"a" 1})", 6, "a colon is missing in front of this"),
        bad(R"({"a"= 1})", 5, "a colon is missing in front of this"),
        bad(R"({"a": 1 "b": 2})", 9, "a comma is missing in front of this"),
        bad(R"({"a": "x" "b": 2})", 11, "a comma is missing in front of this"),
        bad(R"({"a": 1; "b": 2})", 8, "a comma is missing in front of this"),
        bad(R"({"a": [1 2]})", 10, "a comma is missing in front of this"),
        bad(R"({"a": [1})", 9, "a ] is expected here, to close what is open"),
        bad(R"({"a": {"b": 1]})", 14, "a } is expected here, to close what is open"),
        bad(R"({"a": [1)", 7, "this [ is never closed"), bad(R"({"a": 1)", 1, "this { is never closed"),
        bad(R"({"a": [1, )", 7, "this [ is never closed"), bad(R"({"a")", 1, "this { is never closed"),
        bad(R"({"a":)", 1, "this { is never closed"),
        bad(R"({"a": 1}})", 9, "something follows the end; a configuration is one document"),
        bad(R"({"a": 1} {"b": 2})", 10, "something follows the end; a configuration is one document"),
        bad(R"({"a": 1} // x)", 10, "JSON has no comments; YAML has"),
        bad(R"({/* x */"a": 1})", 2, "JSON has no comments; YAML has"),
        bad(R"({"a": # x)", 7, "JSON has no comments; YAML has"), bad(R"(// x)", 1, "JSON has no comments; YAML has"),
        bad(R"({"a": NaN})", 7, "\"NaN\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": -Infinity})", 7,
            "\"-Infinity\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 01})", 7, "\"01\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 0x10})", 7, "\"0x10\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 1_000})", 7, "\"1_000\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": +1})", 7, "\"+1\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": .5})", 7, "\".5\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 5.})", 7, "\"5.\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 64kB})", 7, "\"64kB\" is not a number in JSON; what others read as one needs double quotes"),
        bad(R"({"a": 1e400})", 7, "\"1e400\" does not fit a floating-point number"),
        bad(R"({"a": True})", 7, "\"True\" is not a JSON value; a text needs double quotes"),
        bad(R"({"a": truely})", 7, "\"truely\" is not a JSON value; a text needs double quotes"),
        bad(R"({"a": nul})", 7, "\"nul\" is not a JSON value; a text needs double quotes"),
        bad(R"({"a": x})", 7, "\"x\" is not a JSON value; a text needs double quotes"),
        bad(R"({"a": @x})", 7, "no value starts with this character; a text needs double quotes"),
        bad(R"({"a": 'x'})", 7, "a text stands in double quotes"),
        bad(R"({a: 1})", 2, "a key in double quotes is expected here"),
        bad(R"({1: 1})", 2, "a key in double quotes is expected here"),
        bad(R"({"a": 1, b: 1})", 10, "a key in double quotes is expected here"),
        bad(R"({"a": "x})", 7, "this quote is never closed"), bad(R"({"a)", 2, "this quote is never closed"),
        bad(R"({"a": "x\)", 9, R"(no escape of JSON, which are \" \\ \/ \b \f \n \r \t and \uXXXX)"),
        bad(R"({"a": "C:\x"})", 10, R"(no escape of JSON, which are \" \\ \/ \b \f \n \r \t and \uXXXX)"),
        bad(R"({"a": "\u12"})", 8, R"(no escape of JSON, which are \" \\ \/ \b \f \n \r \t and \uXXXX)"),
        bad(R"({"a": "x\ud83d"})", 9, R"(half of a character; \uD800 to \uDBFF and \uDC00 to \uDFFF come in pairs)"),
        bad(R"({"a": "\ud83dxx"})", 8, R"(half of a character; \uD800 to \uDBFF and \uDC00 to \uDFFF come in pairs)"),
        bad(R"({"a": "\ud83d\n"})", 8, R"(half of a character; \uD800 to \uDBFF and \uDC00 to \uDFFF come in pairs)"),
        bad(R"({"a": "x\ude00"})", 9, R"(half of a character; \uD800 to \uDBFF and \uDC00 to \uDFFF come in pairs)"),
        bad(R"({"a": "x\u0000"})", 7, "this text has a NUL character, which no setting can have"),
        bad(R"({"\u0000": 1})", 2, "this text has a NUL character, which no setting can have"),
        Bad{"{\"a\": \"x\ty\"}",
            "t.json:1:9: a control character; in a JSON text it is written as \\t or \\u0009\n"
            "    {\"a\": \"x y\"}\n            ^"},
        Bad{"{\"a\": \"x\n\", \"b\": 1}", "t.json:1:7: this quote is never closed\n    {\"a\": \"x\n          ^"},
        Bad{"{\n  \"a\": 1,\n  // two\n  \"b\": 2\n}\n",
            "t.json:3:3: JSON has no comments; YAML has\n      // two\n      ^"},
        Bad{"{\"\xC3\xA9\": [1", "t.json:1:7: this [ is never closed\n    {\"\xC3\xA9\": [1\n          ^"},
        Bad{"{\"a\": \"\xFF\"}", "t.json:1:8: byte 7 is not UTF-8\n    {\"a\": \"\\xff\"}\n           ^"},
        Bad{std::string{"{}\0", 3}, "t.json:1:3: a NUL byte; this is not a text file\n    {}\\x00\n      ^"},
        Bad{"\xEF\xBB\xBF\xEF\xBB\xBF{}", "t.json:1:1: a byte order mark, twice\n    \xEF\xBB\xBF{}\n    ^"}));

TEST(JsonLimits, RefuseDeepNesting) {
  const std::string deep = "{\"a\": " + std::string(100'000, '[');
  ASSERT_EQ(read(deep).problems.size(), 1U);
  EXPECT_EQ(read(deep).problems[0].text, "nested more than 64 levels deep");
  const auto brackets = "{\"a\": " + std::string(63, '[') + std::string(63, ']') + '}';
  EXPECT_EQ(problem_report(read(brackets).problems), "");
}

TEST(JsonLimits, RefuseTooManyKeys) {
  std::string many = "{";
  for (int i = 0; i < 150'000; ++i) many += "\"k" + std::to_string(i) + "\": 1,\n";
  const auto entries = read(many);
  ASSERT_EQ(entries.problems.size(), 1U);
  EXPECT_EQ(entries.problems[0].text, "more than 100000 values");
}

}  // namespace
}  // namespace ddpxx::json_test
