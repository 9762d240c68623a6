#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/observe/metrics_file.hpp>
#include <ddpxx/observe/progress.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/observe/run_text.hpp>
#include <ddpxx/observe/smoothed.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::run_report_test {
namespace {

const RunBegan kRun{.parameters = 812'345,
                    .strategy = "ddp",
                    .precision = "fp32",
                    .device = "cpu",
                    .ranks = 2,
                    .batch_size = 16,
                    .accumulation_steps = 1,
                    .samples = 1'799'936,
                    .steps_per_epoch = 56'248,
                    .seed = 1337,
                    .save_dir = "runs/train",
                    .last_step = 300};

TEST(HeadOfRun, SaysWhatIsTrainedHowAndWhereTo) {
  EXPECT_EQ(head_of_run(kRun),
            "model with 812k parameters, strategy ddp, 2 ranks on cpu, precision fp32\n"
            "global batch 32 (2 ranks x 16), 1799936 samples, 56248 steps an epoch\n"
            "seed 1337, snapshots in runs/train\n");
  auto run = kRun;
  run.ranks = 1;
  run.accumulation_steps = 4;
  run.steps_per_epoch = 1;
  run.save_dir.clear();
  EXPECT_EQ(head_of_run(run),
            "model with 812k parameters, strategy ddp, 1 rank on cpu, precision fp32\n"
            "global batch 64 (1 rank x 16 x 4 accumulated), 1799936 samples, 1 step an epoch\n"
            "seed 1337, saves nothing\n");
}

TEST(HeadOfRun, NamesTheGpuInALineOfItsOwn) {
  auto run = kRun;
  run.device = "cuda:0";
  run.gpu = "NVIDIA H200, 139 GiB";
  EXPECT_EQ(head_of_run(run),
            "model with 812k parameters, strategy ddp, 2 ranks on cuda:0, precision fp32\n"
            "device cuda:0 NVIDIA H200, 139 GiB\n"
            "global batch 32 (2 ranks x 16), 1799936 samples, 56248 steps an epoch\n"
            "seed 1337, snapshots in runs/train\n");
}

TEST(ClosingLine, SaysWhatWasReached) {
  EXPECT_EQ(closing_line({.step = 300, .last_step = 300, .steps = 300, .seconds = 65}),
            "finished at step 300/300: 300 steps in 1m05s; nothing saved");
  EXPECT_EQ(closing_line({.step = 120,
                          .last_step = 300,
                          .steps = 21,
                          .seconds = 2,
                          .best = Evaluated{.step = 100, .val_loss = 2.51},
                          .saved = "runs/a/step-00000120/"}),
            "stopped at step 120/300: 21 steps in 2s, best val_loss of this start 2.5100 at step 100; last snapshot in "
            "runs/a/step-00000120/");
}

TEST(Smoothed, IsTheMeanAtFirstAndForgetsLater) {
  Smoothed number;
  EXPECT_EQ(number.value(), 0);
  number.add(2);
  EXPECT_DOUBLE_EQ(number.value(), 2);
  for (int i = 0; i < 400; ++i) number.add(5);
  EXPECT_NEAR(number.value(), 5, 1e-6);
}

std::vector<nlohmann::json> rows_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> rows;
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

/// A report with the observers that a trainer adds by default.
RunReport make_report(const std::string& metrics, std::ostream& screen) {
  RunReport report;
  if (!metrics.empty()) report.add(std::make_shared<MetricsFile>(metrics));
  report.add(std::make_shared<Progress>(screen));
  return report;
}

TEST(RunReport, TellsARunFromItsBeginToItsEnd) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  std::ostringstream screen;
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  auto report = make_report(path.string(), screen);
  auto run = kRun;
  run.last_step = 2;
  report.begin(run);
  report.show(StepDone{.step = 1, .loss = 3});
  report.show(StepDone{.step = 2, .loss = 2});
  report.show(Evaluated{.step = 1, .val_loss = 2.5});
  report.show(Evaluated{.step = 2, .val_loss = 2.75});
  report.show(SnapshotSaved{.step = 2, .path = "runs/train/step-00000002/"});
  report.end();
  EXPECT_EQ(screen.str().find(head_of_run(run)), 0U);
  EXPECT_NE(screen.str().find("\nfinished at step 2/2: 2 steps in 0s, best val_loss 2.5000 at step 1; last snapshot in "
                              "runs/train/step-00000002/\n"),
            std::string::npos)
      << screen.str();
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 5U);
  for (const auto& row : rows) {
    EXPECT_GE(row["time"].get<double>(), now);
    EXPECT_LT(row["time"].get<double>(), now + 60);
    EXPECT_GE(row["elapsed"].get<double>(), 0);
    EXPECT_LT(row["elapsed"].get<double>(), 60);
  }
}

TEST(RunReport, GoesOnInTheFileOnlyWithTheRunThatWroteIt) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  std::ostringstream screen;
  const auto train = [&](std::int64_t begin, std::int64_t end, bool goes_on) {
    auto report = make_report(path.string(), screen);
    auto run = kRun;
    run.step = begin;
    run.goes_on = goes_on;
    report.begin(run);
    for (auto step = begin + 1; step <= end; ++step) report.show(StepDone{.step = step});
    report.end();
  };
  train(0, 4, false);
  train(2, 3, true);
  EXPECT_EQ(rows_of(path).size(), 3U) << "expected two rows of the first run and a new row";
  train(2, 3, false);
  EXPECT_EQ(rows_of(path).size(), 1U) << "a new run that starts from a snapshot must not keep old rows";
  EXPECT_EQ(rows_of(folder / "m.1.jsonl").size(), 3U);
}

TEST(RunReport, PrintsNoClosingLineWithoutAStep) {
  std::ostringstream screen;
  auto report = make_report("", screen);
  report.begin(kRun);
  report.end();
  EXPECT_EQ(screen.str(), head_of_run(kRun));
}

/// Counts its calls; throws or asks to stop at the given steps.
struct Watcher : Observer {
  std::string name() const override { return "the watcher"; }
  void on_begin(const RunBegan&) override { ++begins; }
  Verdict on_step(const StepDone& event) override {
    ++steps;
    if (event.step == throws_at || event.step == throws_again_at) throw std::runtime_error{"no room on the shelf"};
    return event.step == stops_at ? Verdict::stop : Verdict::go_on;
  }
  void on_end(const RunEnded& run) override { ended_at = run.step; }

  std::int64_t throws_at = -1, throws_again_at = -1, stops_at = -1;
  std::int64_t begins = 0, steps = 0, ended_at = -1;
};

TEST(RunReport, GoesOnWithOneWarningWhereAnObserverThrows) {
  std::ostringstream warnings;
  RunReport report{Log{2, warnings}};
  const auto failing = std::make_shared<Watcher>(), after = std::make_shared<Watcher>();
  failing->throws_at = 1;
  failing->throws_again_at = 2;
  report.add(failing);
  report.add(after);
  report.begin({});
  for (std::int64_t step = 1; step <= 3; ++step) report.show(StepDone{.step = step});
  EXPECT_EQ(failing->steps, 3) << "an observer must be called again after a failure";
  EXPECT_EQ(after->steps, 3);
  EXPECT_EQ(warnings.str(),
            "[rank2] warning: the watcher failed: no room on the shelf; training goes on, and further failures are "
            "counted\n");
  report.end();
  EXPECT_NE(warnings.str().find("the watcher failed 2 times in this run\n"), std::string::npos) << warnings.str();
  EXPECT_EQ(after->ended_at, 3);
}

/// Throws a number, which is no std::exception, as the run begins or in each step.
struct Thrower : Observer {
  std::string name() const override { return "the thrower"; }
  void on_begin(const RunBegan&) override {
    if (throws_at_begin) throw 7;
  }
  Verdict on_step(const StepDone&) override { throw 7; }

  bool throws_at_begin = false;
};

TEST(RunReport, TakesWhatIsNoStdExceptionForAFailureToo) {
  std::ostringstream warnings;
  RunReport report{Log{0, warnings}};
  const auto thrower = std::make_shared<Thrower>();
  const auto before = std::make_shared<Watcher>();
  report.add(before);
  report.add(thrower);
  report.begin({});
  report.show(StepDone{.step = 1});
  EXPECT_EQ(warnings.str(),
            "[rank0] warning: the thrower failed: an exception that is not a std::exception; training goes on, and "
            "further failures are counted\n");
  report.end();
  thrower->throws_at_begin = true;
  try {
    report.begin({.step = 4});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(), "the thrower failed as the run began, with an exception that is not a std::exception");
  }
  EXPECT_EQ(before->ended_at, 4) << "an observer that has seen the begin must see the end";
}

TEST(RunReport, WantsToStopOnceAnObserverDoes) {
  RunReport report;
  const auto watcher = std::make_shared<Watcher>();
  watcher->stops_at = 2;
  report.add(watcher);
  report.begin({});
  report.show(StepDone{.step = 1});
  EXPECT_FALSE(report.wants_stop());
  report.show(StepDone{.step = 2});
  report.show(StepDone{.step = 3});
  EXPECT_TRUE(report.wants_stop());
  report.begin({.step = 3});
  EXPECT_FALSE(report.wants_stop()) << "a request from an earlier run must not count";
}

TEST(RunReport, RefusesObserversThatWouldMissOrDoubleEvents) {
  RunReport report;
  EXPECT_THROW(report.add(nullptr), Error);
  const auto watcher = std::make_shared<Watcher>();
  report.add(watcher);
  EXPECT_THROW(report.add(watcher), Error) << "an observer cannot be added twice";
  report.begin({});
  EXPECT_THROW(report.add(std::make_shared<Watcher>()), Error) << "an observer cannot be added after the begin";
  report.end();
  EXPECT_NO_THROW(report.add(std::make_shared<Watcher>()));
}

TEST(RunReport, PassesOnNothingBeforeTheBeginAndAfterTheEnd) {
  RunReport report;
  const auto watcher = std::make_shared<Watcher>();
  report.add(watcher);
  report.show(StepDone{.step = 1});
  EXPECT_EQ(watcher->steps, 0);
  report.begin({});
  report.end();
  report.show(StepDone{.step = 1});
  EXPECT_EQ(watcher->steps, 0);
}

TEST(RunReport, HasABestEvaluationThoughTheFirstLossIsNoNumber) {
  std::ostringstream screen;
  auto report = make_report("", screen);
  report.begin({});
  report.show(StepDone{.step = 1});
  report.show(Evaluated{.step = 1, .val_loss = std::nan("")});
  report.show(Evaluated{.step = 2, .val_loss = 2.5});
  report.end();
  EXPECT_NE(screen.str().find("best val_loss 2.5000 at step 2"), std::string::npos) << screen.str();
}

}  // namespace
}  // namespace ddpxx::run_report_test
