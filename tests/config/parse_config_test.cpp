#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

struct Optimizer {
  double learning_rate = 3e-4;
  static constexpr auto describe() { return fields(field<&Optimizer::learning_rate>("Peak step size", above(0.0))); }
};
struct Config {
  Optimizer optimizer;
  std::int64_t seed = 1;
  static constexpr auto ignored() { return std::array{Ignored{"hydra", "the working directory is never changed"}}; }
};

/// A folder of its own, and the process stands in it, so that messages name files as a user would.
class ParseConfig : public testing::Test {
 protected:
  ParseConfig() { std::filesystem::current_path(folder_.path()); }
  ~ParseConfig() override { std::filesystem::current_path(before_); }

  static void write(const std::filesystem::path& path, std::string_view text) { std::ofstream{path} << text; }

  static Config parse(std::vector<const char*> arguments, const ParseOptions& options = {}) {
    arguments.insert(arguments.begin(), "build/bin/program");
    return parse_config<Config>(static_cast<int>(arguments.size()), arguments.data(), options);
  }

  static std::string refusal(const std::vector<const char*>& arguments, const ParseOptions& options = {}) {
    try {
      parse(arguments, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return error.what();
    }
    return "none";
  }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

TEST_F(ParseConfig, WithoutArgumentsGivesTheDefaults) {
  EXPECT_EQ(parse({}).optimizer.learning_rate, 3e-4);
  EXPECT_EQ(parse_config<Config>(0, nullptr).seed, 1);
}

TEST_F(ParseConfig, TakesArgumentsOverTheFileOverTheDefaults) {
  write("train.yaml", "optimizer: {learning_rate: 1e-2}\nseed: 5\n");
  const auto config = parse({"seed=6", "--config-name=train.yaml"});
  EXPECT_EQ(config.optimizer.learning_rate, 1e-2);
  EXPECT_EQ(config.seed, 6);
}

TEST_F(ParseConfig, FindsTheFileByEverySpelling) {
  std::filesystem::create_directories("conf/sub/train");
  write("conf/sub/train.yaml", "seed: 5\n");
  write("conf/other.yml", "seed: 7\n");
  EXPECT_EQ(parse({"--config-path", "conf/sub", "--config-name", "train.yaml"}).seed, 5);
  EXPECT_EQ(parse({"--config-name", "train", "--config-path=conf/sub"}).seed, 5) << "not the folder of that name";
  EXPECT_EQ(parse({"-cn", "sub/train"}, {.config_path = "conf"}).seed, 5);
  EXPECT_EQ(parse({"-cn", "other"}, {.config_path = "conf"}).seed, 7);
  const auto absolute = std::filesystem::absolute("conf/other.yml").string();
  EXPECT_EQ(parse({"-cn", absolute.c_str()}, {.config_path = "elsewhere"}).seed, 7);
}

TEST_F(ParseConfig, ReadsSeveralFilesFromLeftToRight) {
  write("a.yaml", "seed: 5\noptimizer: {learning_rate: 1}\n");
  write("b.yaml", "seed: 6\n");
  const auto config = parse({"-cn", "a", "-cn", "b"});
  EXPECT_EQ(config.seed, 6);
  EXPECT_EQ(config.optimizer.learning_rate, 1);
}

TEST_F(ParseConfig, TakesAnEmptyFileForTheDefaults) {
  write("empty.yaml", "");
  EXPECT_EQ(parse({"-cn", "empty"}).seed, 1);
}

TEST_F(ParseConfig, ReportsAllProblemsOfAllSourcesSortedByPlace) {
  std::filesystem::create_directory("conf");
  write("conf/a.yaml", "seed: x\n");
  write("conf/b.yaml", "# two\noptimizer:\n  learning_rate: 3e-4x\nsed: 1\n");
  EXPECT_EQ(refusal({"optimzer.lr=1", "-cn", "a", "-cn", "b", "seed=1.5"}, {.config_path = "conf"}),
            "conf/a.yaml:1:7: seed: \"x\" is not a whole number\n    seed: x\n          ^\n"
            "conf/b.yaml:3:18: optimizer.learning_rate: \"3e-4x\" is not a number (allowed: above 0)\n"
            "      learning_rate: 3e-4x\n                     ^\n"
            "conf/b.yaml:4:1: sed: unknown key; did you mean seed?\n    sed: 1\n    ^\n"
            "argument 1: \"optimzer.lr=1\": unknown key; did you mean optimizer.learning_rate?\n"
            "argument 6: \"seed=1.5\": \"1.5\" is not a whole number");
}

TEST_F(ParseConfig, NamesAFileThatCannotBeRead) {
  EXPECT_EQ(refusal({"seed=x", "-cn", "none"}),
            "argument 1: \"seed=x\": \"x\" is not a whole number\n"
            "argument 2: \"-cn none\": cannot open none: No such file or directory (errno 2)");
  std::filesystem::create_directory("folder.yaml");
  EXPECT_EQ(refusal({"--config-name=folder"}),
            "argument 1: \"--config-name=folder\": cannot read folder.yaml: Is a directory");
  ASSERT_EQ(::mkfifo("pipe.yaml", 0600), 0);
  EXPECT_EQ(refusal({"-cn", "pipe"}), "argument 1: \"-cn pipe\": cannot read pipe.yaml: it is no regular file");
  std::filesystem::create_symlink("loop.yaml", "loop.yaml");
  EXPECT_EQ(refusal({"-cn", "loop.yaml"}),
            "argument 1: \"-cn loop.yaml\": cannot open loop.yaml: Too many levels of symbolic links (errno 40)");
}

TEST_F(ParseConfig, SuggestsAFileOfTheFolder) {
  std::filesystem::create_directory("conf");
  write("conf/gpt2_train_cfg.yaml", "");
  EXPECT_EQ(refusal({"-cn", "gpt2_trian_cfg"}, {.config_path = "conf"}),
            "argument 1: \"-cn gpt2_trian_cfg\": cannot open conf/gpt2_trian_cfg: No such file or directory (errno 2) "
            "(did you mean gpt2_train_cfg?)");
  EXPECT_EQ(
      refusal({"-cn", "gpt2_train.yaml", "-cp", "conf"}),
      "argument 1: \"-cn gpt2_train.yaml\": cannot open conf/gpt2_train.yaml: No such file or directory (errno 2) "
      "(did you mean gpt2_train_cfg.yaml?)");
}

TEST_F(ParseConfig, RefusesAHugeFile) {
  write("huge.yaml", "");
  std::filesystem::resize_file("huge.yaml", std::uintmax_t{100} << 20);
  EXPECT_EQ(refusal({"-cn", "huge"}),
            "argument 1: \"-cn huge\": cannot read huge.yaml: more than 16 MiB is no configuration");
}

TEST_F(ParseConfig, PrintsNoticesOnRankZeroOnly) {
  write("train.yaml", "hydra:\n  run: {dir: .}\n");
  testing::internal::CaptureStderr();
  parse({"-cn", "train", "hydra.job=x", "seed=0x10"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "train.yaml:1:1: hydra: the working directory is never changed\n"
            "argument 3: \"hydra.job=x\": the working directory is never changed\n"
            "argument 4: \"seed=0x10\": \"0x10\" is hexadecimal and read as 16\n");
  ASSERT_EQ(::setenv("RANK", "1", 1), 0);
  testing::internal::CaptureStderr();
  parse({"-cn", "train"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(::unsetenv("RANK"), 0);
}

TEST_F(ParseConfig, PrintsHelpAndEndsBeforeAnythingElse) {
  const auto print_help = [](const ParseOptions& options) {
    ::dup2(2, 1);  // a death test looks at stderr
    parse({"seed=x", "--help", "-cn", "none"}, options);
  };
  EXPECT_EXIT(print_help({}), testing::ExitedWithCode(0), "^usage: program (.|\n)*optimizer.learning_rate=0.0003");
  EXPECT_EXIT(print_help({.config_path = "conf", .program = "mingpt"}), testing::ExitedWithCode(0),
              "^usage: mingpt (.|\n)*default: conf\n");
}

}  // namespace
}  // namespace ddpxx
