#include <array>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/files/argument_value.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::arguments_test {
namespace {

using namespace detail;

struct Optimizer {
  double learning_rate = 1;
};
struct Root {
  Optimizer optimizer;
  bool shuffle = true;
  bool no_cache = false;
  std::optional<bool> compile;
  int batch_size = 1;
  std::string path = "p";
  std::vector<std::string> files;
  std::vector<std::vector<int>> table;
  static constexpr auto ignored() { return std::array{Ignored{"jit", "nothing is compiled at run time"}}; }
};

struct Line {
  std::vector<const char*> arguments;
  std::string key;
  std::string printed;
};

class Arguments : public testing::TestWithParam<Line> {};

TEST_P(Arguments, SetTheField) {
  const auto filled = fill<Root>("", GetParam().arguments);
  const auto& table = table_of<Root>();
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(table.print(*table.find(GetParam().key), &filled.config), GetParam().printed);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, Arguments,
    testing::Values(Line{{"batch_size=3"}, "batch_size", "3"}, Line{{"--batch_size=3"}, "batch_size", "3"},
                    Line{{"--batch_size", "3"}, "batch_size", "3"}, Line{{"--batch-size", "3"}, "batch_size", "3"},
                    Line{{"--optimizer.learning_rate=3e-4"}, "optimizer.learning_rate", "0.0003"},
                    Line{{"--optimizer.learning-rate", "-1"}, "optimizer.learning_rate", "-1.0"},
                    Line{{"--optimizer.learning-rate", "-.5"}, "optimizer.learning_rate", "-0.5"},
                    Line{{"shuffle=false"}, "shuffle", "false"}, Line{{"--shuffle=off"}, "shuffle", "false"},
                    Line{{"--no-shuffle"}, "shuffle", "false"}, Line{{"--shuffle", "no"}, "shuffle", "false"},
                    Line{{"--no-cache"}, "no_cache", "true"}, Line{{"--compile", "batch_size=2"}, "compile", "true"},
                    Line{{"--no-compile"}, "compile", "false"}, Line{{"compile=null"}, "compile", "null"},
                    Line{{"batch_size=3", "batch_size=4"}, "batch_size", "4"}, Line{{"path="}, "path", "\"\""},
                    Line{{"path=a=b"}, "path", "\"a=b\""}, Line{{"path=[x]"}, "path", "\"[x]\""},
                    Line{{"path='[x]'"}, "path", "\"[x]\""}, Line{{"path='null'"}, "path", "\"null\""},
                    Line{{"path=\"a\\n\\t\\\\\\\"\\'b\""}, "path", "\"a\\n\\t\\\\\\\"'b\""},
                    Line{{"path='tis"}, "path", "\"'tis\""}, Line{{"path='a'b'"}, "path", "\"'a'b'\""},
                    Line{{"path= two words "}, "path", "\" two words \""}, Line{{"--path", "a=b"}, "path", "\"a=b\""},
                    Line{{"path=\xC3\xA9"}, "path", "\"\xC3\xA9\""},
                    Line{{"files=[a,b c, 'd, e' ]"}, "files", "[\"a\", \"b c\", \"d, e\"]"},
                    Line{{"files=[]"}, "files", "[]"}, Line{{"files=[a,]"}, "files", "[\"a\"]"},
                    Line{{"table=[[1,2],[],[3]]"}, "table", "[[1, 2], [], [3]]"},
                    Line{{"table=((1, 2), [], (3,))"}, "table", "[[1, 2], [], [3]]"},
                    Line{{"files=('a', b)"}, "files", "[\"a\", \"b\"]"}, Line{{"files=()"}, "files", "[]"},
                    Line{{"files=[(a), b]"}, "files", "[\"(a)\", \"b\"]"},
                    Line{{"path=(a, b)"}, "path", "\"(a, b)\""}));

struct Mistake {
  std::vector<const char*> arguments;
  std::string report;
};

class BadArguments : public testing::TestWithParam<Mistake> {};

TEST_P(BadArguments, AreQuotedWithTheirNumber) {
  EXPECT_EQ(fill<Root>("", GetParam().arguments).problems, GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, BadArguments,
    testing::Values(
        Mistake{{"batch_size=x"}, "argument 1: \"batch_size=x\": \"x\" is not a whole number"},
        Mistake{{"shuffle=true", "--batch_size", "x"}, "argument 2: \"--batch_size x\": \"x\" is not a whole number"},
        Mistake{{"--batch_size"}, "argument 1: \"--batch_size\": needs a value"},
        Mistake{{"--batch_size", "--shuffle"}, "argument 1: \"--batch_size\": needs a value"},
        Mistake{{"--batch_sice", "3", "shuffle=x"},
                "argument 1: \"--batch_sice 3\": unknown key; did you mean batch_size?\n"
                "argument 3: \"shuffle=x\": \"x\" is not true or false (allowed: true, false, yes, no, on, off, 1, 0)"},
        Mistake{{"--batch_sice", "batch_size=3"},
                "argument 1: \"--batch_sice\": unknown key; did you mean batch_size?"},
        Mistake{{"--no-batch_size"}, "argument 1: \"--no-batch_size\": unknown key; did you mean batch_size?"},
        Mistake{{"batch_size"},
                "argument 1: \"batch_size\": is not a setting; settings are written key=value, --help lists them"},
        Mistake{{"batch_size", "32"}, "argument 1: \"batch_size 32\": write batch_size=32"},
        Mistake{{"-batch_size", "32"}, "argument 1: \"-batch_size 32\": write batch_size=32"},
        Mistake{{"-batch-size", "-1"}, "argument 1: \"-batch-size -1\": write batch_size=-1"},
        Mistake{{"optimizer.learning_rate", "1", "path=x", "shuffle", "off"},
                "argument 1: \"optimizer.learning_rate 1\": write optimizer.learning_rate=1\n"
                "argument 4: \"shuffle off\": write shuffle=off"},
        Mistake{{"path", "a\nb"}, "argument 1: \"path a\\nb\": write path=a\\nb"},
        Mistake{{"shuffle", "path=x"},
                "argument 1: \"shuffle\": is not a setting; settings are written key=value, --help lists them"},
        Mistake{{"-shuffle", "--path=x"},
                "argument 1: \"-shuffle\": is not an option; settings are written key=value, --help lists them"},
        Mistake{{"-batch_size", "-x"},
                "argument 1: \"-batch_size\": is not an option; settings are written key=value, --help lists them\n"
                "argument 2: \"-x\": is not an option; settings are written key=value, --help lists them"},
        Mistake{{"batch_size", "--path=x"},
                "argument 1: \"batch_size\": is not a setting; settings are written key=value, --help lists them"},
        Mistake{{"=3"}, "argument 1: \"=3\": is not a setting; write key=value, without spaces around the ="},
        Mistake{{""}, "argument 1: \"\": is not a setting; settings are written key=value, --help lists them"},
        Mistake{{"-m"},
                "argument 1: \"-m\": is for sweeps, which this program does not run by itself, or not without key=a,b: "
                "write ddpxx-run PROGRAM -m key=a,b"},
        Mistake{{"--"}, "argument 1: \"--\": is not an option; settings are written key=value, --help lists them"},
        Mistake{{"+x=1"}, "argument 1: \"+x=1\": settings cannot be added; write key=value without the +"},
        Mistake{{"~path"}, "argument 1: \"~path\": settings cannot be removed; leave it out, or write key=null"},
        Mistake{{"path=\xFF"}, "argument 1: \"path=\\xff\": is not UTF-8"},
        Mistake{{"--path", "\xFF"}, "argument 1: \"--path \\xff\": is not UTF-8"},
        Mistake{{"--cfg="}, "argument 1: \"--cfg=\": needs a value"},
        Mistake{{"--cfg", ""}, "argument 1: \"--cfg \": needs a value"},
        Mistake{{"--errors="}, "argument 1: \"--errors=\": needs a value"},
        Mistake{{"--completion="}, "argument 1: \"--completion=\": needs a value"},
        Mistake{{"files=a"}, "argument 1: \"files=a\": \"a\" is not a list; write [a, b, c]"},
        Mistake{{"files=[a"}, "argument 1: \"files=[a\": this [ is never closed"},
        Mistake{{"files=[a]b"}, "argument 1: \"files=[a]b\": nothing may follow the closing ]"},
        Mistake{{"files=['a' b]"}, "argument 1: \"files=['a' b]\": a comma is missing in the list"},
        Mistake{{"files=['a]"}, "argument 1: \"files=['a]\": a quote is never closed"},
        Mistake{{"files=[a,,b]"}, "argument 1: \"files=[a,,b]\": an item of the list is empty"},
        Mistake{{"files=(a"}, "argument 1: \"files=(a\": this ( is never closed"},
        Mistake{{"files=(a)b"}, "argument 1: \"files=(a)b\": nothing may follow the closing )"},
        Mistake{{"files=(a]"}, "argument 1: \"files=(a]\": this ( is never closed"},
        Mistake{{"--config-name"}, "argument 1: \"--config-name\": needs a value"}));

TEST(ArgumentLists, RefuseDeepNesting) {
  const auto text = "table=" + std::string(100'000, '[');
  const auto problems = fill<Root>("", {text.c_str()}).problems;
  EXPECT_NE(problems.find("nested more than 64 levels deep"), std::string::npos);
}

TEST(Options, AreFoundInEverySpelling) {
  const std::vector<std::vector<const char*>> spellings{
      {"--config-name", "a.yaml"}, {"--config-name=a.yaml"}, {"-cn", "a.yaml"}, {"-cn=a.yaml"}};
  for (const auto& arguments : spellings) {
    const auto line = read_arguments(arguments, table_of<Root>());
    ASSERT_EQ(line.config_names.size(), 1U);
    EXPECT_EQ(line.config_names[0].text, "a.yaml");
    EXPECT_TRUE(line.entries.list.empty());
  }
  const std::vector<const char*> paths{"--config-path", "dir", "-h", "-cp=other", "shuffle=false"};
  const auto line = read_arguments(paths, table_of<Root>());
  EXPECT_EQ(line.config_path.value().text, "other");
  EXPECT_TRUE(line.action == ConfigAction::help);
  ASSERT_EQ(line.entries.list.size(), 1U);
  EXPECT_EQ(line.entries.list[0].path, "shuffle");
}

TEST(AnIgnoredKey, TakesNoConfigFileForItsValue) {
  const auto names = [](const std::vector<const char*>& arguments) {
    return read_arguments(arguments, table_of<Root>()).config_names.size();
  };
  EXPECT_EQ(names({"--jit", "run.yaml"}), 1U);
  EXPECT_EQ(names({"--jit", "max", "run.yaml"}), 1U);
  EXPECT_EQ(names({"--path", "run.yaml"}), 0U);
}

}  // namespace
}  // namespace ddpxx::arguments_test
