#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/program_end.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::parse_config_test {
namespace {

using namespace detail;

struct Optimizer {
  double learning_rate = 3e-4;
  static constexpr auto describe() { return fields(field<&Optimizer::learning_rate>("Peak step size", above(0.0))); }
};
struct Config {
  Optimizer optimizer;
  std::int64_t seed = 1;
  static constexpr auto ignored() { return std::array{Ignored{"hydra", "the working directory is never changed"}}; }
};

/// Each test runs in a new current folder, so that messages name files as a user would.
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
  EXPECT_EQ(parse({"--config-name", "train", "--config-path=conf/sub"}).seed, 5)
      << "must read train.yaml, not the folder train";
  EXPECT_EQ(parse({"-cn", "sub/train"}, {.config_path = "conf"}).seed, 5);
  EXPECT_EQ(parse({"-cn", "other"}, {.config_path = "conf"}).seed, 7);
  const auto absolute = std::filesystem::absolute("conf/other.yml").string();
  EXPECT_EQ(parse({"-cn", absolute.c_str()}, {.config_path = "elsewhere"}).seed, 7);
}

TEST_F(ParseConfig, LooksForTheFileWhereTheUserStandsFirst) {
  std::filesystem::create_directory("conf");
  write("conf/run.yaml", "seed: 5\n");
  EXPECT_EQ(parse({"-cn", "run.yaml"}, {.config_path = "conf"}).seed, 5);
  write("run.yaml", "seed: 6\n");
  EXPECT_EQ(parse({"-cn", "run.yaml"}, {.config_path = "conf"}).seed, 6);
  EXPECT_EQ(parse({"-cn", "./run.yaml"}, {.config_path = "conf"}).seed, 6);
  EXPECT_EQ(parse({"run.yaml"}, {.config_path = "conf"}).seed, 6) << "a word that ends in .yaml is a file";
  write("more.json", "{\"seed\": 7}");
  EXPECT_EQ(parse({"run.yaml", "more.json"}).seed, 7);
  EXPECT_EQ(refusal({"none.yaml"}, {.config_path = "conf"}),
            "argument 1: \"none.yaml\": there is no file \"none.yaml\" in the current folder or in conf (did you mean "
            "run.yaml?)");
}

TEST_F(ParseConfig, TellsAWordThatIsNoCommandWhichThereAre) {
  const ParseOptions options{.commands = {{"plan", "tells what it takes"}}};
  EXPECT_EQ(refusal({"sample"}, options),
            "argument 1: \"sample\": is neither a command (init or plan) nor a setting; settings are written "
            "key=value, --help lists them");
  EXPECT_EQ(refusal({"paln"}, options),
            "argument 1: \"paln\": is neither a command (init or plan) nor a setting; did you mean plan?");
  EXPECT_EQ(refusal({"seed=1", "plan"}, options),
            "argument 2: \"plan\": is a command, which comes before all other arguments");
  EXPECT_EQ(parse({"plan", "seed=4"}, options).seed, 4) << "a command must be left to the program";
}

TEST_F(ParseConfig, CountsArgumentsAsTheProgramDoes) {
  EXPECT_EQ(refusal({"seed=1", "--seed", "x", "sed=3"}, {.argument_numbers = {2, 5, 6, 9}}),
            "argument 5: \"--seed x\": \"x\" is not a whole number\n"
            "argument 9: \"sed=3\": unknown key; did you mean seed?");
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
  EXPECT_EQ(refusal({"-cn="}), "argument 1: \"-cn=\": needs a value");
  EXPECT_EQ(refusal({"seed=x", "-cn", "none"}),
            "argument 1: \"seed=x\": \"x\" is not a whole number\n"
            "argument 2: \"-cn none\": there is no file \"none\" in the current folder");
  std::filesystem::create_directory("folder.yaml");
  EXPECT_EQ(refusal({"--config-name=folder"}),
            "argument 1: \"--config-name=folder\": cannot read folder.yaml: Is a directory");
  ASSERT_EQ(::mkfifo("pipe.yaml", 0600), 0);
  EXPECT_EQ(refusal({"-cn", "pipe"}), "argument 1: \"-cn pipe\": cannot read pipe.yaml: it is not a regular file");
  std::filesystem::create_symlink("loop.yaml", "loop.yaml");
  EXPECT_EQ(refusal({"-cn", "loop.yaml"}),
            "argument 1: \"-cn loop.yaml\": cannot open loop.yaml: Too many levels of symbolic links (errno 40)");
}

TEST_F(ParseConfig, SuggestsAFileOfTheFolder) {
  std::filesystem::create_directory("conf");
  write("conf/gpt2_train_cfg.yaml", "");
  EXPECT_EQ(refusal({"-cn", "gpt2_trian_cfg"}, {.config_path = "conf"}),
            "argument 1: \"-cn gpt2_trian_cfg\": there is no file \"gpt2_trian_cfg\" in the current folder or in conf "
            "(did you mean gpt2_train_cfg?)");
  EXPECT_EQ(
      refusal({"-cn", "gpt2_train.yaml", "-cp", "conf"}),
      "argument 1: \"-cn gpt2_train.yaml\": there is no file \"gpt2_train.yaml\" in the current folder or in conf "
      "(did you mean gpt2_train_cfg.yaml?)");
}

TEST_F(ParseConfig, RefusesAHugeFile) {
  write("huge.yaml", "");
  std::filesystem::resize_file("huge.yaml", std::uintmax_t{100} << 20);
  EXPECT_EQ(refusal({"-cn", "huge"}),
            "argument 1: \"-cn huge\": cannot read huge.yaml: it has more than 16 MiB, which is too much for a "
            "configuration");
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

struct Strict {
  std::string path;
  double rate = 1;
  static constexpr auto describe() { return fields(field<&Strict::rate>("A rate", above(0.0))); }
  std::vector<FieldError> check() const {
    if (path.empty()) return {{"path", "no text to train on: set path=FILE"}};
    return {{"rate", "does nothing", Severity::warning}};
  }
};

/// Copies stdout to stderr, because a death test matches stderr only.
void look(std::vector<const char*> arguments, const ParseOptions& options = {}) {
  ::dup2(2, 1);  // a death test matches stderr only
  arguments.insert(arguments.begin(), "program");
  try {
    parse_config<Strict>(static_cast<int>(arguments.size()), arguments.data(), options);
  } catch (const ProgramEnd& end) {
    std::exit(end.code());
  }
  std::exit(9);
}

TEST_F(ParseConfig, ShowsAConfigurationThatIsNotReady) {
  const std::string open = "warning: not ready to run: path: no text to train on: set path=FILE\n$";
  EXPECT_EXIT(look({"rate=2", "--cfg", "job"}), testing::ExitedWithCode(0), "^path: \"\"\nrate: 2.0\n" + open);
  EXPECT_EXIT(look({"--cfg=json"}), testing::ExitedWithCode(0), "^\\{(.|\n)*\\}\n+" + open);
  EXPECT_EXIT(look({"--blame"}), testing::ExitedWithCode(0), "# default\n(.|\n)*" + open);
  EXPECT_EXIT(look({"--info"}), testing::ExitedWithCode(0), "overrides:\n  none\n" + open);
  EXPECT_EXIT(look({}, {.only_looks = true}), testing::ExitedWithCode(9), "^" + open);
  EXPECT_THROW(look({"--cfg", "job", "rate=0"}), Error) << "an invalid configuration must not be shown";
  EXPECT_THROW(look({}), Error);
}

TEST_F(ParseConfig, ChecksNoRulesAboutWhatTheProgramDoesNotUse) {
  EXPECT_EXIT(look({}, {.unused = {"path"}}), testing::ExitedWithCode(9), "^$");
  EXPECT_EXIT(look({"path=x"}, {.unused = {"path"}}), testing::ExitedWithCode(9), "rate: warning: does nothing");
  EXPECT_EXIT(look({"path=x"}, {.unused = {"rate"}}), testing::ExitedWithCode(9), "^$");
  EXPECT_THROW(look({"rate=0"}, {.unused = {"path", "rate"}}), Error) << "a wrong value must be refused";
}

TEST_F(ParseConfig, PrintsWarningsOfRulesOnce) {
  const auto parse_strict = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    testing::internal::CaptureStderr();
    parse_config<Strict>(static_cast<int>(arguments.size()), arguments.data());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(parse_strict({"path=x"}), "rate: warning: does nothing\n");
  EXPECT_EQ(parse_strict({"path=x", "rate=2"}), "argument 2: \"rate=2\": warning: does nothing\n");
}

TEST_F(ParseConfig, TellsOfAnArgumentThatIsGivenTwice) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"seed=1", "seed=2"}).seed, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "argument 2: \"seed=2\": is given before, by argument 1: \"seed=1\"; the last one counts\n");
}

TEST_F(ParseConfig, SaysHowOtherProgramsWaysAreWritten) {
  const auto without_place = [](const std::string& text) { return text.substr(text.find("\": ") + 3); };
  EXPECT_EQ(without_place(refusal({"--config", "run.yaml"})),
            "a config file is named alone, or by --config-name (-cn)");
  EXPECT_EQ(without_place(refusal({"-c", "run.yaml"})), "a config file is named alone, or by --config-name (-cn)");
  EXPECT_EQ(refusal({"seed", "=", "3"}), "argument 1: \"seed = 3\": write key=value, without spaces around the =");
  EXPECT_EQ(refusal({"optimizer.learning_rate = 1e-3"}),
            "argument 1: \"optimizer.learning_rate = 1e-3\": write key=value, without spaces around the =");
  write("hydra.yaml", "defaults: [base]\n");
  EXPECT_NE(refusal({"hydra.yaml"}).find("by `include: [base.yaml, other.yaml]`"), std::string::npos);
}

struct Spoken {
  double temperature = 1;
  static constexpr auto synonyms() { return std::array{Synonym{"heat", "temperature"}}; }
};

TEST_F(ParseConfig, SuggestsByTheProgramsOwnSynonyms) {
  const std::vector<const char*> arguments{"program", "heat=2"};
  try {
    parse_config<Spoken>(2, arguments.data());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "argument 1: \"heat=2\": unknown key; did you mean temperature?");
  }
}

TEST_F(ParseConfig, TakesRecordedSettingsThatTheProgramChoosesByWhatIsGiven) {
  write("run.yaml", "optimizer: {learning_rate: 0.5}\n");
  GivenConfig<Config> seen;
  const auto recorded = [&](const GivenConfig<Config>& given) {
    seen = given;
    return RecordedSettings{{{"optimizer.learning_rate", "0.25"}, {"seed", "7"}}, "run 3"};
  };
  const std::array by_file{"program", "run.yaml"};
  const auto config = parse_config<Config>(2, by_file.data(), {}, recorded);
  EXPECT_EQ(config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.seed, 7);
  EXPECT_EQ(seen.config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(seen.config.seed, 1) << "the choice is made by what is given";
  EXPECT_EQ(seen.paths, std::set<std::string>{"optimizer.learning_rate"});
  EXPECT_TRUE(seen.unread.empty());
  EXPECT_TRUE(seen.is_run);

  const std::array wrong{"program", "seed=x", "optimizer.learning_rate=2"};
  EXPECT_THROW(parse_config<Config>(3, wrong.data(), {}, recorded), Error);
  EXPECT_EQ(seen.unread, std::set<std::string>{"seed"});
  EXPECT_EQ(seen.paths, std::set<std::string>{"optimizer.learning_rate"});

  const std::array refers{"program", "optimizer.learning_rate=${seed}"};
  EXPECT_EQ(parse_config<Config>(2, refers.data(), {}, recorded).optimizer.learning_rate, 7);
  EXPECT_TRUE(seen.paths.empty()) << "the value is known when recorded settings are";

  const std::array by_argument{"program", "seed=3"};
  EXPECT_EQ(parse_recorded<Config>(2, by_argument.data(), {}, recorded).record.settings.back().origin,
            "argument 1; overrides run 3:2:7 (7); default 1");
}

TEST_F(ParseConfig, PrintsHelpAndEndsBeforeAnythingElse) {
  const auto print_help = [](const ParseOptions& options) {
    ::dup2(2, 1);  // a death test matches stderr only
    try {
      parse({"seed=x", "--help", "-cn", "none"}, options);
    } catch (const ProgramEnd& end) {
      std::exit(end.code());
    }
  };
  EXPECT_EXIT(print_help({}), testing::ExitedWithCode(0), "^usage: program (.|\n)*optimizer.learning_rate=0.0003");
  EXPECT_EXIT(print_help({.config_path = "conf", .program = "mingpt"}), testing::ExitedWithCode(0),
              "^usage: mingpt (.|\n)*default: conf\n");
}

}  // namespace
}  // namespace ddpxx::parse_config_test
