// What a program prints about its configuration when it is asked to show it instead of running.
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/program_end.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::shown_test {
namespace {

struct Optimizer {
  double learning_rate = 3e-4;
  std::int64_t steps = 10;
  static constexpr auto describe() { return fields(field<&Optimizer::learning_rate>("Peak step size", above(0.0))); }
};
struct Config {
  Optimizer optimizer;
  std::string name = "run";
  std::vector<double> rates;
  std::string token;
  static constexpr auto describe() { return fields(field<&Config::token>("Key of the tracker", secret())); }
  static constexpr auto aliases() { return std::array{Alias{"creds[0]", "token"}}; }
};

class Shown : public testing::Test {
 protected:
  Shown() {
    std::filesystem::current_path(folder_.path());
    write("train.yaml", "optimizer: {learning_rate: 1e-2}\nname: 'of ${optimizer.steps}'\n");
  }
  ~Shown() override { std::filesystem::current_path(before_); }

  static void write(const std::filesystem::path& path, std::string_view text) { std::ofstream{path} << text; }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

  static ParsedConfig<Config> parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "build/bin/program");
    return parse_recorded<Config>(static_cast<int>(arguments.size()), arguments.data(),
                                  {.environment_prefix = "SHOWN_TEST_"});
  }
  /// Shows the configuration on stderr, which EXPECT_EXIT matches.
  static void show(std::vector<const char*> arguments) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    try {
      parse(std::move(arguments));
    } catch (const ProgramEnd& end) {
      std::exit(end.code());
    }
  }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

TEST_F(Shown, AreTheValuesByCfg) {
  EXPECT_EXIT(show({"--cfg", "job", "-cn", "train", "optimizer.steps=5"}), testing::ExitedWithCode(0),
              "^optimizer:\n  learning_rate: 0.01\n  steps: 5\nname: \"of ..optimizer.steps.\"\nrates: ..\n$");
  EXPECT_EXIT(show({"--cfg=job", "--resolve", "-cn", "train"}), testing::ExitedWithCode(0), "\nname: \"of 10\"\n");
  EXPECT_EXIT(show({"--cfg=job", "rates=[1,${optimizer.steps}]"}), testing::ExitedWithCode(0),
              "\nrates: .1, \"..optimizer.steps.\".\n");
  EXPECT_EXIT(show({"--cfg=job", "--resolve", "rates=[1,${optimizer.steps}]"}), testing::ExitedWithCode(0),
              "\nrates: .1.0, 10.0.\n");
  EXPECT_THROW(show({"--cfg", "jobs"}), Error);
  EXPECT_THROW(show({"--resolve"}), Error) << "a program must not run where a user asks to see its configuration";
  EXPECT_EXIT(show({"--cfg", "json"}), testing::ExitedWithCode(0), "\"learning_rate\": 0.0003");
}

TEST_F(Shown, AreTheirOriginsByBlame) {
  EXPECT_EXIT(show({"--blame", "-cn", "train", "optimizer.learning_rate=1"}), testing::ExitedWithCode(0),
              "  learning_rate: 1.0 +# argument 4; overrides train.yaml:1:28 .0.01.; default 0.0003\n");
}

TEST_F(Shown, AreTheSourcesByInfo) {
  EXPECT_EXIT(show({"--info", "-cn", "train", "token=abc", "name=x"}), testing::ExitedWithCode(0),
              "^program: program\nfiles, from the first read to the last:\n  train.yaml\noverrides:\n  token=...\n  "
              "name=x\n$");
}

TEST_F(Shown, IsHelpOnOneGroupOrKey) {
  EXPECT_EXIT(show({"--help", "optimizer"}), testing::ExitedWithCode(0),
              "^  optimizer.learning_rate=0.0003 +Peak step size .a number, above 0.\n  optimizer.steps=10 ");
  EXPECT_EXIT(show({"-h", "optimizer.steps"}), testing::ExitedWithCode(0), "^  optimizer.steps=10 [^\n]*\n$");
  EXPECT_EXIT(show({"--help", "name=x"}), testing::ExitedWithCode(0), "^usage: program ");
  try {
    parse({"--help", "optimzer"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "argument 1: \"--help optimzer\": unknown key; did you mean optimizer?");
  }
}

TEST_F(Shown, AreErrorsForProgramsToRead) {
  EXPECT_EXIT(show({"--errors=json", "--help", "optimzer"}), testing::ExitedWithCode(2),
              "^.*\"argument 2: .\"--help optimzer.\"\",\"line\":null,\"column\":null,\"path\":\"\",\"message\":"
              "\"unknown key; did you mean optimizer.\"[^\n]*\n$");
  EXPECT_EXIT(show({"init", "train.yaml", "--errors=json"}), testing::ExitedWithCode(2),
              "\"message\":\"train.yaml is there already; choose another name, or remove it\"[^\n]*\n$");
  EXPECT_EXIT(show({"init", "new.json", "--errors=json"}), testing::ExitedWithCode(2),
              "\"message\":\"init writes YAML: name the file .yaml\"");
  EXPECT_EXIT(show({"init", "none/new.yaml", "--errors=json"}), testing::ExitedWithCode(2),
              "\"message\":\"cannot [^\n]*none[^\n]*\n$");
  EXPECT_EXIT(show({"--errors=json", "-cn", "train", "seed=1"}), testing::ExitedWithCode(2),
              "^.*\"source\":\"argument 4: .\"seed=1.\"\",\"line\":null,\"column\":null,\"path\":\"seed\",\"message\":"
              "\"unknown key; [^\n]*\n$");
}

TEST_F(Shown, AreASchemaAndAScriptForShells) {
  EXPECT_EXIT(show({"--schema"}), testing::ExitedWithCode(0), "draft-07");
  EXPECT_EXIT(show({"--completion", "bash"}), testing::ExitedWithCode(0), "optimizer.learning_rate=");
}

TEST_F(Shown, IsAnErrorWhereItCannotBeWritten) {
  const auto show_on_full_disk = [](std::vector<const char*> arguments) {
    ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
    try {
      parse(std::move(arguments));
    } catch (const ProgramEnd& end) {
      std::_Exit(end.code());
    } catch (const Error& error) {
      std::cerr << error.what();
      std::_Exit(static_cast<int>(error.code()));
    }
  };
  for (const char* option : {"--cfg=job", "--blame", "--help", "--schema", "init"})
    EXPECT_EXIT(show_on_full_disk({option}), testing::ExitedWithCode(4), "the output could not be written") << option;
}

TEST_F(Shown, IsAConfigurationToBeginWith) {
  EXPECT_EXIT(show({"init"}), testing::ExitedWithCode(0), "^# yaml-language-server: .schema=program.schema.json\n");
  EXPECT_EXIT(show({"init", "new.yaml"}), testing::ExitedWithCode(0), "^wrote new.yaml and new.schema.json\n$");
  EXPECT_TRUE(read("new.yaml").starts_with("# yaml-language-server: $schema=new.schema.json\n"));
  EXPECT_NE(read("new.schema.json").find("draft-07"), std::string::npos);
  const auto parsed = parse({"-cn", "new"});
  EXPECT_EQ(parsed.config.optimizer.learning_rate, 3e-4);
  try {
    parse({"init", "train.yaml"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "argument 1: \"init train.yaml\": train.yaml is there already; choose another name, or remove it");
  }
}

TEST_F(Shown, IsNoConfigurationToBeginWithWhereOnlyItsSchemaIsThere) {
  write("half.schema.json", "{}");
  try {
    parse({"init", "half.yaml"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "argument 1: \"init half.yaml\": half.schema.json is there already; choose another name, or remove it");
  }
  EXPECT_FALSE(std::filesystem::exists("half.yaml"));
  EXPECT_EQ(read("half.schema.json"), "{}");
}

TEST_F(Shown, IsAWrongConfigurationByRankZeroOnly) {
  // When rank 0 has exited, a launcher ends rank 1, which still waits, before rank 1 prints anything.
  const auto be_ended_as_rank_1 = [] {
    ::setenv("RANK", "1", 1);
    ::alarm(1);
    show({"seed=1", "--errors=json"});
  };
  EXPECT_EXIT(be_ended_as_rank_1(), testing::KilledBySignal(SIGALRM), "^$");
}

TEST_F(Shown, IsAWrongConfigurationByARankThatIsNotEnded) {
  const auto refuse_as_rank_1 = [] {
    ::setenv("RANK", "1", 1);
    show({"seed=1", "--errors=json"});
  };
  EXPECT_EXIT(refuse_as_rank_1(), testing::ExitedWithCode(2), "\"path\":\"seed\"");
}

// On a slow machine a launcher may need seconds to notice that rank 0 has exited.
TEST_F(Shown, IsAWrongConfigurationStillNotAfterFourSecondsByALaterRankOfItsMachine) {
  const auto be_ended_late = [] {
    ::setenv("RANK", "1", 1);
    ::setenv("LOCAL_RANK", "1", 1);
    ::alarm(4);
    show({"seed=1", "--errors=json"});
  };
  EXPECT_EXIT(be_ended_late(), testing::KilledBySignal(SIGALRM), "^$");
}

TEST_F(Shown, ByOtherRanksIsNothing) {
  const auto show_as_rank_1 = [] {
    ::setenv("RANK", "1", 1);
    show({"--cfg", "job"});
  };
  EXPECT_EXIT(show_as_rank_1(), testing::ExitedWithCode(0), "^$");
}

TEST_F(Shown, IsTheRecordOfWhatWasSet) {
  ASSERT_EQ(::setenv("SHOWN_TEST_OPTIMIZER__STEPS", "7", 1), 0);
  const auto parsed = parse({"-cn", "train", "token=abc", "token=abc", "name=it's"});
  ASSERT_EQ(::unsetenv("SHOWN_TEST_OPTIMIZER__STEPS"), 0);
  EXPECT_EQ(parsed.config.optimizer.steps, 7);
  EXPECT_EQ(parsed.record.overrides, "- \"token=***\"\n- \"token=***\"\n- \"name=it's\"\n");
  EXPECT_EQ(parse({"creds=[abc]"}).record.overrides, "- \"creds=***\"\n") << "a list with a secret item must be hidden";
  EXPECT_NE(parsed.record.yaml.find("# environment variable SHOWN_TEST_OPTIMIZER__STEPS; default 10\n"),
            std::string::npos)
      << parsed.record.yaml;
  ASSERT_EQ(parsed.record.settings.size(), 5U);
  EXPECT_EQ(parsed.record.yaml.find("abc"), std::string::npos);
}

TEST_F(Shown, ReadsWhatIsIncludedBeforeAllFilesThatAreNamed) {
  write("base.yaml", "name: base\noptimizer: {steps: 1}\n");
  write("a.yaml", "name: a\n");
  write("b.yaml", "include: base.yaml\n");
  const auto parsed = parse({"-cn", "a", "-cn", "b"});
  EXPECT_EQ(parsed.config.name, "a");
  EXPECT_EQ(parsed.config.optimizer.steps, 1);
}

TEST_F(Shown, FindsFilesInFurtherFolders) {
  std::filesystem::create_directories("conf");
  write("conf/other.json", "{\"name\": \"json\"}");
  EXPECT_EQ(parse({"-cn", "other", "--config-dir", "conf"}).config.name, "json");
}

}  // namespace
}  // namespace ddpxx::shown_test
