#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/observe/csv_file.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::csv_file_test {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file{path};
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kHeader =
    "step,epoch,loss,grad_norm,lr,tokens_per_second,step_ms,data_ms,peak_memory_bytes,state_bytes,samples,tokens,"
    "loss_scale,skipped_steps,val_loss,time,elapsed";

StepDone step(std::int64_t number) {
  return {.step = number, .loss = 2.5, .learning_rate = 0.125, .at = {.time = 1'700'000'000.5, .elapsed = 0.25}};
}

TEST(CsvFile, HasOneHeaderAndARowForEachStepAndEvaluation) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "runs/m.csv"};
  csv.on_begin({});
  csv.on_step(step(1));
  csv.on_evaluated({.step = 1, .val_loss = 2.25, .at = {.time = 1'700'000'001.5, .elapsed = 1.25}});
  csv.on_snapshot({.step = 1, .path = "run/"});
  EXPECT_EQ(lines_of(folder / "runs/m.csv"),
            (std::vector<std::string>{kHeader, "1,0,2.5,0,0.125,0,0,0,0,0,0,0,,,,1700000000.5,0.25",
                                      "1,0,,,,,,,,,,,,,2.25,1700000001.5,1.25"}));
}

TEST(CsvFile, LeavesTheCellOfANumberThatIsNotFiniteEmpty) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "m.csv"};
  csv.on_begin({});
  auto event = step(1);
  event.loss = std::nan("");
  csv.on_step(event);
  EXPECT_EQ(lines_of(folder / "m.csv").at(1).substr(0, 7), "1,0,,0,");
}

TEST(CsvFile, HasColumnsForTheModelsOwnMetrics) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "m.csv"};
  csv.on_begin({});
  auto event = step(1);
  event.metrics = {{"accuracy", 0.5}};
  csv.on_step(event);
  csv.on_evaluated({.step = 1, .metrics = {{"accuracy", 0.75}}});
  const auto lines = lines_of(folder / "m.csv");
  EXPECT_EQ(lines.at(0), std::string{kHeader} + ",accuracy,val_accuracy");
  EXPECT_TRUE(lines.at(1).ends_with(",0.5,")) << lines.at(1);
  EXPECT_TRUE(lines.at(2).ends_with(",,0.75")) << lines.at(2);
}

TEST(CsvFile, WarnsOnceOfAMetricThatTheFirstRowDidNotHave) {
  const TemporaryFolder folder;
  std::ostringstream said;
  CsvFile csv{folder / "m.csv", Log{0, said}};
  csv.on_begin({});
  csv.on_step(step(1));
  for (int i = 0; i < 2; ++i) csv.on_evaluated({.step = 1, .val_loss = 2.25, .metrics = {{"accuracy", 0.75}}});
  EXPECT_EQ(lines_of(folder / "m.csv").at(0), kHeader);
  const std::string warning = "the CSV file does not show val_accuracy: its columns are those of its first row";
  EXPECT_NE(said.str().find(warning), std::string::npos) << said.str();
  EXPECT_EQ(said.str().find(warning), said.str().rfind(warning));
}

TEST(CsvFile, HasColumnsForTheMemoryOfAGpu) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "m.csv"};
  csv.on_begin({});
  auto event = step(1);
  event.gpu = GPUMemory{.allocated_bytes = 1, .reserved_bytes = 2, .peak_bytes = 3, .retries = 4};
  event.metrics = {{"accuracy", 0.5}};
  csv.on_step(event);
  const auto lines = lines_of(folder / "m.csv");
  EXPECT_EQ(lines.at(0),
            std::string{kHeader} +
                ",gpu_allocated_bytes,gpu_reserved_bytes,gpu_peak_bytes,gpu_retries,accuracy,val_accuracy");
  EXPECT_TRUE(lines.at(1).ends_with(",1,2,3,4,0.5,")) << lines.at(1);
}

TEST(CsvFile, HasColumnsForTheMemoryOfAGpuIfItBeginsWithAnEvaluation) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "m.csv"};
  csv.on_begin({.gpu = "NVIDIA H200, 139 GiB"});
  csv.on_evaluated({.step = 0, .val_loss = 4.0});
  auto event = step(1);
  event.gpu = GPUMemory{.allocated_bytes = 1, .reserved_bytes = 2, .peak_bytes = 3, .retries = 4};
  csv.on_step(event);
  EXPECT_TRUE(lines_of(folder / "m.csv").at(2).ends_with(",1,2,3,4"));
}

TEST(CsvFile, HasColumnsForTheSlowestRankIfTheRunMeasuresItsRanks) {
  const TemporaryFolder folder;
  CsvFile csv{folder / "m.csv"};
  csv.on_begin({.hosts = {"a1", "b2"}});
  csv.on_evaluated({.step = 0, .val_loss = 4.0});
  auto event = step(1);
  event.rank_times = {{10, 1}, {40, 25}};
  csv.on_step(event);
  const auto lines = lines_of(folder / "m.csv");
  EXPECT_EQ(lines.at(0), std::string{kHeader} + ",slowest_rank,slowest_rank_ms,median_rank_ms");
  EXPECT_TRUE(lines.at(2).ends_with(",1,40,10")) << lines.at(2);
}

TEST(CsvFile, WarnsOfTheSlowestRankIfTheFileOfAResumedRunHasNoColumnsForIt) {
  const TemporaryFolder folder;
  {
    CsvFile csv{folder / "m.csv"};
    csv.on_begin({});
    csv.on_step(step(1));
    csv.on_end({});
  }
  std::ostringstream said;
  CsvFile csv{folder / "m.csv", Log{0, said}};
  csv.on_begin({.hosts = {"a1", "b2"}, .step = 1, .goes_on = true, .saved_at = 1800000000});
  auto event = step(2);
  event.rank_times = {{10, 1}, {40, 25}};
  csv.on_step(event);
  EXPECT_EQ(lines_of(folder / "m.csv").size(), 3U);
  EXPECT_NE(said.str().find("the CSV file does not show median_rank_ms, slowest_rank, slowest_rank_ms: "),
            std::string::npos)
      << said.str();
}

TEST(CsvFile, GoesOnAfterTheStepOfASnapshotWithTheColumnsOfTheFile) {
  const TemporaryFolder folder;
  const auto path = folder / "m.csv";
  {
    CsvFile csv{path};
    csv.on_begin({});
    for (std::int64_t i = 1; i <= 4; ++i) csv.on_step(step(i));
  }
  const auto before = lines_of(path);
  std::string whole;
  for (const auto& line : before) whole += line + '\n';
  for (const std::size_t cut : {0U, 1U, 20U}) {  // the last row is cut as by a kill
    std::ofstream{path} << whole.substr(0, whole.size() - cut);
    CsvFile csv{path};
    csv.on_begin({.step = 2, .goes_on = true});
    auto event = step(3);
    event.metrics = {{"accuracy", 0.5}};
    csv.on_step(event);
    EXPECT_EQ(lines_of(path), (std::vector<std::string>{before[0], before[1], before[2], before[3]})) << cut;
  }
  std::ofstream{path} << whole.substr(0, whole.size() - 20);
  CsvFile csv{path};
  csv.on_begin({.step = 4, .goes_on = true});
  EXPECT_EQ(lines_of(path).size(), 4U) << "expected the header and three complete rows";
}

TEST(CsvFile, FillsItsLastColumnWhereTheLinesEndAsOnWindows) {
  const TemporaryFolder folder;
  const auto path = folder / "m.csv";
  {
    CsvFile csv{path};
    csv.on_begin({});
    csv.on_step(step(1));
    csv.on_step(step(2));
  }
  const auto before = lines_of(path);
  std::string text;
  for (const auto& line : before) text += line + "\r\n";
  folder.file("m.csv", text);
  CsvFile csv{path};
  csv.on_begin({.step = 1, .goes_on = true});
  csv.on_step(step(2));
  EXPECT_EQ(lines_of(path), before);
}

TEST(CsvFile, MovesTheRowsOfAnEarlierRunAway) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    std::ostringstream said;
    CsvFile csv{folder / "m.csv", Log{0, said}};
    csv.on_begin({});
    csv.on_step(step(1 + run));
  }
  EXPECT_EQ(lines_of(folder / "m.csv").size(), 2U);
  EXPECT_EQ(lines_of(folder / "m.csv").at(0), kHeader);
  EXPECT_EQ(lines_of(folder / "m.1.csv").at(1).substr(0, 2), "1,");
}

TEST(CsvFile, KeepsTheRowsOfARunThatHasBegunTheFileSinceTheSnapshot) {
  const TemporaryFolder folder;
  constexpr std::int64_t kBegun = 1'700'000'000;
  {
    CsvFile csv{folder / "m.csv"};
    csv.on_begin({});
    for (std::int64_t i = 1; i <= 4; ++i) {
      auto event = step(i);
      event.at.time = kBegun + static_cast<double>(i);
      csv.on_step(event);
    }
  }
  for (const std::int64_t later : {1, 0}) {  // the first row is of the second after kBegun
    CsvFile csv{folder / "m.csv"};
    csv.on_begin({.step = 2, .goes_on = true, .saved_at = kBegun + later});
    EXPECT_EQ(std::filesystem::exists(folder / "m.1.csv"), later == 0);
    EXPECT_EQ(lines_of(folder / "m.csv").size(), later == 0 ? 0U : 3U);
  }
  EXPECT_EQ(lines_of(folder / "m.1.csv").size(), 3U);
}

TEST(CsvFile, RefusesAndKeepsAFileOfAnotherKind) {
  const TemporaryFolder folder;
  folder.file("text.txt", "first line\n");
  try {
    CsvFile csv{folder / "text.txt"};
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("text.txt is not a CSV file of metrics"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(lines_of(folder / "text.txt"), std::vector<std::string>{"first line"});
}

TEST(CsvFile, IsRefusedToASecondRunUntilTheFirstOneEnds) {
  const TemporaryFolder folder;
  CsvFile first{folder / "m.csv"};
  first.on_begin({});
  first.on_step(step(1));
  CsvFile second{folder / "m.csv"};
  EXPECT_THROW(second.on_begin({}), Error);
  first.on_step(step(2));
  EXPECT_EQ(lines_of(folder / "m.csv").size(), 3U);
  first.on_end({});
  EXPECT_NO_THROW(second.on_begin({}));
  EXPECT_EQ(lines_of(folder / "m.1.csv").size(), 3U);
}

}  // namespace
}  // namespace ddpxx::csv_file_test
