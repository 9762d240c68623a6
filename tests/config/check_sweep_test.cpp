// The settings of all jobs of a sweep are checked before the first job starts.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/check_sweep.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::check_sweep_test {
namespace {

using namespace detail;

struct Config {
  double rate = 0.1;
  std::string log;
  static constexpr auto describe() {
    return fields(field<&Config::rate>("A rate", above(0.0)), field<&Config::log>("A file", Output::file));
  }
};

std::string refusal(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"program", "-m"});
  const auto sweep = read_sweep(static_cast<int>(arguments.size()), arguments.data(), table_of<Config>());
  try {
    check_sweep<Config>(sweep.value(), {.argument_numbers = {7, 8, 9}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(TheJobsOfASweep, AreAllChecked) {
  EXPECT_EQ(refusal({"rate=1,2,3"}), "none");
  EXPECT_EQ(refusal({"rate=1,0,x", "rte=1"}),
            "no job was started, since not all can run:\n"
            "job 0: argument 2: \"rte=1\": unknown key; did you mean rate?\n"
            "job 1: argument 1: \"rate=0\": \"0\" is out of range (allowed: above 0)\n"
            "job 2: argument 1: \"rate=x\": \"x\" is not a number (allowed: above 0)");
}

TEST(TheJobsOfASweep, AreCheckedInTheirFolders) {
  EXPECT_EQ(refusal({"rate=1,2", "log=rows"}), "none");
  EXPECT_THAT(refusal({"rate=1,2", "log=/tmp/rows"}), testing::HasSubstr("writes no file outside of its own folder"));
}

TEST(TheJobsOfASweep, AreToldUpToTwenty) {
  std::string values = "rate=";
  for (int i = 0; i < 30; ++i) values += (i == 0 ? "-" : ",-") + std::to_string(i + 1);
  EXPECT_THAT(refusal({values.c_str()}), testing::EndsWith("\nand 10 more"));
}

}  // namespace
}  // namespace ddpxx::check_sweep_test
