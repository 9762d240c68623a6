#include <algorithm>
#include <limits>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include <ddpxx/observe/progress.hpp>

#include "../terminal.hpp"

namespace ddpxx::progress_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
const StepDone kStep{.step = 1200,
                     .loss = 2.84312,
                     .grad_norm = 0.871,
                     .learning_rate = 2.98e-4,
                     .tokens_per_second = 412'345,
                     .step_ms = 236,
                     .peak_memory_bytes = 161 * kMiB};

StepDone step(std::int64_t number) {
  StepDone event = kStep;
  event.step = number;
  return event;
}

/// A progress display after the begin of a run, with an empty `text`.
struct Begun : Progress {
  Begun(std::ostringstream& text, std::int64_t last_step, ProgressOptions options = {}, double seconds_allowed = 0)
      : Progress{text, options} {
    on_begin({.last_step = last_step, .seconds_allowed = seconds_allowed});
    text.str("");
  }
};

TEST(ProgressLine, TellsAllWhereThereIsRoom) {
  EXPECT_EQ(progress_line(kStep, 50'000, 11'520.0, 200),
            "step 1200/50000  loss 2.8431  gnorm 0.87  lr 2.98e-04  412k tok/s  eta 3h12m  mem 161M");
  EXPECT_EQ(progress_line(kStep, 0, {}, 200), "step 1200  loss 2.8431  gnorm 0.87  lr 2.98e-04  412k tok/s  mem 161M");
}

TEST(ProgressLine, DropsTheMemoryAndNotTheTimeLeftAt80Columns) {
  EXPECT_EQ(progress_line(kStep, 50'000, 11'520.0, 79),
            "step 1200/50000  loss 2.8431  gnorm 0.87  lr 2.98e-04  412k tok/s  eta 3h12m");
}

TEST(ProgressLine, TellsOfSkippedStepsAndTheScaleOfTheLoss) {
  auto event = kStep;
  event.loss_scale = 512;
  EXPECT_EQ(progress_line(event, 0, {}, 200), progress_line(kStep, 0, {}, 200));
  event.skipped_steps = 3;
  EXPECT_NE(progress_line(event, 0, {}, 200).find("  scale 512, 3 skipped  "), std::string::npos);
  event.loss_scale.reset();
  EXPECT_NE(progress_line(event, 0, {}, 200).find(" tok/s  3 skipped  "), std::string::npos);
}

TEST(ProgressLine, DropsWholeFieldsWhereThereIsNot) {
  const std::string whole = progress_line(kStep, 50'000, 11'520.0, 200);
  for (std::size_t width = 0; width <= whole.size(); ++width) {
    const auto line = progress_line(kStep, 50'000, 11'520.0, width);
    EXPECT_LE(line.size(), width);
    EXPECT_EQ(whole.rfind(line, 0), 0U);
    if (line.size() < whole.size() && width >= 15) {
      EXPECT_EQ(whole.substr(line.size(), 2), "  ") << line;
    }
  }
}

TEST(ProgressLine, ShortensNumbers) {
  const auto tokens = [](double value) { return short_count(value, 1'000, " kMGT"); };
  EXPECT_EQ(tokens(0), "0");
  EXPECT_EQ(tokens(87), "87");
  EXPECT_EQ(tokens(999.4), "999");
  EXPECT_EQ(tokens(999.9), "1.00k");
  EXPECT_EQ(tokens(1'250'000), "1.25M");
  EXPECT_EQ(tokens(12'500), "12.5k");
  EXPECT_EQ(short_count(1.5 * 1024 * 1024 * 1024, 1'024, " KMGT"), "1.50G");
  EXPECT_EQ(short_duration(45), "45s");
  EXPECT_EQ(short_duration(725), "12m05s");
  EXPECT_EQ(short_duration(2 * 86'400 + 3 * 3'600), "2d03h");
}

TEST(Progress, ShowsAMetricThatCountedNothingAsNan) {
  std::ostringstream text;
  Begun progress{text, 3, {.plain_interval = std::chrono::milliseconds{0}}};
  const double zero = 0;
  progress.on_evaluated(Evaluated{.step = 2, .val_loss = 2.5, .metrics = {{"recall", -(zero / zero)}}});
  progress.on_evaluated(Evaluated{.step = 2, .val_loss = 2.5, .metrics = {{"recall", zero / zero}}});
  EXPECT_EQ(text.str(), "step 2  val_loss 2.5000  val_recall nan\nstep 2  val_loss 2.5000  val_recall nan\n");
}

TEST(Progress, WritesPlainLinesWhereThereIsNoTerminal) {
  std::ostringstream text;
  Begun progress{text, 3, {.plain_interval = std::chrono::milliseconds{0}}};
  progress.on_step(step(1));
  progress.on_evaluated(Evaluated{.step = 2, .val_loss = 2.34564});
  progress.on_snapshot(SnapshotSaved{.step = 2, .path = "run/\x1b[2J", .seconds = 3.26, .waited_seconds = 0.11});
  progress.on_step(step(3));
  progress.on_end({});
  EXPECT_EQ(text.str(),
            "step 1/3  loss 2.8431  gnorm 0.87  lr 2.98e-04  412k tok/s  eta 0s  mem 161M\n"
            "step 2  val_loss 2.3456\n"
            "step 2  snapshot run/\\x1b[2J saved in 3.3s, training waited 0.1s\n"
            "step 3/3  loss 2.8431  gnorm 0.87  lr 2.98e-04  412k tok/s  mem 161M\n");
}

TEST(Progress, SmoothsTheLossAndTheTokensASecond) {
  std::ostringstream text;
  Begun progress{text, 0, {.plain_interval = std::chrono::milliseconds{0}}};
  auto event = step(1);
  event.loss = 2;
  event.tokens_per_second = 1'000;
  event.step_ms = 100;
  progress.on_step(event);
  event.loss = 4;
  event.tokens_per_second = 200;  // 100 tokens in the first step, 100 in the second
  event.step_ms = 500;
  text.str("");
  progress.on_step(event);
  EXPECT_NE(text.str().find("loss 3.0256"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("  328 tok/s"), std::string::npos) << text.str();
}

TEST(Progress, LeavesTheLossOfAStepThatWasLeftOutOutOfTheMovingAverage) {
  std::ostringstream text;
  Begun progress{text, 0, {.plain_interval = std::chrono::milliseconds{0}}};
  auto event = step(1);
  event.loss = 2;
  event.skipped_steps = 0;
  progress.on_step(event);
  for (const double loss : {std::numeric_limits<double>::infinity(), 1e6}) {
    event.loss = loss;
    event.skipped_steps = *event.skipped_steps + 1;
    progress.on_step(event);
  }
  EXPECT_NE(text.str().find("step 1  left out, because the norm of its gradients is 0.871, far above the average\n"),
            std::string::npos)
      << text.str();
  event.loss = 2;
  text.str("");
  progress.on_step(event);
  EXPECT_NE(text.str().find("loss 2.0000"), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("left out"), std::string::npos) << text.str();
  event.loss_scale = 512;
  event.grad_norm = 0;
  event.skipped_steps = 3;
  progress.on_step(event);
  EXPECT_EQ(text.str().find("left out"), std::string::npos) << "an overflow of a scaled loss is usual";
}

TEST(Progress, DoesNotReportAStepOfAnEarlierTrainingAsLeftOut) {
  std::ostringstream text;
  Begun progress{text, 0, {.plain_interval = std::chrono::milliseconds{0}}};
  auto event = step(1);
  event.skipped_steps = 1;
  progress.on_step(event);
  progress.on_end({});
  text.str("");
  progress.on_begin({});
  event.step = 2;
  event.loss = 2;
  progress.on_step(event);
  EXPECT_EQ(text.str().find("left out"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("loss 2.0000"), std::string::npos) << text.str();
}

TEST(Progress, TellsOnceInARunThatMuchOfTheTimeIsSpentWaitingForBatches) {
  std::ostringstream text;
  Begun progress{text, 0};
  const auto pass = [&](int steps, double step_ms, double data_ms) {
    text.str("");
    for (int i = 0; i < steps; ++i) {
      auto event = step(i + 1);
      event.step_ms = step_ms;
      event.data_ms = data_ms;
      progress.on_step(event);
    }
    return text.str();
  };
  const std::string told =
      "  34% of the time of the last 20 steps was spent waiting for batches: set a larger num_workers";
  EXPECT_EQ(pass(20, 500, 100).find("waiting"), std::string::npos) << "a fifth of the time is not too much";
  EXPECT_EQ(pass(19, 500, 170).find("waiting"), std::string::npos) << "these steps take less than 10 s";
  EXPECT_NE(pass(1, 500, 170).find(told), std::string::npos) << text.str();
  EXPECT_EQ(pass(100, 500, 170).find("waiting"), std::string::npos) << "once in a run is enough";
  progress.on_begin({});
  EXPECT_EQ(pass(9, 20'000, 10'000).find("waiting"), std::string::npos) << "these are less than 10 steps";
  EXPECT_NE(pass(1, 20'000, 10'000).find("  50% of the time of the last 10 steps"), std::string::npos) << text.str();
}

TEST(Progress, KnowsThatTheTimeIsUpBeforeTheLastStep) {
  std::ostringstream text;
  Begun progress{text, 1'000'000, {.plain_interval = std::chrono::milliseconds{0}}, 600};
  progress.on_step(step(1));
  EXPECT_NE(text.str().find("eta 10m00s"), std::string::npos) << text.str();
  std::ostringstream endless;
  Begun only_time{endless, 0, {.plain_interval = std::chrono::milliseconds{0}}, 600};
  only_time.on_step(step(1));
  EXPECT_NE(endless.str().find("step 1  "), std::string::npos) << endless.str();
  EXPECT_NE(endless.str().find("eta 10m00s"), std::string::npos) << endless.str();
}

TEST(Progress, TellsHowFarAnEvaluationIs) {
  const Terminal terminal{80};
  std::ostringstream text;
  Begun progress{text, 1, {.descriptor = terminal.descriptor()}};
  progress.on_evaluating(Evaluating{.step = 1, .samples = 40, .all_samples = 800});
  EXPECT_EQ(text.str(), "") << "a short evaluation must print nothing";
  std::this_thread::sleep_for(std::chrono::milliseconds{110});
  progress.on_evaluating(Evaluating{.step = 1, .samples = 120, .all_samples = 800});
  EXPECT_EQ(text.str(), "\rstep 1  evaluating 120/800");
  text.str("");
  progress.on_evaluated(Evaluated{.step = 1, .val_loss = 2});
  EXPECT_EQ(text.str(), "\rstep 1  val_loss 2.0000   \n") << "the result must overwrite the line";
}

TEST(Progress, TellsHowFarAnEvaluationIsInOneLineOfANarrowTerminal) {
  for (const auto& [columns, line] :
       {std::pair{28, "\rstep 150  evaluating 80/624"}, {27, "\revaluating 80/624"}, {11, "\revaluating"}}) {
    const Terminal terminal{static_cast<unsigned short>(columns)};
    std::ostringstream text;
    Begun progress{text, 300, {.descriptor = terminal.descriptor()}};
    progress.on_evaluating(Evaluating{.step = 150, .samples = 8, .all_samples = 624});
    std::this_thread::sleep_for(std::chrono::milliseconds{110});
    progress.on_evaluating(Evaluating{.step = 150, .samples = 80, .all_samples = 624});
    EXPECT_EQ(text.str(), line) << columns;
  }
}

TEST(Progress, TellsHowFarAnEvaluationIsWhereThereIsNoTerminal) {
  std::ostringstream text, rarely;
  Begun progress{text, 1, {.plain_interval = std::chrono::milliseconds{0}}};
  Begun rare{rarely, 1, {.plain_interval = std::chrono::hours{1}}};
  for (const std::int64_t samples : {8, 12}) {
    progress.on_evaluating(Evaluating{.step = 1, .samples = samples, .all_samples = 12});
    rare.on_evaluating(Evaluating{.step = 1, .samples = samples, .all_samples = 12});
  }
  EXPECT_EQ(text.str(), "step 1  evaluating 8/12\nstep 1  evaluating 12/12\n");
  EXPECT_EQ(rarely.str(), "");
}

TEST(Progress, ShowsTheFirstAndTheLastStepBetweenLongIntervals) {
  for (const std::int64_t total : {std::int64_t{50}, std::int64_t{0}}) {
    std::ostringstream text;
    Begun progress{text, total, {.plain_interval = std::chrono::hours{1}}};
    for (std::int64_t i = 1; i <= 50; ++i) progress.on_step(step(i));
    if (total != 0) {
      EXPECT_NE(text.str().find("\nstep 50/50"), std::string::npos)
          << "a known last step must be printed without finish()";
    }
    progress.on_end({});
    progress.on_end({});
    EXPECT_EQ(std::ranges::count(text.str(), '\n'), 2) << text.str();
    EXPECT_EQ(text.str().find("step 1"), 0U);
    EXPECT_NE(text.str().find("\nstep 50"), std::string::npos);
  }
}

TEST(Progress, RewritesOneLineOnATerminalAndFitsIt) {
  const Terminal terminal{40};  // gnorm would end in the terminal's last column
  std::ostringstream text;
  Begun progress{text, 50'000, {.descriptor = terminal.descriptor()}};
  progress.on_step(step(1200));
  EXPECT_EQ(text.str(), "\rstep 1200/50000  loss 2.8431");
  progress.on_end({});
  EXPECT_TRUE(text.str().ends_with('\n'));
}

TEST(Progress, CoversALongerLineAndKeepsEvaluations) {
  const Terminal terminal{60};
  std::ostringstream text;
  Begun progress{text, 50'000, {.descriptor = terminal.descriptor()}};
  progress.on_step(step(50'000));
  const auto width = text.str().size() - 1;
  text.str("");
  progress.on_evaluated(Evaluated{.step = 1, .val_loss = 2});
  std::string line = "step 1  val_loss 2.0000";
  line.resize(width, ' ');
  EXPECT_EQ(text.str(), '\r' + line + '\n');
}

TEST(Progress, FollowsATerminalThatIsResized) {
  const Terminal terminal{80};
  std::ostringstream text;
  Begun progress{text, 1200, {.descriptor = terminal.descriptor()}};
  progress.on_step(step(1200));
  terminal.resize(20);
  text.str("");
  progress.on_step(step(1200));
  EXPECT_LE(text.str().size(), 20U) << "expected a carriage return and at most 19 columns";
}

TEST(Progress, EndsTheLineOfATerminalWhenItIsDestroyed) {
  const Terminal terminal{80};
  std::ostringstream text;
  {
    Begun progress{text, 50'000, {.descriptor = terminal.descriptor()}};
    progress.on_step(step(1));
  }
  EXPECT_TRUE(text.str().ends_with('\n'));
}

TEST(Progress, TakesADumbTerminalForNone) {
  const Terminal terminal{80};
  for (const char* kind : {"dumb", ""}) {
    ::setenv("TERM", kind, 1);
    std::ostringstream text;
    Begun progress{text, 3, {.descriptor = terminal.descriptor()}};
    progress.on_step(step(1));
    EXPECT_EQ(text.str().find('\r'), std::string::npos);
  }
}

}  // namespace
}  // namespace ddpxx::progress_test
