// Where a run writes: each job of a sweep writes to its own folder, and ${run_folder} is the folder in use.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/output_place.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "../error_of.hpp"

namespace ddpxx::output_place_test {
namespace {

using namespace detail;
using testing::HasSubstr;

struct Training {
  std::string save_dir;
  std::filesystem::path metrics;
  std::string comment;
  static constexpr auto describe() {
    return fields(field<&Training::save_dir>("Snapshots", Output::folder),
                  field<&Training::metrics>("Rows", Output::file));
  }
};
struct Job {
  Training training;
  std::string run_folder;
  static constexpr auto describe() { return fields(field<&Job::run_folder>("Of this run", Output::run_folder)); }
};

struct Placed {
  Job config;
  std::string problems;
};

Placed place(std::vector<const char*> arguments, const std::optional<std::filesystem::path>& job = {}) {
  Placed placed;
  ConfigBuilder builder{table_of<Job>(), &placed.config, job};
  builder.apply(read_arguments(arguments, table_of<Job>()).entries);
  builder.finish();
  placed.problems = problem_report(builder.problems());
  return placed;
}

const std::filesystem::path kJob = "/sweeps/of_today/3";

TEST(OutputPlaces, OfAJobLieBelowItsFolder) {
  const auto config = place({"training.save_dir=runs/a", "training.metrics=m.jsonl"}, kJob).config;
  EXPECT_EQ(config.training.save_dir, "/sweeps/of_today/3/runs/a");
  EXPECT_EQ(config.training.metrics, "/sweeps/of_today/3/m.jsonl");
  EXPECT_EQ(place({}, kJob).config.training.save_dir, "") << "an empty setting must stay empty";
}

TEST(OutputPlaces, ElsewhereGetTheNamesOfTheSweepAndTheJob) {
  EXPECT_EQ(place({"training.save_dir=/data/a/"}, kJob).config.training.save_dir, "/data/a/of_today/3");
  EXPECT_EQ(place({"training.save_dir=s3://bucket/a"}, kJob).config.training.save_dir, "s3://bucket/a/of_today/3");
  EXPECT_EQ(place({"training.save_dir=/sweeps/of_today/3/a"}, kJob).config.training.save_dir, "/sweeps/of_today/3/a");
  EXPECT_EQ(
      place({"training.metrics=/data/m.jsonl"}, kJob).problems,
      "argument 1: \"training.metrics=/data/m.jsonl\": a job of a sweep writes no file outside of its own folder: "
      "write \"m.jsonl\", which is a file in the folder of each job");
}

TEST(OutputPlaces, ThatDotsLeadOutOfTheFolderOfTheJobAreElsewhere) {
  EXPECT_EQ(place({"training.save_dir=../runs/a"}, kJob).config.training.save_dir, "../runs/a/of_today/3");
  EXPECT_EQ(place({"training.save_dir=a/../../b"}, kJob).config.training.save_dir, "a/../../b/of_today/3");
  EXPECT_EQ(place({"training.save_dir=/sweeps/of_today/3/../a"}, kJob).config.training.save_dir,
            "/sweeps/of_today/3/../a/of_today/3");
  EXPECT_EQ(place({"training.save_dir=a/../b"}, kJob).config.training.save_dir, "/sweeps/of_today/3/b");
  EXPECT_EQ(place({"training.save_dir=../a"}, "multirun/today/3").config.training.save_dir, "../a/today/3");
  EXPECT_THAT(place({"training.metrics=../m.jsonl"}, kJob).problems, HasSubstr("write \"m.jsonl\", which is a file"));
}

TEST(OutputPlaces, AreLeftAloneWithoutASweep) {
  const auto config = place({"training.save_dir=runs/a", "training.metrics=/data/m.jsonl"}).config;
  EXPECT_EQ(config.training.save_dir, "runs/a");
  EXPECT_EQ(config.training.metrics, "/data/m.jsonl");
}

TEST(OutputPlaces, NameTheRunFolderInUse) {
  auto run = place({"run_folder=outputs/%F", "training.save_dir=${run_folder}/snapshots"});
  EXPECT_EQ(run.problems, "");
  EXPECT_THAT(table_of<Job>().print(*table_of<Job>().find("training.save_dir"), &run.config),
              "\"${run_folder}/snapshots\"");
  name_run_folder(run.config, "outputs/2026-01-02-2");
  EXPECT_EQ(run.config.training.save_dir, "outputs/2026-01-02-2/snapshots");
  EXPECT_EQ(place({"run_folder=outputs/%F", "training.save_dir=${run_folder}/a"}, kJob).config.training.save_dir,
            "/sweeps/of_today/3/a");
  EXPECT_EQ(place({"training.comment=in ${run_folder}"}, kJob).config.training.comment, "in /sweeps/of_today/3");
}

TEST(OutputPlaces, NameTheRunFolderInUseThroughOtherPlaces) {
  auto run = place({"run_folder=outputs/%F", "training.save_dir=${run_folder}/a", "training.metrics=${.save_dir}/m"});
  EXPECT_EQ(run.problems, "");
  name_run_folder(run.config, "outputs/1");
  EXPECT_EQ(run.config.training.metrics, "outputs/1/a/m");
  auto twice = place({"run_folder=outputs/%F", "training.save_dir=${run_folder}/of/${run_folder}"});
  name_run_folder(twice.config, "outputs/1");
  EXPECT_EQ(twice.config.training.save_dir, "outputs/1/of/outputs/1");
  const std::vector<const char*> comment{"training.save_dir=${run_folder}/a", "training.comment=in ${.save_dir}"};
  auto refused = comment;
  refused.push_back("run_folder=outputs/%F");
  EXPECT_THAT(place(refused).problems,
              HasSubstr("training.comment -> training.save_dir -> ${run_folder}: the folder gets its name when the run "
                        "starts; settings that can name it: training.save_dir or training.metrics"));
  EXPECT_EQ(place(comment, kJob).config.training.comment, "in /sweeps/of_today/3/a");
}

TEST(OutputPlaces, NeverNameAFolderThatIsNotThere) {
  for (const char* none : {"run_folder=", "run_folder=.", "run_folder=./"})
    EXPECT_THAT(place({none, "training.save_dir=${run_folder}/ckpt"}).problems,
                HasSubstr("\"training.save_dir=${run_folder}/ckpt\": ${run_folder}: this run has no folder: set "
                          "run_folder=outputs/%Y-%m-%d/%H-%M-%S, or leave ${run_folder} out"));
  EXPECT_THAT(place({"run_folder=a", "training.comment=${run_folder}"}).problems,
              HasSubstr("settings that can name it: training.save_dir or training.metrics"));
}

TEST(OutputPlaces, OfAJobAreKnownByItsVariable) {
  ::setenv("DDPXX_RUN_FOLDER", kJob.c_str(), 1);
  const std::vector<const char*> arguments{"program", "training.save_dir=sv"};
  const auto parsed = parse_recorded<Job>(2, arguments.data());
  ::unsetenv("DDPXX_RUN_FOLDER");
  EXPECT_EQ(parsed.config.training.save_dir, "/sweeps/of_today/3/sv");
  EXPECT_THAT(parsed.record.yaml,
              HasSubstr("# environment variable DDPXX_RUN_FOLDER; overrides argument 1 (\"sv\"); default \"\""));
}

/// A place of output that may be missing, and that no path can then be made of.
struct Optional {
  std::optional<std::string> rows;
  static constexpr auto describe() { return fields(field<&Optional::rows>("Rows", Output::file)); }
};
struct OptionalJob {
  Optional training;
};

TEST(OutputPlaces, AreTextsThatAreThere) {
  EXPECT_EQ(code_of([] { table_of<OptionalJob>(); }), Errc::config);
  EXPECT_EQ(error_of([] { table_of<OptionalJob>(); }),
            "describe(): `training.rows` is a place of output, and therefore a std::string or a std::filesystem::path");
}

}  // namespace
}  // namespace ddpxx::output_place_test
