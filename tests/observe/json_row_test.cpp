#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/observe/json_row.hpp>

namespace ddpxx::json_row_test {
namespace {

TEST(JsonRow, KeepsTheOrderOfItsKeys) {
  EXPECT_EQ(JsonRow{}.add("step", std::int64_t{7}).add("loss", 2.5).add("path", "a/b").line(),
            "{\"step\":7,\"loss\":2.5,\"path\":\"a/b\"}\n");
  EXPECT_EQ(JsonRow{}.line(), "{}\n");
}

TEST(JsonRow, WritesNumbersThatReadBackAsTheSame) {
  for (const double value : {0.1, 1.0 / 3, 3e-4, 1e-300, 123456789.123456789, -0.0, 5e-324, 1.7e308}) {
    const auto row = nlohmann::json::parse(JsonRow{}.add("x", value).line());
    EXPECT_EQ(row["x"].get<double>(), value);
  }
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(nlohmann::json::parse(JsonRow{}.add("x", most).line())["x"].get<std::int64_t>(), most);
}

TEST(JsonRow, WritesNullForWhatJsonCannotSay) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(JsonRow{}.add("a", std::nan("")).add("b", infinite).add("c", -infinite).line(),
            "{\"a\":null,\"b\":null,\"c\":null}\n");
}

TEST(JsonRow, QuotesAnyText) {
  for (const std::string text : {"", "plain", "a\"b\\c", "line\nend\ttab\x01", "größer", "\x7f"})
    EXPECT_EQ(nlohmann::json::parse(JsonRow{}.add("x", text).line())["x"].get<std::string>(), text);
  EXPECT_EQ(nlohmann::json::parse(JsonRow{}.add("x", "a\xFFz").line())["x"].get<std::string>(), "a\xEF\xBF\xBDz");
}

}  // namespace
}  // namespace ddpxx::json_row_test
