// Starts that are killed while they load a snapshot, and what the next start does.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/folder.hpp>

#include "training_run.hpp"

namespace ddpxx::load_attempts_test {
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
  /// The number of attempts to load the snapshot of a step that is recorded beside it.
  std::int64_t attempts(std::int64_t step) const {
    Folder storage{place()};
    const Snapshots snapshots{storage};
    for (const auto& stored : snapshots.list())
      if (stored.step == step) return snapshots.attempts(stored);
    return -1;
  }

 private:
  ProgramFrame frame_;  // without a frame, a trainer does not handle signals
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
      break;  // the load has fewer operations
    } catch (const Error&) {
    }
    expect_same_bits(snapshot(), expected);
    ASSERT_THAT(steps(), testing::ElementsAre(4, 2)) << "operation " << operation;
    train<FSDP>(world_size, after(4));
    ASSERT_EQ(attempts(4), 0) << "a complete start must reset the attempts";
  }
  EXPECT_GT(operation, rank == 0 ? 12 : 2);
  ASSERT_THAT(steps(), testing::ElementsAre(4, 2));
}

class CrashingLoad : public LoadAttempts, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CrashingLoad, testing::Values(0, 1));

TEST_P(CrashingLoad, ASecondTimeMakesTheNextStartTakeTheSnapshotBefore) {
  train<FSDP>(2, after(6));
  const auto expected = snapshot();
  for (const std::int64_t attempt : {1, 2}) {
    EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", GetParam())), Error);
    EXPECT_EQ(attempts(6), attempt);
    EXPECT_EQ(steps().front(), 6);
  }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("2 starts were killed while reading it"));
  EXPECT_THAT(told, HasSubstr("resumed at step 4"));
  EXPECT_TRUE(has(6, Snapshots::kRejected));
  expect_same_bits(snapshot(), expected);
  EXPECT_EQ(attempts(6), 0) << "a new snapshot of the step must start without attempts";
  EXPECT_EQ(attempts(4), 0);
}

TEST_P(CrashingLoad, IsNotCountedOnceAllRanksHaveReadTheSnapshot) {
  train<FSDP>(2, after(4));
  for (const char* failpoint : {"checkpoint.after_load:kill", "test.batch:kill@1"})
    for (int start = 0; start < 3; ++start) {
      EXPECT_THROW(train_watched<FSDP>(2, killed(6, failpoint, GetParam()), [] { ddpxx::failpoint("test.batch"); }),
                   Error);
      EXPECT_EQ(attempts(4), 0) << failpoint;
    }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("resumed at step 4"), testing::Not(HasSubstr("killed"))));
}

/// Sends SIGTERM to the process once the attempt to load is recorded, and SIGKILL once the record is removed.
struct Ended : Tokens {
  std::filesystem::path attempts;
  mutable std::once_flag once;
  std::int64_t size() const {
    std::call_once(once, [this] {
      std::thread{[this] {
        const auto wait_until_counted = [this](bool is_counted) {
          while (std::filesystem::exists(attempts) != is_counted)
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        };
        wait_until_counted(true);
        ::kill(::getpid(), SIGTERM);
        wait_until_counted(false);
        ::kill(::getpid(), SIGKILL);
      }}.detach();
    });
    return Tokens::size();
  }
};

TEST_F(LoadAttempts, ThatASchedulerKillsAfterASignalAreNotCounted) {
  train<FSDP>(2, after(4));
  for (int start = 0; start < 3; ++start) {
    const auto data = std::make_shared<Ended>();
    data->attempts = place() / Snapshots::folder_of(4) / Snapshots::kAttempts;
    try {
      train<FSDP, Ended>(2, killed(6, "checkpoint.before_read:sleep:60000", 0), {}, data);
      ADD_FAILURE() << "the training continued";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("ended by signal 9"));
    }
    EXPECT_EQ(attempts(4), 0);
  }
}

TEST_F(LoadAttempts, AreCountedFromZeroOnceASnapshotWasRead) {
  train<FSDP>(2, after(6));
  for (const std::int64_t max_steps : {7, 8, 9}) {
    EXPECT_THROW(train<FSDP>(2, killed(max_steps, "checkpoint.before_read:kill", 1)), Error);
    testing::internal::CaptureStderr();
    train<FSDP>(2, after(max_steps));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 start was killed while reading it"));
    for (const auto step : steps()) {
      EXPECT_EQ(attempts(step), 0) << step;
      EXPECT_FALSE(has(step, Snapshots::kRejected)) << step;
    }
  }
}

TEST_F(LoadAttempts, OnAllSnapshotsMakeTheNextStartBeginWithTheNewestAgain) {
  train<FSDP>(2, after(4));
  for (int start = 0; start < 4; ++start)
    EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", 1)), Error);
  EXPECT_EQ(attempts(4), 2);
  EXPECT_EQ(attempts(2), 2);
  testing::internal::CaptureStderr();
  EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", 1)), Error);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no other snapshot is left to try"));
  EXPECT_EQ(attempts(4), 1);
  EXPECT_EQ(attempts(2), 0);
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
}

TEST_F(LoadAttempts, DoNotKeepASnapshotFromBeingReadWhereAllOthersAreDamaged) {
  train<FSDP>(2, after(4));
  for (int start = 0; start < 2; ++start)
    EXPECT_THROW(train<FSDP>(2, killed(6, "checkpoint.before_read:kill", 1)), Error);
  const auto manifest = place() / Snapshots::folder_of(2) / Snapshots::kManifest;
  std::filesystem::resize_file(manifest, 100);
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
  EXPECT_FALSE(has(4, Snapshots::kRejected));
}

TEST_F(LoadAttempts, ThatAreDamagedCountAsNone) {
  train<FSDP>(2, after(4));
  const auto note = place() / Snapshots::folder_of(4) / Snapshots::kAttempts;
  const std::pair<const char*, std::function<void()>> damages[] = {
      {"too large", [&] { std::ofstream{note} << std::string(500, '2'); }},
      {"no number", [&] { std::ofstream{note} << "two\n"; }},
      {"a folder", [&] { std::filesystem::create_directories(note / "in the way"); }}};
  for (const auto& [name, damage] : damages) {
    damage();
    testing::internal::CaptureStderr();
    train<FSDP>(2, after(4));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4")) << name;
    EXPECT_THAT(steps(), testing::ElementsAre(4, 2)) << name;
  }
}

TEST_F(LoadAttempts, AboveALimitThatWasLoweredCountAsTheLimit) {
  train<FSDP>(2, after(4));
  std::ofstream{place() / Snapshots::folder_of(4) / Snapshots::kAttempts} << "3\n";
  auto options = after(4);
  options.snapshot.load_attempts = 1;
  testing::internal::CaptureStderr();
  train<FSDP>(2, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 2"));
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

/// A dataset that counts no targets.
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
      ADD_FAILURE() << "the training continued without targets";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data) << error.what();
    }
    EXPECT_EQ(attempts(4), 0);
  }
  testing::internal::CaptureStderr();
  train<FSDP>(2, after(6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("resumed at step 4"));
}

}  // namespace
}  // namespace ddpxx::load_attempts_test
