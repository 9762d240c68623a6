#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/print.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::map_test {
namespace {

using namespace detail;

struct Config {
  std::map<std::string, std::string> labels{{"team", "core"}};
  std::map<std::string, std::vector<std::int64_t>> sizes;
  std::map<std::string, double> weights;
  std::string folder = "runs";
  static constexpr auto describe() { return fields(field<&Config::weights>("Share of each source", above(0.0))); }
};
using Labels = std::map<std::string, std::string>;

TEST(AMap, IsWhatAFileSays) {
  const auto filled = fill<Config>("labels: {run: a, \"b c\": 2}\nsizes:\n  x: [1, 2]\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.labels, (Labels{{"run", "a"}, {"b c", "2"}}));
  EXPECT_EQ(filled.config.sizes.at("x"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(fill<Config>("labels: {}\n").config.labels.empty());
  EXPECT_EQ(fill<Config>("weights: {web: 1}\n").config.labels.size(), 1U) << "other maps must keep their defaults";
}

TEST(AMap, IsChangedEntryByEntryByArguments) {
  const auto filled = fill<Config>("", {"labels.run=a", "+labels.user=b", "~labels.team", "+sizes.x=[3]"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.labels, (Labels{{"run", "a"}, {"user", "b"}}));
  EXPECT_EQ(filled.config.sizes.at("x"), (std::vector<std::int64_t>{3}));
}

TEST(AMap, IsGivenAsAWholeInBraces) {
  const auto filled = fill<Config>("", {"labels={run: a, 'b, c': \"d}\"}", "sizes={x:[1,2],y:[]}", "weights={}"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.labels, (Labels{{"run", "a"}, {"b, c", "d}"}}));
  EXPECT_EQ(filled.config.sizes.size(), 2U);
}

TEST(AMap, IsReplacedByALaterWholeAndChangedInOrder) {
  EXPECT_EQ(fill<Config>("", {"labels={a: 1}", "labels={b: 2}"}).config.labels, (Labels{{"b", "2"}}));
  EXPECT_EQ(fill<Config>("", {"labels.a=1", "labels={b: 2}", "labels.c=3"}).config.labels,
            (Labels{{"b", "2"}, {"c", "3"}}));
  EXPECT_EQ(fill<Config>("", {"--labels.my-key=1"}).config.labels.at("my-key"), "1");
}

TEST(AMap, ForgetsReferencesThatAreOverridden) {
  const auto yaml = "labels: {a: '${folder}', b: '${folder}'}\n";
  EXPECT_EQ(fill<Config>(yaml, {"labels.a=x", "~labels.b"}).config.labels, (Labels{{"a", "x"}}));
  EXPECT_EQ(fill<Config>(yaml, {"labels={}"}).config.labels, Labels{});
  EXPECT_EQ(fill<Config>(yaml).config.labels, (Labels{{"a", "runs"}, {"b", "runs"}}));
}

TEST(AMap, NamesWhatIsWrong) {
  EXPECT_EQ(fill<Config>("weights: {web: 0}\n").problems,
            "t.yaml:1:16: weights.web: \"0\" is out of range (allowed: above 0)\n    weights: {web: 0}\n               "
            "    ^");
  EXPECT_EQ(fill<Config>("labels: {a: {b: 1}}\n").problems,
            "t.yaml:1:10: labels.a: is a group; the entries of this map are single values\n    labels: {a: {b: 1}}\n"
            "             ^");
  EXPECT_EQ(
      fill<Config>("labels: [a]\n").problems,
      "t.yaml:1:9: labels: is a map; give its entries as `key: value`, or {} for none\n    labels: [a]\n            ^");
  EXPECT_EQ(fill<Config>("", {"~labels.none"}).problems, "argument 1: \"~labels.none\": is not an entry of the map");
  EXPECT_EQ(fill<Config>("", {"~labels"}).problems,
            "argument 1: \"~labels\": settings cannot be removed; leave it out, or write key=null");
  EXPECT_EQ(fill<Config>("", {"~labels.team=core"}).problems,
            "argument 1: \"~labels.team=core\": write ~key, without a value");
  EXPECT_EQ(fill<Config>("", {"labels={a b}"}).problems,
            "argument 1: \"labels={a b}\": an entry of the map is written key: value");
  EXPECT_EQ(fill<Config>("", {"labels={a: b"}).problems, "argument 1: \"labels={a: b\": this { is never closed");
}

TEST(AMap, IsPrintedAndReadsBack) {
  Config config;
  config.labels = {{"a.b", "no"}, {"c: d", "\"1\""}, {"", ""}};
  config.weights = {{"x", 0.5}};
  const auto yaml = print_yaml(config);
  EXPECT_EQ(yaml,
            "labels: {\"\": \"\", \"a.b\": \"no\", \"c: d\": \"\\\"1\\\"\"}\nsizes: {}\nweights: {\"x\": 0.5}\nfolder: "
            "\"runs\"\n");
  const auto filled = fill<Config>(yaml);
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.labels, config.labels);
  EXPECT_EQ(print_yaml(filled.config), yaml);
}

}  // namespace
}  // namespace ddpxx::map_test
