#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::help_test {
namespace {

using namespace detail;

enum class Layout { gpt2, mingpt_ddp };
constexpr auto enum_names(Layout) {
  return std::array{Named{Layout::gpt2, "gpt2"}, Named{Layout::mingpt_ddp, "mingpt_ddp"}};
}

struct Optimizer {
  double learning_rate = 3e-4;
  std::int64_t warmup_steps = 0;
  static constexpr auto describe() {
    return fields(field<&Optimizer::learning_rate>("Peak step size", above(0.0)),
                  field<&Optimizer::warmup_steps>("Linear warm-up", at_least(0), Unit::steps));
  }
};
struct Config {
  Layout layout = Layout::gpt2;
  Optimizer optimizer;
  std::optional<std::int64_t> bucket_bytes;
  std::string a_key_whose_name_is_far_too_long_for_the_column = "x";
  static constexpr auto describe() {
    return fields(field<&Config::optimizer>("How the weights are moved"),
                  field<&Config::bucket_bytes>("Size of a bucket", Unit::bytes, at_least(1)));
  }
  static constexpr auto positionals() { return std::array{"layout"}; }
  static constexpr auto aliases() { return std::array{Alias{"lr", "optimizer.learning_rate"}}; }
};

TEST(Help, NamesEveryKeyWithItsDefaultMeaningAndRange) {
  const std::vector<Command> commands{{"plan", "tells what it takes"}};
  const auto text = help_text(table_of<Config>(), "mingpt", "samples/mingpt", commands);
  EXPECT_TRUE(text.starts_with("usage: mingpt [COMMAND] [FILE] [KEY=VALUE]... [layout]\n"));
  EXPECT_NE(text.find("default: samples/mingpt\n"), std::string::npos);
  EXPECT_NE(text.find("\n  plan                tells what it takes\n  init [FILE]         writes"), std::string::npos);
  EXPECT_NE(text.find("\nArguments without a key set, in this order: layout.\n"), std::string::npos);
  EXPECT_TRUE(help_text(table_of<Config>(), "job", ".", {}, "-- PROGRAM")
                  .starts_with("usage: job [COMMAND] [FILE] [KEY=VALUE]... [layout] -- PROGRAM\n"));
  EXPECT_EQ(text.substr(text.find("\nother names:")), "\nother names:\n  lr is optimizer.learning_rate\n");
  const auto keys = text.find("\n\n  layout=");
  EXPECT_EQ(
      text.substr(keys, text.find("\nother names:") - keys),
      "\n\n  layout=\"gpt2\"                             (gpt2 or mingpt_ddp)\n"
      "\n"
      "optimizer: How the weights are moved\n"
      "  optimizer.learning_rate=0.0003            Peak step size (a number, above 0)\n"
      "  optimizer.warmup_steps=0                  Linear warm-up (a whole number, at least 0, in steps)\n"
      "\n"
      "  bucket_bytes=null                         Size of a bucket (a whole number or null, at least 1, in bytes, or "
      "as 64kB, 25MiB, 2GB)\n"
      "  a_key_whose_name_is_far_too_long_for_the_column=\"x\"  (a text)\n");
}

TEST(Help, IsBrokenToTheTerminalsWidth) {
  const std::string text =
      "  key=1     word word word word\n  a_long_key_of_its_own=1  word word word word word\nplain\n";
  EXPECT_EQ(wrapped_help(text, 0), text);
  EXPECT_EQ(wrapped_help(text, 24),
            "  key=1     word word\n            word word\n"
            "  a_long_key_of_its_own=1\n      word word word\n      word word\nplain\n");
  std::size_t longest = 0;
  std::istringstream lines{wrapped_help(help_text(table_of<Config>(), "mingpt", "conf"), 60)};
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 60U);
}

}  // namespace
}  // namespace ddpxx::help_test
