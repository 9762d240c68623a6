#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/observe/metrics_file.hpp>

#include "../scoped_failpoint.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::metrics_file_test {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file{path};
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  for (const auto& line : lines_of(path)) steps.push_back(nlohmann::json::parse(line)["step"].get<std::int64_t>());
  return steps;
}

void write_steps(MetricsFile& metrics, std::int64_t first, std::int64_t last) {
  for (auto step = first; step <= last; ++step) metrics.on_step(StepDone{.step = step, .loss = 2.5});
}

using Steps = std::vector<std::int64_t>;

TEST(MetricsFile, WritesOneRowPerEventWithTheDocumentedKeys) {
  const TemporaryFolder folder;
  const auto path = folder / "runs/7/metrics.jsonl";
  MetricsFile metrics{path};
  const EventTime at{.time = 1'700'000'000.5, .elapsed = 2.5};
  metrics.on_step(StepDone{.step = 1,
                           .epoch = 0,
                           .loss = 2.5,
                           .grad_norm = 0.75,
                           .learning_rate = 3e-4,
                           .tokens_per_second = 1e5,
                           .step_ms = 12.5,
                           .data_ms = 1.5,
                           .peak_memory_bytes = 1 << 20,
                           .state_bytes = 4096,
                           .samples = 16,
                           .tokens = 1024,
                           .at = at});
  metrics.on_evaluated(Evaluated{.step = 1, .epoch = 0, .val_loss = 2.25, .samples = 128, .at = at});
  metrics.on_snapshot(
      SnapshotSaved{.step = 1, .path = "runs/7/snapshot", .seconds = 0.5, .waited_seconds = 0.25, .at = at});
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(nlohmann::json::parse(lines[0]), (nlohmann::json{{"step", 1},
                                                             {"epoch", 0},
                                                             {"loss", 2.5},
                                                             {"grad_norm", 0.75},
                                                             {"lr", 3e-4},
                                                             {"tokens_per_second", 1e5},
                                                             {"step_ms", 12.5},
                                                             {"data_ms", 1.5},
                                                             {"peak_memory_bytes", 1 << 20},
                                                             {"state_bytes", 4096},
                                                             {"samples", 16},
                                                             {"tokens", 1024},
                                                             {"time", 1'700'000'000.5},
                                                             {"elapsed", 2.5}}));
  EXPECT_EQ(nlohmann::json::parse(lines[1]), (nlohmann::json{{"step", 1},
                                                             {"epoch", 0},
                                                             {"val_loss", 2.25},
                                                             {"samples", 128},
                                                             {"time", 1'700'000'000.5},
                                                             {"elapsed", 2.5}}));
  EXPECT_EQ(nlohmann::json::parse(lines[2]), (nlohmann::json{{"step", 1},
                                                             {"snapshot", "runs/7/snapshot"},
                                                             {"seconds", 0.5},
                                                             {"waited_seconds", 0.25},
                                                             {"time", 1'700'000'000.5},
                                                             {"elapsed", 2.5}}));
}

TEST(MetricsFile, TellsOfTheMemoryOfAGpu) {
  const TemporaryFolder folder;
  MetricsFile metrics{folder / "m.jsonl"};
  metrics.on_step(StepDone{.step = 1});
  metrics.on_step(
      StepDone{.step = 2, .gpu = GPUMemory{.allocated_bytes = 1, .reserved_bytes = 2, .peak_bytes = 3, .retries = 4}});
  const auto lines = lines_of(folder / "m.jsonl");
  EXPECT_EQ(lines.at(0).find("gpu"), std::string::npos) << lines.at(0);
  const auto row = nlohmann::json::parse(lines.at(1));
  EXPECT_EQ(row["gpu_allocated_bytes"], 1);
  EXPECT_EQ(row["gpu_reserved_bytes"], 2);
  EXPECT_EQ(row["gpu_peak_bytes"], 3);
  EXPECT_EQ(row["gpu_retries"], 4);
}

TEST(MetricsFile, TellsOfStepsThatWereLeftOutAlsoWithoutAScale) {
  const TemporaryFolder folder;
  MetricsFile metrics{folder / "m.jsonl"};
  metrics.on_step(StepDone{.step = 1});
  metrics.on_step(StepDone{.step = 2, .skipped_steps = 0});
  const auto lines = lines_of(folder / "m.jsonl");
  EXPECT_EQ(lines.at(0).find("skipped_steps"), std::string::npos) << lines.at(0);
  const auto row = nlohmann::json::parse(lines.at(1));
  EXPECT_EQ(row["skipped_steps"], 0);
  EXPECT_FALSE(row.contains("loss_scale"));
}

TEST(MetricsFile, TellsOfTheSlowestRankWhereTheRanksAreMeasured) {
  const TemporaryFolder folder;
  MetricsFile metrics{folder / "m.jsonl"};
  metrics.on_step(StepDone{.step = 1});
  metrics.on_step(StepDone{.step = 2, .rank_times = {{10, 1}, {40, 25}, {12, 1}}});
  const auto lines = lines_of(folder / "m.jsonl");
  EXPECT_EQ(lines.at(0).find("rank"), std::string::npos) << lines.at(0);
  const auto row = nlohmann::json::parse(lines.at(1));
  EXPECT_EQ(row["slowest_rank"], 1);
  EXPECT_EQ(row["slowest_rank_ms"], 40.0);
  EXPECT_EQ(row["median_rank_ms"], 12.0);
}

TEST(MetricsFile, WritesNullForALossThatIsNoNumber) {
  const TemporaryFolder folder;
  MetricsFile metrics{folder / "m.jsonl"};
  metrics.on_step(StepDone{.step = 1, .loss = std::nan("")});
  EXPECT_TRUE(nlohmann::json::parse(lines_of(folder / "m.jsonl").at(0))["loss"].is_null());
}

TEST(MetricsFile, MovesTheRowsOfAnEarlierRunAway) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  std::ostringstream said;
  {
    MetricsFile metrics{path, Log{0, said}};
    write_steps(metrics, 1, 5);
  }
  EXPECT_EQ(said.str(), "");
  {
    MetricsFile metrics{path, Log{0, said}};
    EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4, 5}))
        << "the rows must stay until it is known whether the run is resumed";
    write_steps(metrics, 1, 2);
  }
  EXPECT_EQ(steps_of(path), (Steps{1, 2}));
  EXPECT_EQ(steps_of(folder / "m.1.jsonl"), (Steps{1, 2, 3, 4, 5}));
  EXPECT_NE(said.str().find("m.1.jsonl"), std::string::npos) << said.str();
  MetricsFile metrics{path, Log{0, said}};
  metrics.on_begin({});
  EXPECT_EQ(steps_of(path), Steps{});
  EXPECT_EQ(steps_of(folder / "m.1.jsonl"), (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(steps_of(folder / "m.2.jsonl"), (Steps{1, 2}));
}

TEST(MetricsFile, RefusesAndKeepsAFileOfAnotherKind) {
  const TemporaryFolder folder;
  for (const std::string text : {"the training text\n", "{\"stop\": 1}\n", "\n", "{\n"}) {
    folder.file("text.txt", text);
    try {
      MetricsFile metrics{folder / "text.txt"};
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("text.txt is not a metrics file"), std::string::npos) << error.what();
    }
    EXPECT_EQ((std::ostringstream{} << std::ifstream{folder / "text.txt"}.rdbuf()).str(), text);
  }
}

TEST(MetricsFile, KeepsARunsRowsUpToTheStepItGoesOnFrom) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  {
    MetricsFile metrics{path};
    write_steps(metrics, 1, 4);
    metrics.on_evaluated(Evaluated{.step = 4});
    write_steps(metrics, 5, 6);
    metrics.on_evaluated(Evaluated{.step = 6});
  }
  MetricsFile metrics{path};
  metrics.on_begin({.step = 4, .goes_on = true});
  EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4, 4}));
  write_steps(metrics, 5, 6);
  EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4, 4, 5, 6}));
}

/// Two runs may name one file and train in turn.
TEST(MetricsFile, KeepsTheRowsOfARunThatHasBegunTheFileSinceTheSnapshot) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  constexpr std::int64_t kBegun = 1'700'000'000;
  {
    MetricsFile metrics{path};
    for (std::int64_t step = 1; step <= 9; ++step)
      metrics.on_step(StepDone{.step = step, .at = {.time = kBegun + 0.25 + static_cast<double>(step)}});
  }
  {
    MetricsFile metrics{path};
    metrics.on_begin({.step = 5, .goes_on = true, .saved_at = kBegun + 1});  // in the second of the first row
    EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4, 5}));
  }
  MetricsFile metrics{path};
  metrics.on_begin({.step = 3, .goes_on = true, .saved_at = kBegun});
  metrics.on_step(StepDone{.step = 4});
  EXPECT_EQ(steps_of(path), Steps{4});
  EXPECT_EQ(steps_of(folder / "m.1.jsonl"), (Steps{1, 2, 3, 4, 5}));
}

/// The run has got its metrics file only when it resumed, and has not saved since.
TEST(MetricsFile, CutsItsOwnRowsThatAreAllNewerThanTheSnapshot) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  MetricsFile{path}.on_step(StepDone{.step = 6, .at = {.time = 1'700'000'100}});
  MetricsFile metrics{path};
  metrics.on_begin({.step = 5, .goes_on = true, .saved_at = 1'700'000'000});
  EXPECT_EQ(steps_of(path), Steps{});
  EXPECT_FALSE(std::filesystem::exists(folder / "m.1.jsonl"));
}

TEST(MetricsFile, KeepsTheRowsOfAFileWhoseLinesEndAsOnWindows) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  {
    MetricsFile metrics{path};
    write_steps(metrics, 1, 3);
  }
  std::string text;
  for (const auto& line : lines_of(path)) text += line + "\r\n";
  folder.file("m.jsonl", text);
  MetricsFile metrics{path};
  metrics.on_begin({.step = 2, .goes_on = true});
  write_steps(metrics, 3, 3);
  EXPECT_EQ(steps_of(path), (Steps{1, 2, 3}));
}

TEST(MetricsFile, WarnsOfLinesThatAreNoRowsAndRemovesThem) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  {
    MetricsFile metrics{path};
    write_steps(metrics, 1, 3);
  }
  const auto lines = lines_of(path);
  folder.file("m.jsonl", lines[0] + "\nlearning rate lowered here\n\n" + lines[1] + '\n' + lines[2] + '\n');
  testing::internal::CaptureStderr();
  MetricsFile metrics{path, Log{0}};
  metrics.on_begin({.step = 2, .goes_on = true});
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("removed from " + path.string() + " what is not a row of a metrics file: 1 line"), said.npos)
      << said;
  EXPECT_EQ(steps_of(path), (Steps{1, 2}));
}

TEST(MetricsFile, CutsAHalfWrittenLastLineWhereverItEnds) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  {
    MetricsFile metrics{path};
    write_steps(metrics, 1, 2);
    metrics.on_snapshot(SnapshotSaved{.step = 2, .path = "a}\"}\\", .seconds = 1});
  }
  std::ostringstream whole;
  whole << std::ifstream{path}.rdbuf();
  const std::string text = whole.str();
  for (std::size_t size = 0; size <= text.size(); ++size) {
    folder.file("m.jsonl", text.substr(0, size));
    MetricsFile metrics{path};
    metrics.on_begin({.step = 2, .goes_on = true});
    metrics.on_step(StepDone{.step = 3});
    Steps steps;
    ASSERT_NO_THROW(steps = steps_of(path)) << "cut at " << size;
    EXPECT_EQ(steps.back(), 3);
    const auto whole_rows = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size), '\n');
    EXPECT_GE(static_cast<std::ptrdiff_t>(steps.size()), whole_rows + 1) << "cut at " << size;
  }
}

TEST(MetricsFile, FollowsALinkToAFifoAndAFolderThatIsALink) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("fifo", folder / "link");
  const Descriptor reader{::open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  MetricsFile metrics{folder / "link"};
  write_steps(metrics, 1, 1);
  char first = 0;
  EXPECT_EQ(::read(reader.get(), &first, 1), 1);
  EXPECT_EQ(first, '{');

  std::filesystem::create_directory(folder / "runs");
  std::filesystem::create_directory_symlink("runs", folder / "linked");
  MetricsFile in_linked_folder{folder / "linked/m.jsonl"};
  write_steps(in_linked_folder, 1, 2);
  EXPECT_EQ(steps_of(folder / "runs/m.jsonl"), (Steps{1, 2}));
}

TEST(MetricsFile, RefusesAPathThatCannotBeOpened) {
  const TemporaryFolder folder;
  folder.file("file", "");
  for (const auto& path : {folder.path(), folder / "file/m.jsonl"}) {
    try {
      MetricsFile metrics{path};
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find(path.string()), std::string::npos) << error.what();
    }
  }
}

TEST(MetricsFile, WarnsOnceAndGoesOnWhenTheDiskIsFull) {
  std::ostringstream warnings;
  MetricsFile metrics{"/dev/full", Log{0, warnings}};
  EXPECT_NO_THROW(write_steps(metrics, 1, 3));
  EXPECT_EQ(warnings.str().find("[rank0] warning: cannot write"), 0U) << warnings.str();
  EXPECT_EQ(warnings.str().find('\n'), warnings.str().size() - 1) << "expected one line";
}

TEST(MetricsFile, LeavesNoHalfRowWhereTheRoomEndsInsideOne) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  const pid_t child = ::fork();
  if (child == 0) {  // a child process, so that the limit does not hold for the other tests
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit room{1'400, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &room);
    std::ostringstream warnings;
    MetricsFile metrics{path, Log{0, warnings}};
    write_steps(metrics, 1, 20);
    const rlimit more{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &more);
    write_steps(metrics, 21, 21);
    ::_exit(warnings.str().empty() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto steps = steps_of(path);
  ASSERT_GT(steps.size(), 2U);
  EXPECT_LT(steps.size(), 21U);
  EXPECT_EQ(steps.back(), 21);
}

TEST(MetricsFile, RefusesAFifoThatNoProgramReadsInsteadOfWaiting) {
  const TemporaryFolder folder;
  const auto path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  try {
    const MetricsFile metrics{path};
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("a FIFO that no program reads"), std::string::npos) << error.what();
  }
}

TEST(MetricsFile, DropsRowsInsteadOfWaitingForAReaderThatHasStopped) {
  const TemporaryFolder folder;
  const auto path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Descriptor reader{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  std::ostringstream warnings;
  MetricsFile metrics{path, Log{0, warnings}};
  write_steps(metrics, 1, 1'000);  // more than the pipe can hold
  EXPECT_NE(warnings.str().find("training goes on without these rows"), std::string::npos) << warnings.str();
}

TEST(MetricsFile, IsNeitherMadeNorWrittenThroughALink) {
  const TemporaryFolder folder;
  folder.file("empty", "");
  folder.file("run.jsonl", "{\"step\":1}\n");
  for (const std::string victim : {"nothing", "empty", "run.jsonl"}) {
    const auto link = folder / ("link to " + victim);
    std::filesystem::create_symlink(victim, link);
    try {
      MetricsFile metrics{link};
      write_steps(metrics, 5, 5);
      ADD_FAILURE() << "was accepted: " << victim;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("it is a symbolic link"), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "nothing"));
  EXPECT_EQ(std::filesystem::file_size(folder / "empty"), 0U);
  EXPECT_EQ(steps_of(folder / "run.jsonl"), (Steps{1}));
}

TEST(MetricsFile, IsMadeAgainWithOneWarningWhereItWasRemovedOrMovedInMidRun) {
  const TemporaryFolder folder;
  const auto path = folder / "runs/m.jsonl";
  std::ostringstream warnings;
  MetricsFile metrics{path, Log{0, warnings}};
  write_steps(metrics, 1, 2);
  std::filesystem::rename(path, folder / "moved.jsonl");
  write_steps(metrics, 3, 4);
  EXPECT_EQ(steps_of(folder / "moved.jsonl"), (Steps{1, 2}));
  EXPECT_EQ(steps_of(path), (Steps{3, 4}));
  std::filesystem::remove_all(folder / "runs");
  write_steps(metrics, 5, 6);
  EXPECT_EQ(steps_of(path), (Steps{5, 6}));
  EXPECT_NE(warnings.str().find("m.jsonl was removed or replaced while the run goes on"), std::string::npos)
      << warnings.str();
  EXPECT_EQ(warnings.str().find('\n'), warnings.str().size() - 1) << "expected one line";
}

TEST(MetricsFile, IsMadeAgainWhereItWasRemovedBeforeTheRunBegan) {
  const TemporaryFolder folder;
  for (const bool goes_on : {false, true}) {
    std::ostringstream said;
    MetricsFile metrics{folder / "m.jsonl", Log{0, said}};
    std::filesystem::remove(folder / "m.jsonl");
    metrics.on_begin({.step = 3, .goes_on = goes_on});
    write_steps(metrics, 4, 5);
    EXPECT_EQ(steps_of(folder / "m.jsonl"), (Steps{4, 5})) << goes_on;
    EXPECT_NE(said.str().find("was removed or replaced"), std::string::npos) << said.str();
    std::filesystem::remove(folder / "m.jsonl");
  }
}

TEST(MetricsFile, TreatsAFileThatTookItsPlaceBeforeTheRunBeganAsThatOfAnEarlierRun) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  for (const bool goes_on : {false, true}) {
    std::ostringstream said;
    MetricsFile metrics{path, Log{0, said}};
    std::filesystem::remove(path);
    {
      MetricsFile other{path};
      write_steps(other, 1, 5);
    }
    metrics.on_begin({.step = 3, .goes_on = goes_on});
    write_steps(metrics, 4, 4);
    EXPECT_EQ(steps_of(path), goes_on ? (Steps{1, 2, 3, 4}) : Steps{4}) << goes_on;
    std::filesystem::remove(path);
  }
  EXPECT_EQ(steps_of(folder / "m.1.jsonl"), (Steps{1, 2, 3, 4, 5}));
}

/// Writes three rows, and calls `replace()` behind the first. Returns the warnings.
template <class Replace>
std::string warnings_where_replaced(const std::filesystem::path& path, const Replace& replace) {
  std::ostringstream warnings;
  MetricsFile metrics{path, Log{0, warnings}};
  write_steps(metrics, 1, 1);
  replace();
  write_steps(metrics, 2, 3);
  return warnings.str();
}

TEST(MetricsFile, LeavesAFileOfAnotherKindThatTookItsPlaceAsItIs) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  const auto warnings =
      warnings_where_replaced(path, [&] { std::filesystem::rename(folder.file("notes", "notes\n"), path); });
  EXPECT_EQ(lines_of(path), std::vector<std::string>{"notes"});
  EXPECT_NE(warnings.find("is not a metrics file and is left as it is"), std::string::npos) << warnings;
}

TEST(MetricsFile, LosesTheRowsWhereAFolderTookItsPlace) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  const auto warnings = warnings_where_replaced(path, [&] {
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
  });
  EXPECT_EQ(warnings, "[rank0] warning: " + path.string() +
                          " was removed or replaced while the run goes on; the rows are lost: cannot open " +
                          path.string() + ": Is a directory (errno 21)\n");
}

TEST(MetricsFile, WritesNothingToAFifoThatTookItsPlaceAndDoesNotWaitForIt) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  std::optional<Descriptor> reader;
  const auto warnings = warnings_where_replaced(path, [&] {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    reader.emplace(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  });
  ASSERT_TRUE(reader);
  char first = 0;
  EXPECT_LT(::read(reader->get(), &first, 1), 1) << "a row was written to the FIFO";
  EXPECT_NE(warnings.find("is not a regular file"), std::string::npos) << warnings;
}

TEST(MetricsFile, IsRefusedToASecondRunUntilTheFirstOneEnds) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  MetricsFile first{path};
  first.on_begin({});
  write_steps(first, 1, 3);
  MetricsFile second{path};
  const RunBegan resumed{.step = 1, .goes_on = true};
  try {
    second.on_begin(resumed);
    ADD_FAILURE() << "two runs write to one file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("m.jsonl is in use by another run"), std::string::npos) << error.what();
  }
  write_steps(first, 4, 4);
  EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4}));
  first.on_end({});
  second.on_begin(resumed);
  write_steps(second, 2, 2);
  EXPECT_EQ(steps_of(path), (Steps{1, 2}));
}

TEST(MetricsFile, StaysThatOfARunThatBeginsTwice) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  MetricsFile metrics{path};
  metrics.on_begin({});
  write_steps(metrics, 1, 3);
  metrics.on_begin({.step = 3, .goes_on = true});  // as by fit() after step()
  MetricsFile other{path};
  EXPECT_THROW(other.on_begin({}), Error);
  write_steps(metrics, 4, 4);
  EXPECT_EQ(steps_of(path), (Steps{1, 2, 3, 4}));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.1.jsonl"));
}

TEST(MetricsFile, WaitsForARunThatIsJustEnding) {
  const TemporaryFolder folder;
  MetricsFile first{folder / "m.jsonl"};
  first.on_begin({});
  write_steps(first, 1, 1);
  std::thread end{[&first] {
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    first.on_end({});
  }};
  MetricsFile second{folder / "m.jsonl"};
  EXPECT_NO_THROW(second.on_begin({}));
  end.join();
  EXPECT_EQ(steps_of(folder / "m.1.jsonl"), Steps{1});
}

TEST(MetricsFile, IsFreeAfterARunThatWasKilled) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  const auto train = [&] {
    MetricsFile metrics{path};
    metrics.on_begin({});
    write_steps(metrics, 1, 2);
    std::raise(SIGKILL);
  };
  const auto begin = [&] {
    const ScopedFailpoint killed{"row_file.lock:kill"};
    MetricsFile metrics{path};
    metrics.on_begin({});
  };
  EXPECT_EXIT(train(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(begin(), testing::KilledBySignal(SIGKILL), "");
  MetricsFile metrics{path};
  EXPECT_NO_THROW(metrics.on_begin({.step = 1, .goes_on = true}));
  EXPECT_EQ(steps_of(path), Steps{1});
}

TEST(MetricsFile, IsWrittenWhereTheFileSystemHasNoLocks) {
  for (const int reason : {EOPNOTSUPP, ENOSYS, ENOLCK}) {
    const TemporaryFolder folder;
    const ScopedFailpoint failing{"row_file.lock:errno:" + std::to_string(reason)};
    MetricsFile first{folder / "m.jsonl"};
    first.on_begin({});
    write_steps(first, 1, 2);
    MetricsFile second{folder / "m.jsonl"};
    EXPECT_NO_THROW(second.on_begin({.step = 1, .goes_on = true})) << reason;
    write_steps(second, 2, 2);
    EXPECT_EQ(steps_of(folder / "m.jsonl"), (Steps{1, 2})) << reason;
  }
}

TEST(MetricsFile, WritesNothingToTheFileOfAnotherRunThatTookItsPlaceInMidRun) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  std::ostringstream warnings;
  MetricsFile first{path, Log{0, warnings}};
  write_steps(first, 1, 1);
  std::filesystem::rename(path, folder / "moved.jsonl");
  MetricsFile second{path};
  write_steps(second, 7, 7);
  write_steps(first, 2, 3);
  write_steps(second, 8, 8);
  EXPECT_EQ(steps_of(path), (Steps{7, 8}));
  EXPECT_NE(warnings.str().find("another run writes to the file that lies there now"), std::string::npos)
      << warnings.str();
}

}  // namespace
}  // namespace ddpxx::metrics_file_test
