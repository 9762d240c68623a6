#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <ddpxx/config/files/problem_json.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::problem_json_test {
namespace {

using namespace detail;

TEST(ProblemsAsJson, AreSortedAsInTheReport) {
  const auto file = std::make_shared<ConfigSource>(ConfigSource{.order = 0, .name = "t.yaml"});
  const auto variables =
      std::make_shared<ConfigSource>(ConfigSource{.lines = {"T_SEED=x"}, .kind = ConfigSource::Kind::environment});
  const auto line =
      std::make_shared<ConfigSource>(ConfigSource{.lines = {"seed=y"}, .kind = ConfigSource::Kind::arguments});
  EXPECT_EQ(problems_as_json({}), "[]");
  EXPECT_EQ(
      problems_as_json({{{}, "seed", "is \"one\"\n"},
                        {{line, 1, 1}, "seed", "two"},
                        {{variables, 1, 1}, "seed", "three"},
                        {{file, 3, 2}, "", "four \xFF"},
                        {{file, 1, 2}, "a.b", "five"}}),
      R"([{"source":"t.yaml","line":1,"column":2,"path":"a.b","message":"five"},)"
      R"({"source":"t.yaml","line":3,"column":2,"path":"","message":"four )"
      "\xEF\xBF\xBD"
      R"("},{"source":"environment variable T_SEED: \"x\"","line":null,"column":null,"path":"seed","message":"three"},)"
      R"({"source":"argument 1: \"seed=y\"","line":null,"column":null,"path":"seed","message":"two"},)"
      R"({"source":"default","line":null,"column":null,"path":"seed","message":"is \"one\"\n"}])");
}

}  // namespace
}  // namespace ddpxx::problem_json_test
