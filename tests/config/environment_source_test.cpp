#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/environment_source.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>

#include "entries_text.hpp"

namespace ddpxx::environment_source_test {
namespace {

using namespace detail;

struct Optimizer {
  double learning_rate = 1;
};
struct Root {
  Optimizer optimizer;
  std::int64_t seed = 1;
  std::string name;
  std::vector<std::string> files;
  std::map<std::string, int> steps;
};

SourceEntries read(const std::vector<const char*>& variables) {
  return read_environment("TRAIN_", variables, table_of<Root>());
}

TEST(Variables, WithThePrefixAreSettings) {
  const auto entries =
      read({"TRAIN_OPTIMIZER__LEARNING_RATE=1e-3", "PATH=/bin", "TRAIN_SEED=7", "TRAIN=x", "OTHER_SEED=8"});
  EXPECT_EQ(problem_report(entries.problems), "");
  EXPECT_EQ(entries_text(entries), "optimizer.learning_rate@1:1=1e-3@1:1 seed@2:1=7@2:1");
  EXPECT_EQ(entries.list[0].keys.size(), 2U);
}

TEST(Variables, AreReadAsArgumentsAre) {
  EXPECT_EQ(entries_text(read({"TRAIN_FILES=[a, 'b, c']", "TRAIN_NAME=[x]", "TRAIN_SEED='5'",
                               "TRAIN_STEPS={a: 1, B: 2}", "TRAIN_STEPS__C=3", "train_seed=9"})),
            "files@1:1=[a@1:1,\"b, c\"@1:1] name@2:1=[x]@2:1 seed@3:1=\"5\"@3:1 steps@4:1={} steps.a@4:1=1@4:1 "
            "steps.B@4:1=2@4:1 steps.c@5:1=3@5:1");
  EXPECT_EQ(entries_text(read({"TRAIN_NAME=", "TRAIN_A_B__C___D=x=y"})), "a_b.c._d@1:1=x=y@1:1 name@2:1=@2:1");
}

TEST(Variables, GiveMapsThatReplaceWhatWasThere) {
  Root root;
  root.steps["old"] = 1;
  ConfigBuilder builder{table_of<Root>(), &root};
  builder.apply(read({"TRAIN_STEPS={new: 2, 'x y': 3}", "TRAIN_FILES=(a, b)"}));
  builder.finish();
  EXPECT_EQ(problem_report(builder.problems()), "");
  EXPECT_EQ(root.steps, (std::map<std::string, int>{{"new", 2}, {"x y", 3}}));
  EXPECT_EQ(root.files, (std::vector<std::string>{"a", "b"}));
}

TEST(Variables, AreNamedInMessages) {
  const auto entries = read({"TRAIN_FILES=[a", "TRAIN_NAME=\xFF", "TRAIN_SEED=1", "TRAIN_Seed=2", "TRAIN_STEPS={a}"});
  EXPECT_EQ(problem_report(entries.problems),
            "environment variable TRAIN_FILES: \"[a\": this [ is never closed\n"
            "environment variable TRAIN_NAME: \"\\xff\": is not UTF-8\n"
            "environment variable TRAIN_STEPS: \"{a}\": an entry of the map is written key: value\n"
            "environment variable TRAIN_Seed: \"2\": sets seed, as TRAIN_SEED does; keep one of the two");
}

TEST(Variables, ComeAfterFilesAndBeforeArguments) {
  const auto variable = read({"TRAIN_SEED=1"}).source;
  const auto file = std::make_shared<ConfigSource>(ConfigSource{.order = 9, .name = "t.yaml"});
  const auto line = std::make_shared<ConfigSource>(
      ConfigSource{.order = 0, .lines = {"seed=1"}, .kind = ConfigSource::Kind::arguments});
  EXPECT_EQ(problem_report({{{}, "seed", "four"},
                            {{line, 1, 1}, "", "three"},
                            {{variable, 1, 1}, "", "two"},
                            {{file, 3, 2}, "seed", "one"}}),
            "t.yaml:3:2: seed: one\n"
            "environment variable TRAIN_SEED: \"1\": two\n"
            "argument 1: \"seed=1\": three\n"
            "default: seed: four");
}

TEST(Variables, OfThisProcessAreFound) {
  ASSERT_EQ(::setenv("TRAIN_SEED", "11", 1), 0);
  EXPECT_EQ(entries_text(read_environment("TRAIN_", environment_variables(), table_of<Root>())), "seed@1:1=11@1:1");
  ASSERT_EQ(::unsetenv("TRAIN_SEED"), 0);
}

}  // namespace
}  // namespace ddpxx::environment_source_test
