#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/run_folder.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::run_folder_test {
namespace {

const ConfigRecord kRecord{.settings = {{"seed", "1"}}, .yaml = "seed: 1  # default\n", .overrides = "[]\n"};

/// Sets an environment variable until the end of its life.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_{name} { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string read(const std::filesystem::path& path) { return read_file(path, Errc::config, 1 << 20); }

TEST(TheRunFolder, HoldsTheConfigurationAndIsToldToAllRanks) {
  const TemporaryFolder folder;
  const auto wanted = (folder.path() / "outputs" / "run").string();
  spawn_ranks(2, [&](Group& group) {
    const auto made = make_run_folder(group.rank() == 0 ? wanted : "", kRecord, group);
    EXPECT_EQ(made.string(), wanted);
  });
  EXPECT_EQ(read(wanted + "/config.yaml"), kRecord.yaml);
  EXPECT_EQ(read(wanted + "/overrides.yaml"), "[]\n");
  EXPECT_EQ(read(wanted + "/config.sha1"), "3cb422a945a81aa7edd748a044e073cf51ad7e5c\n");
}

TEST(TheRunFolder, IsNamedByTheTime) {
  const TemporaryFolder folder;
  Group alone;
  const auto made = make_run_folder((folder.path() / "%Y-%m-%d/%H-%M-%S").string(), kRecord, alone);
  const auto name = made.lexically_relative(folder.path()).string();
  ASSERT_EQ(name.size(), 19U);
  EXPECT_TRUE(name.starts_with("20"));
  EXPECT_EQ(name.find('%'), std::string::npos);
}

TEST(TheRunFolder, IsSharedByNoTwoRuns) {
  const TemporaryFolder folder;
  const auto wanted = (folder.path() / "run").string();
  std::vector<std::string> made(8);
  {
    std::vector<std::jthread> runs;
    for (auto& name : made)
      runs.emplace_back([&] {
        Group alone;
        name = make_run_folder(wanted, kRecord, alone).string();
      });
  }
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()).size(), made.size());
  EXPECT_TRUE(std::filesystem::exists(wanted + "-8"));
}

TEST(TheRunFolder, IsKeptByARestartOfItsRun) {
  const TemporaryFolder folder;
  const auto wanted = (folder.path() / "run").string();
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted);
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted + "-2") << "a new start must get a new folder";
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "1"};
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted + "-2")
      << "a restart must get the newer of two folders with its run's name";
}

TEST(TheRunFolder, IsKeptWhenMachinesComeOrGo) {
  const TemporaryFolder folder;
  const auto wanted = (folder.path() / "run").string();
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"}, restart{"TORCHELASTIC_RESTART_COUNT", "0"};
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted);
  const Variable round{"DDPXX_ROUND", "1"};
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted);
}

TEST(TheRunFolder, IsKeptByARestartAtAnotherTime) {
  const TemporaryFolder folder;
  const auto pattern = (folder.path() / "out-%Y/%H-%M-%S").string();
  const auto make_run = [&](const char* day, const char* run) {  // makes a run folder as if on that day
    folder.file(std::string{day} + "/run", std::string{run} + "\n");
    return (folder.path() / day).string();
  };
  make_run("out-2001/01-01-01", "job 8");
  make_run("other-2001/01-01-01", "job 7");
  make_run("out-2001/01-01-01/deeper", "job 7");
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "1"};
  const auto made = make_run_folder(pattern, kRecord, alone);
  EXPECT_EQ(made.string().find("2001"), std::string::npos) << "a folder of another run was used: " << made;
  std::filesystem::remove_all(made);

  const auto first = make_run("out-2002/02-02-02", "job 7");
  const auto last = make_run("out-2001/03-03-03-2", "job 7");
  std::filesystem::last_write_time(first + "/run",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours{1});
  EXPECT_EQ(make_run_folder(pattern + '/', kRecord, alone), last);
  EXPECT_EQ(read(last + "/config.yaml"), kRecord.yaml);
}

TEST(TheRunFolder, OfARestartIsNoneThatAnotherPatternHasMade) {
  const TemporaryFolder folder;
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "1"};
  for (const auto* other : {"base-large", "base-", "based-2", "2001-01-01/large", "2001-01-01-x/small",
                            "run-2001-01-01-b", "x.2001", "7+3xb"})
    folder.file(std::string{other} + "/run", "job 7\n");
  for (const auto* pattern : {"base", "%F/small", "run-%F", "y%%.%Y", "7+3.b"}) {
    const auto made = make_run_folder((folder.path() / pattern).string(), kRecord, alone);
    EXPECT_EQ(read(made / "overrides.yaml"), "[]\n");
    EXPECT_EQ(make_run_folder((folder.path() / pattern).string(), kRecord, alone), made)
        << "a restart must find its own folder";
  }
  for (const auto* other :
       {"base-large", "2001-01-01/large", "2001-01-01-x/small", "run-2001-01-01-b", "x.2001", "7+3xb"})
    EXPECT_FALSE(std::filesystem::exists(folder.path() / other / "config.yaml")) << other;
}

TEST(TheRunFolder, OfARestartIsFoundAtADateOfThreeFoldersAndByTheNameOfADay) {
  const TemporaryFolder folder;
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "1"};
  folder.file("01/31/99/a/run", "job 7\n");
  folder.file("day Sunday/run", "job 7\n");
  EXPECT_EQ(make_run_folder((folder.path() / "%D/a").string(), kRecord, alone), folder.path() / "01/31/99/a");
  EXPECT_EQ(make_run_folder((folder.path() / "day %A").string(), kRecord, alone), folder.path() / "day Sunday");
}

TEST(TheRunFolder, OfARestartIsNoneWhoseNameCannotBeRead) {
  const TemporaryFolder folder;
  Group alone;
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "1"};
  const auto wanted = (folder.path() / "base").string();
  std::filesystem::create_directories(wanted + "-2/run");
  folder.file("base-3/run", "job 7\n");
  std::filesystem::create_directories(wanted + "-4");
  std::filesystem::create_symlink("/proc/self/mem", wanted + "-4/run");  // can be opened, but not read
  folder.file("elsewhere/run", "job 7\n");
  std::filesystem::create_directory_symlink("elsewhere", wanted + "-5");
  EXPECT_EQ(make_run_folder(wanted, kRecord, alone), wanted + "-3");
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere/config.yaml"));
}

TEST(TheRunFolder, IsTheSameForAllRanksOfARestart) {
  const TemporaryFolder folder;
  folder.file("2001/run", "job 7\n");
  const Variable name{"TORCHELASTIC_RUN_ID", "job 7"};
  const Variable restart{"TORCHELASTIC_RESTART_COUNT", "2"};
  spawn_ranks(2, [&](Group& group) {
    EXPECT_EQ(make_run_folder((folder.path() / "%Y").string(), kRecord, group), folder.path() / "2001");
  });
}

TEST(TheRunFolder, IsNeverTheWorkingDirectory) {
  Group alone;
  EXPECT_TRUE(make_run_folder("./", kRecord, alone).empty());
  EXPECT_TRUE(make_run_folder(".", kRecord, alone).empty());
}

TEST(TheRunFolder, IsNoneOfABucket) {
  spawn_ranks(2, [](Group& group) {
    try {
      make_run_folder("s3://bucket/%Y", kRecord, group);
      ADD_FAILURE() << "the folder was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("run_folder=s3://bucket/%Y"), std::string::npos) << error.what();
    }
  });
  EXPECT_FALSE(std::filesystem::exists("s3:"));
}

TEST(TheRunFolder, IsTheOneThatASweepGives) {
  const TemporaryFolder folder;
  const Variable given{"DDPXX_RUN_FOLDER", folder.path().string()};
  Group alone;
  EXPECT_EQ(make_run_folder("", kRecord, alone), folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "config.yaml"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "overrides.yaml")) << "the sweep writes overrides.yaml itself";
}

TEST(TheRunFolder, LeadsToTheMetrics) {
  const TemporaryFolder folder;
  Group alone;
  EXPECT_EQ(metrics_file("", "", alone), "");
  EXPECT_EQ(metrics_file("", "rows", alone), "rows");
  EXPECT_EQ(metrics_file(folder.path(), "", alone), (folder / "metrics.jsonl").string());
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "metrics.jsonl"));
  const auto rows = folder.file("rows", "{}\n");
  for (int start = 0; start < 2; ++start) EXPECT_EQ(metrics_file(folder.path(), rows, alone), rows);
  EXPECT_EQ(read(folder / "metrics.jsonl"), "{}\n");
}

TEST(TheRunFolder, IsNotMadeUnlessItIsWanted) {
  Group alone;
  EXPECT_TRUE(make_run_folder("", kRecord, alone).empty());
}

TEST(TheRunFolder, ThatCannotBeMadeIsAnErrorOnEveryRank) {
  spawn_ranks(2, [](Group& group) {
    try {
      make_run_folder("/proc/none/run", kRecord, group);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("cannot make the run folder /proc/none/run: "), std::string::npos)
          << error.what();
    }
  });
}

TEST(TheRunFolder, ThatCannotBeMadeIsNamedAsItWasGiven) {
  const TemporaryFolder folder;
  const auto in_the_way = folder.file("run", "a file\n");
  Group alone;
  const auto message = error_of([&] { make_run_folder(in_the_way, kRecord, alone); });
  EXPECT_TRUE(message.starts_with("cannot make the run folder " + in_the_way + ": ")) << message;
  EXPECT_FALSE(std::filesystem::exists(in_the_way + "-2"));
}

TEST(TheRunFolder, IsNoFolderOfTheNameTilde) {
  Group alone;
  const auto message = error_of([&] { make_run_folder("~/runs/%Y", kRecord, alone); });
  EXPECT_TRUE(message.starts_with("run_folder=\"~/runs/%Y\": ~ is no home folder here")) << message;
  EXPECT_FALSE(std::filesystem::exists("~"));
}

}  // namespace
}  // namespace ddpxx::run_folder_test
