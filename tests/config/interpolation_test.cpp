#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::interpolation_test {
namespace {

using namespace detail;

struct Group {
  std::int64_t steps = 10;
  std::int64_t warmup = 1;
  std::string name = "x";
};
struct Config {
  Group first;
  Group second;
  std::vector<double> betas{0.9, 0.95};
  std::vector<double> others;
  std::map<std::string, std::string> names;
  std::string folder = "runs";
  std::string token = "t";
  static constexpr auto describe() {
    return fields(field<&Config::token>("", secret()), field<&Config::betas>("", between(0.0, 1.0)));
  }
};

std::string problem(const char* yaml) {
  const auto problems = fill<Config>(yaml).problems;
  const auto line = problems.substr(0, problems.find('\n'));
  return line.substr(line.find(": ") + 2);
}

TEST(AReference, StandsForTheValueThatWinsInTheEnd) {
  const auto filled =
      fill<Config>("second: {steps: '${first.steps}', name: 'run-${first.steps}-${folder}'}\nothers: ${betas}\n",
                   {"first.steps=1e3"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.second.steps, 1000);
  EXPECT_EQ(filled.config.second.name, "run-1000-runs");
  EXPECT_EQ(filled.config.others, filled.config.betas);
}

TEST(AReference, MayNameANeighbourByDots) {
  const auto filled = fill<Config>("first: {warmup: '${.steps}'}\nsecond: {warmup: '${..first.warmup}'}\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.first.warmup, 10);
  EXPECT_EQ(filled.config.second.warmup, 10);
}

TEST(AReference, StandsInItemsOfListsAndInArguments) {
  const auto filled = fill<Config>("others: [1, '${first.steps}']\n", {"betas=[${others}]"});
  EXPECT_EQ(filled.config.others, (std::vector<double>{1, 10}));
  EXPECT_EQ(filled.problems, "argument 1: \"betas=[${others}]\": is a list where a number is expected");
}

TEST(AReference, InAnEntryOfAMapBeginsAtTheMap) {
  EXPECT_EQ(fill<Config>("names: {run: '${..folder}', a.b: '${..folder}'}\n").config.names,
            (std::map<std::string, std::string>{{"run", "runs"}, {"a.b", "runs"}}));
  for (const char* reference : {"${.folder}", "${names.folder}"})
    EXPECT_EQ(problem(("names: {folder: a, run: '" + std::string{reference} + "'}\n").c_str()),
              "names.run: names -> ${names.folder}: an entry of a map cannot be named");
}

TEST(AReference, IsRefusedAtTheItemOfAListThatHoldsIt) {
  const auto report = [](const char* yaml) {
    const auto problems = fill<Config>(yaml).problems;
    return problems.substr(0, problems.find('\n'));
  };
  EXPECT_EQ(report("others:\n  - 1\n  - ${first.step}\n"),
            "t.yaml:3:5: others[1]: others -> ${first.step}: unknown key; did you mean first.steps?");
  EXPECT_EQ(report("others: [1, 2, '${oc.env:DDPXX_TEST_NONE}']\n").find("t.yaml:1:16: others[2]: others -> "), 0U);
  EXPECT_EQ(report("others: [1, '${']\n"), "t.yaml:1:13: others[1]: ${ is never closed");
}

TEST(AVariable, IsReadOrHasADefault) {
  ASSERT_EQ(::setenv("DDPXX_TEST_NAME", "abc", 1), 0);
  ASSERT_EQ(::unsetenv("DDPXX_TEST_NONE"), 0);
  ASSERT_EQ(::setenv("DDPXX_TEST_EMPTY", "", 1), 0);
  const auto empty = fill<Config>("first: {name: '${oc.env:DDPXX_TEST_EMPTY,other}'}\n");
  EXPECT_EQ(empty.problems, "");
  EXPECT_EQ(empty.config.first.name, "") << "an empty variable is set";
  const auto filled = fill<Config>(
      "first: {name: '${oc.env:DDPXX_TEST_NAME}', steps: '${oc.env:DDPXX_TEST_NONE, 5}'}\nfolder: \"\\\\${a}\"\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.first.name, "abc");
  EXPECT_EQ(filled.config.first.steps, 5);
  EXPECT_EQ(filled.config.folder, "${a}") << "a reference behind a backslash must not be replaced";
}

// The results of OmegaConf 2.4.
TEST(Backslashes, InFrontOfAReferenceAreReadAsOmegaConfReadsThem) {
  const std::map<std::string, std::string> read{{R"(a\${first.name})", R"(a${first.name})"},
                                                {R"(a\\${first.name})", R"(a\x)"},
                                                {R"(a\\\${first.name})", R"(a\${first.name})"},
                                                {R"(a\\\\${first.name})", R"(a\\x)"},
                                                {R"(\\${first.name}\${first.name})", R"(\x${first.name})"},
                                                {R"(\\ \${first.name})", R"(\\ ${first.name})"},
                                                {R"(${first.name}\\)", R"(x\\)"}};
  for (const auto& [written, expected] : read) {
    const auto filled = fill<Config>("folder: '" + written + "'\nnames: {a: '${..folder}'}\n");
    EXPECT_EQ(filled.problems, "") << written;
    EXPECT_EQ(filled.config.folder, expected) << written;
    EXPECT_EQ(filled.config.names.at("a"), expected) << written;
    EXPECT_EQ(fill<Config>("folder: " + ConfigCodec<std::string>::print(expected) + "\n").config.folder, expected);
  }
}

TEST(AReference, IsShownAsItWasWritten) {
  Config config;
  const auto& table = table_of<Config>();
  ConfigBuilder builder{table, &config};
  builder.apply(
      read_yaml_text("others: [1, '${first.steps}', 2e0]\nnames: {a: '${folder}', b: x}\n"
                     "folder: '${oc.env:DDPXX_TEST_NONE,here}'\n",
                     "t.yaml", 0));
  const std::vector<const char*> arguments{"names.c=${folder}", "betas=(0.5, ${.betas_end})", "betas=[0.5,1]"};
  builder.apply(read_arguments(arguments, table).entries);
  builder.finish();
  EXPECT_EQ(problem_report(builder.problems()), "");
  const auto written = [&](const char* path) { return builder.as_written(*table.find(path)).value_or("none"); };
  EXPECT_EQ(written("others"), "[1, \"${first.steps}\", 2e0]");
  EXPECT_EQ(written("names"), "{\"a\": \"${folder}\", \"b\": \"x\", \"c\": \"${folder}\"}");
  EXPECT_EQ(written("folder"), "\"${oc.env:DDPXX_TEST_NONE,here}\"");
  EXPECT_EQ(written("betas"), "none") << "the last value of betas contains no reference";
  EXPECT_EQ(written("first.steps"), "none");
}

TEST(AVariable, HasADefaultThatMayBeInQuotesAsInOmegaConf) {
  ASSERT_EQ(::setenv("DDPXX_TEST_NAME", "abc", 1), 0);
  ASSERT_EQ(::unsetenv("DDPXX_TEST_NONE"), 0);
  const auto folder = [](const std::string& inside) {
    const auto filled = fill<Config>("folder: |-\n  ${oc.env:" + inside + "}\n");
    EXPECT_EQ(filled.problems, "") << inside;
    return filled.config.folder;
  };
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'default'"), "default");
  EXPECT_EQ(folder("DDPXX_TEST_NONE, \"a b\" "), "a b");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,''"), "");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'null'"), "null") << "a quoted null is a text";
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'a}b,c'"), "a}b,c");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'it\\'s'"), "it's");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,\"it's\""), "it's");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'a\\\\b\\n'"), "a\\\\b\\n") << "backslashes count only in front of a quote";
  EXPECT_EQ(folder("DDPXX_TEST_NONE,'a\\\\'"), "a\\");
  EXPECT_EQ(folder("DDPXX_TEST_NONE,it's"), "it's") << "a quote inside of a text has no meaning";
  EXPECT_EQ(folder(" DDPXX_TEST_NAME , 'x'"), "abc") << "spaces around the name do not count";
  EXPECT_EQ(fill<Config>("first: {steps: \"${oc.env:DDPXX_TEST_NONE,'5'}\"}\n").config.first.steps, 5);
}

TEST(AReference, IsRefusedWithTheChainThatLedToIt) {
  EXPECT_EQ(problem("first: {steps: '${second.steps}'}\nsecond: {steps: '${first.warmup}', warmup: '${first.step}'}\n"),
            "second.warmup: second.warmup -> ${first.step}: unknown key; did you mean first.steps?");
  EXPECT_EQ(problem("first: {steps: '${second.steps}'}\nsecond: {steps: '${first.steps}'}\n"),
            "second.steps: first.steps -> second.steps -> first.steps: these name each other in a circle");
  EXPECT_EQ(problem("first: {steps: '${second.steps}'}\nsecond: {steps: '${oc.env:DDPXX_TEST_NONE}'}\n"),
            "second.steps: first.steps -> second.steps -> ${oc.env:DDPXX_TEST_NONE}: this variable is not set; set it, "
            "or write ${oc.env:DDPXX_TEST_NONE,DEFAULT}");
  EXPECT_EQ(problem("folder: ${first}\n"), "folder: folder -> ${first}: this is not a single value");
  EXPECT_EQ(problem("folder: ${token}\n"), "folder: folder -> ${token}: a secret cannot be named");
  EXPECT_EQ(problem("folder: ${hydra:run.dir}\n"),
            "folder: ${hydra:run.dir} is not known (allowed: ${a.b} for a setting, ${oc.env:NAME,DEFAULT})");
  EXPECT_EQ(problem("folder: ${now:%Y-%m-%d}\n"),
            "folder: ${now:%Y-%m-%d} is not known; the name of a run folder takes %Y-%m-%d itself");
  EXPECT_EQ(problem("folder: '${first.name'\n"), "folder: ${ is never closed");
  EXPECT_EQ(problem("folder: '${a${b}}'\n"), "folder: a ${...} inside of another is not supported");
  EXPECT_EQ(problem("folder: '${..a}'\n"), "folder: ${..a} has more dots than there are groups around");
  EXPECT_EQ(problem("first: {steps: '${folder}'}\n"), "first.steps: \"runs\" is not a whole number");
  EXPECT_EQ(problem("folder: 'a${betas}'\n"), "folder: `betas` is not a text that can stand within another");
}

TEST(AReference, ThatIsOverriddenIsNotLookedAt) {
  EXPECT_EQ(fill<Config>("folder: '${nowhere}'\n", {"folder=here"}).problems, "");
}

}  // namespace
}  // namespace ddpxx::interpolation_test
