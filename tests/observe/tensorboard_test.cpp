// Python's TensorBoard reads the event files back.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/tensorboard.hpp>

#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::tensorboard_test {
namespace {

nlohmann::json read(const std::filesystem::path& folder) {
  return nlohmann::json::parse(run_python("../observe/tensorboard_reader.py", {folder.string()}));
}
nlohmann::json pairs(const std::vector<std::pair<std::int64_t, double>>& points) {
  auto list = nlohmann::json::array();
  for (const auto& [step, value] : points) list.push_back({step, value});
  return list;
}

TEST(TensorBoard, ReadsScalarsAndTexts) {
  const TemporaryFolder folder;
  TensorBoard board{folder / "board"};
  board.on_begin({.strategy = "ddp", .settings = {{"optimizer.learning_rate", "0.125"}, {"name", "\"ünï\""}}});
  for (std::int64_t step = 1; step <= 300; ++step)
    board.on_step({.step = step,
                   .loss = 1.0 / static_cast<double>(step),
                   .learning_rate = 0.125,
                   .tokens_per_second = 1e6,
                   .data_ms = 1.5,
                   .metrics = {{"accuracy", 0.5}}});
  board.on_evaluated({.step = 300, .val_loss = 2.5, .metrics = {{"accuracy", 0.75}}});
  board.on_snapshot({.step = 300, .path = "run/step-00000300/"});
  const auto events = read(folder / "board");
  EXPECT_EQ(events["scalars"]["train/loss"].size(), 300U);
  EXPECT_EQ(events["scalars"]["train/loss"][3], (nlohmann::json{4, 0.25}));
  EXPECT_EQ(events["scalars"]["speed/tokens_per_second"][299], (nlohmann::json{300, 1e6}));
  EXPECT_EQ(events["scalars"]["speed/data_ms"][299], (nlohmann::json{300, 1.5}));
  EXPECT_EQ(events["scalars"]["train/accuracy"][0], (nlohmann::json{1, 0.5}));
  EXPECT_EQ(events["scalars"]["val/loss"], pairs({{300, 2.5}}));
  EXPECT_EQ(events["scalars"]["val/accuracy"], pairs({{300, 0.75}}));
  EXPECT_FALSE(events["scalars"].contains("train/loss_scale"));
  EXPECT_EQ(events["texts"]["settings"][0][1], "    optimizer.learning_rate: 0.125\n    name: \"ünï\"\n");
  EXPECT_EQ(events["plugins"]["settings"], "text");
  EXPECT_NE(events["texts"]["run"][0][1].get<std::string>().find("strategy ddp"), std::string::npos);
  EXPECT_EQ(events["texts"]["snapshot"][0], (nlohmann::json{300, "run/step-00000300/"}));
}

TEST(TensorBoard, ReadsTheMemoryOfAGpuAndTheSlowestRank) {
  const TemporaryFolder folder;
  TensorBoard board{folder / "board"};
  board.on_begin({});
  board.on_step({.step = 1, .loss_scale = 512.0, .skipped_steps = 3});
  board.on_step({.step = 2,
                 .gpu = GPUMemory{.allocated_bytes = 10, .reserved_bytes = 20, .peak_bytes = 15, .retries = 2},
                 .rank_times = {{.own_ms = 4.0}, {.own_ms = 9.5}, {.own_ms = 5.0}}});
  const auto scalars = read(folder / "board")["scalars"];
  EXPECT_EQ(scalars["train/loss_scale"], pairs({{1, 512}}));
  EXPECT_EQ(scalars["train/skipped_steps"], pairs({{1, 3}}));
  EXPECT_EQ(scalars["memory/gpu_allocated_bytes"], pairs({{2, 10}}));
  EXPECT_EQ(scalars["memory/gpu_reserved_bytes"], pairs({{2, 20}}));
  EXPECT_EQ(scalars["memory/gpu_peak_bytes"], pairs({{2, 15}}));
  EXPECT_EQ(scalars["memory/gpu_retries"], pairs({{2, 2}}));
  EXPECT_EQ(scalars["speed/slowest_rank"], pairs({{2, 1}}));
  EXPECT_EQ(scalars["speed/slowest_rank_ms"], pairs({{2, 9.5}}));
  EXPECT_EQ(scalars["speed/median_rank_ms"], pairs({{2, 5}}));
}

TEST(TensorBoard, DropsTheStepsAfterWhichARunHasGoneOn) {
  const TemporaryFolder folder;
  const auto run = [&](std::int64_t begin, std::int64_t end, bool goes_on, double loss) {
    TensorBoard board{folder.path()};
    board.on_begin({.step = begin, .goes_on = goes_on});
    for (auto step = begin + 1; step <= end; ++step) board.on_step({.step = step, .loss = loss});
  };
  run(0, 4, false, 1);
  run(2, 5, true, 2);
  EXPECT_EQ(read(folder.path())["scalars"]["train/loss"], pairs({{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 2}}));
  run(0, 1, false, 3);
  EXPECT_EQ(read(folder.path())["scalars"]["train/loss"], pairs({{1, 3}}))
      << "a new run must not show rows of the run before";
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) all.push_back(entry.path());
  return all;
}

/// While it lives, this process cannot make a file larger than `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_{};
  void (*old_handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST(TensorBoard, LosesEventsOnAFullDiskAndMakesNoFurtherFile) {
  const TemporaryFolder folder;
  const auto files = [&] { return files_in(folder / "board"); };
  TensorBoard board{folder / "board"};
  board.on_step({.step = 1, .loss = 1});
  ASSERT_EQ(files().size(), 1U);
  const auto size = std::filesystem::file_size(files()[0]);
  {
    const FullDisk full{size + 20};  // a record is cut
    for (std::int64_t step = 2; step < 5; ++step) EXPECT_THROW(board.on_step({.step = step, .loss = 1}), Error);
  }
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(std::filesystem::file_size(files()[0]), size);
  board.on_step({.step = 5, .loss = 2});
  EXPECT_EQ(read(folder / "board")["scalars"]["train/loss"], pairs({{1, 1.0}, {5, 2.0}}));
}

TEST(TensorBoard, LeavesNoFileThatAFullDiskHasKeptEmpty) {
  const TemporaryFolder folder;
  TensorBoard board{folder / "board"};
  {
    const FullDisk full{0};
    for (std::int64_t step = 1; step < 3; ++step) EXPECT_THROW(board.on_step({.step = step, .loss = 1}), Error);
  }
  EXPECT_EQ(files_in(folder / "board").size(), 0U);
  board.on_step({.step = 3, .loss = 2});
  EXPECT_EQ(read(folder / "board")["scalars"]["train/loss"], pairs({{3, 2.0}}));
}

TEST(TensorBoard, MakesANewFileWhereItsOwnWasRemoved) {
  const TemporaryFolder folder;
  TensorBoard board{folder / "board"};
  board.on_begin({});
  board.on_step({.step = 1, .loss = 1});
  std::filesystem::remove_all(folder / "board");
  board.on_step({.step = 2, .loss = 2});
  board.on_step({.step = 3, .loss = 3});
  EXPECT_EQ(read(folder / "board")["scalars"]["train/loss"], pairs({{2, 2.0}, {3, 3.0}}));
}

TEST(TensorBoard, RefusesAFolderThatCannotBe) {
  const TemporaryFolder folder;
  folder.file("file", "");
  for (const auto& place : {folder / "file", folder / std::string(300, 'x')}) {  // a name has at most 255 bytes
    try {
      TensorBoard board{place};
      ADD_FAILURE() << place << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find(place.string()), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ddpxx::tensorboard_test
