// Starts that are killed while they load, and what the next start makes of it.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/folder.hpp>

#include "training_run.hpp"

namespace ddpxx {
namespace {

using testing::HasSubstr;

class LoadAttempts : public TrainingRun {
 protected:
  static RunOptions after(std::int64_t max_steps) {
    return {.max_steps = max_steps, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 0}};
  }
  static RunOptions killed(std::int64_t max_steps, const std::string& failpoint, int rank) {
    auto options = after(max_steps);
    options.failpoint = failpoint;
    options.failing_rank = rank;
    return options;
  }
  bool has(std::int64_t step, const char* file) const {
    return std::filesystem::exists(place() / Snapshots::folder_of(step) / file);
  }
  /// How many attempts to load the snapshot of a step are written down beside it.
  std::int64_t attempts(std::int64_t step) const {
    Folder storage{place()};
    const Snapshots snapshots{storage};
    for (const auto& stored : snapshots.list())
      if (stored.step == step) return snapshots.attempts(stored);
    return -1;
  }
};

class KilledLoad : public LoadAttempts, public testing::WithParamInterface<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(WorldsAndRanks, KilledLoad,
                         testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{2, 1}));

TEST_P(KilledLoad, AtAnyOperationLeavesSnapshotsThatLoad) {
  const auto [world_size, rank] = GetParam();
  train<FSDP>(world_size, after(4));
  const auto expected = snapshot();
  int operation = 1;
  for (;; ++operation) {
    try {
      train<FSDP>(world_size, killed(4, "io:kill@" + std::to_string(operation), rank));
      break;  // it has fewer operations
    } catch (const Error&) {
    }
    expect_same_bits(snapshot(), expected);
    ASSERT_THAT(steps(), testing::ElementsAre(4, 2)) << "operation " << operation;
    train<FSDP>(world_size, after(4));
    ASSERT_EQ(attempts(4), 0) << "that start came to its end";
  }
  EXPECT_GT(operation, rank == 0 ? 12 : 2);
  ASSERT_THAT(steps(), testing::ElementsAre(4, 2));
}

class CrashingLoad : public LoadAttempts, public testing::WithParamInterface<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(PlacesAndRanks, CrashingLoad,
                         testing::Values(std::pair{"checkpoint.before_read:kill", 0},
                                         std::pair{"checkpoint.before_read:kill", 1},
                                         std::pair{"checkpoint.after_load:kill", 0},
                                         std::pair{"checkpoint.after_load:kill", 1}));

TEST_P(CrashingLoad, ASecondTimeMakesTheNextStartTakeTheSnapshotBefore) {
  const auto [place_in_code, rank] = GetParam();
  train<FSDP>(2, after(6));
  const auto expected = snapshot();
  for (const std::int64_t attempt : {1, 2}) {
    EXPECT_THROW(train<FSDP>(2, killed(6, place_in_code, rank)), Error);
    EXPECT_EQ(attempts(6), attempt);
    EXPECT_EQ(steps().front(), 6);
  }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("was loaded by 2 starts that ended before their first step was done"));
  EXPECT_THAT(told, HasSubstr("resumed at step 4"));
  EXPECT_TRUE(has(6, Snapshots::kRejected));
  expect_same_bits(snapshot(), expected);
  EXPECT_EQ(attempts(6), 0) << "of the snapshot that took its place";
  EXPECT_EQ(attempts(4), 0);
}

TEST_F(LoadAttempts, OfWhatCouldNotBeSetAsideAreNoOtherRunOnceItsStepIsSavedAgain) {
  train<FSDP>(2, after(6));
  const auto expected = snapshot();
  for (int start = 0; start < 2; ++start)
    EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", 1)), Error);
  testing::internal::CaptureStderr();
  train<FSDP>(2, killed(6, "snapshot.before_set_aside:throw@1", 0));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("snapshot.before_set_aside was told to throw"));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
  EXPECT_TRUE(has(6, Snapshots::kRejected));
  expect_same_bits(snapshot(), expected);
  EXPECT_EQ(attempts(6), 0);
}

TEST_F(LoadAttempts, WhatCouldNotBeSetAsideDoesNotCountAmongTheKept) {
  train<FSDP>(2, after(6));
  for (int start = 0; start < 2; ++start)
    EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", 1)), Error);
  auto options = killed(5, "snapshot.before_set_aside:throw", 0);
  options.snapshot.keep_last = 1;
  testing::internal::CaptureStderr();
  train<FSDP>(2, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 5)) << "5 is the newest one that is relied on";
}

TEST_F(LoadAttempts, ASnapshotThatWasOutlivedOnceStartsAnew) {
  train<FSDP>(2, after(6));
  for (const std::int64_t max_steps : {7, 8, 9}) {
    EXPECT_THROW(train<FSDP>(2, killed(max_steps, "checkpoint.after_load:kill", 1)), Error);
    testing::internal::CaptureStderr();
    train<FSDP>(2, after(max_steps));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the last start that loaded it ended before"));
    for (const auto step : steps()) {
      EXPECT_EQ(attempts(step), 0) << step;
      EXPECT_FALSE(has(step, Snapshots::kRejected)) << step;
    }
  }
}

TEST_F(LoadAttempts, IsForgottenOnceTheFirstStepIsDone) {
  train<FSDP>(2, after(2));
  for (int start = 0; start < 3; ++start) {
    EXPECT_THROW(train_watched<FSDP>(2, killed(6, "test.batch:kill@2", 0), [] { failpoint("test.batch"); }), Error);
    EXPECT_EQ(attempts(2), 0) << "it was killed in its second step";
  }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 2"));
}

TEST_F(LoadAttempts, ThatCannotBeForgottenAreTriedAgainBySavesAndNotByEachStep) {
  train<FSDP>(1, after(2));
  auto options = after(14);
  options.save_every = 10;
  testing::internal::CaptureStderr();
  train_watched<FSDP>(1, options, [this, batches = 0]() mutable {
    const auto note = place() / Snapshots::folder_of(2) / Snapshots::kAttempts;
    if (++batches > 1) return;
    std::filesystem::remove(note);
    std::filesystem::create_directories(note / "in the way");
  });
  const auto told = testing::internal::GetCapturedStderr();
  std::size_t warnings = 0;
  for (auto at = told.find("cannot remove"); at != told.npos; at = told.find("cannot remove", at + 1)) ++warnings;
  EXPECT_EQ(warnings, 4U) << "after a step, in both saves, and at the end\n" << told;
}

TEST_F(LoadAttempts, ARefusalWithAReasonIsNone) {
  train<FSDP>(2, after(4));
  auto other = after(4);
  other.n_embd = 8;
  for (int start = 0; start < 3; ++start) EXPECT_THROW(train<FSDP>(2, other), Error);
  EXPECT_EQ(attempts(4), 0);
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
}

/// It counts no targets.
struct Blank : Tokens {
  Batch batch(std::span<const std::int64_t> indices) const {
    auto batch = Tokens::batch(indices);
    batch.num_tokens = 0;
    return batch;
  }
};

TEST_F(LoadAttempts, ABatchWithoutTargetsIsNone) {
  train<FSDP>(2, after(4));
  for (int start = 0; start < 3; ++start) {
    try {
      train<FSDP, Blank>(2, after(6));
      ADD_FAILURE() << "trained on nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data) << error.what();
    }
    EXPECT_EQ(attempts(4), 0);
  }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
}

TEST_F(LoadAttempts, WhereNoneIsLeftItIsAnErrorThatSaysHowToLoadItAllTheSame) {
  train<FSDP>(2, after(2));
  for (int start = 0; start < 2; ++start)
    EXPECT_THROW(train<FSDP>(2, killed(4, "checkpoint.before_read:kill", 1)), Error);
  try {
    train<FSDP>(2, after(4));
    FAIL() << "it was taken for a fresh start";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), HasSubstr("snapshot.load_attempts=0 loads it all the same"));
  }
  EXPECT_THAT(steps(), testing::ElementsAre(2)) << "nothing is lost";
  auto all_the_same = after(4);
  all_the_same.snapshot.load_attempts = 0;
  train<FSDP>(2, all_the_same);
  EXPECT_EQ(steps().front(), 4);
}

}  // namespace
}  // namespace ddpxx
