// For each system call that a run makes in its save_dir: the call fails, or the process is killed there.
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/folder.hpp>

#include "../launch/started_program.hpp"
#include "../train/training_run.hpp"
#include "failing_calls.hpp"

namespace ddpxx::storage_faults_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StorageFaults : public TrainingRun {
 protected:
  static constexpr long kForEver = std::numeric_limits<long>::max();

  void TearDown() override { let_calls_succeed(); }

  static RunOptions until(std::int64_t max_steps, std::int64_t keep_last = 0) {
    return {.max_steps = max_steps, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = keep_last}};
  }
  /// The log of a training on `ranks` ranks, followed by the error that ended it.
  template <class Strategy>
  std::string told_by(int ranks, const RunOptions& options) {
    std::string error;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      train<Strategy>(ranks, options);
    } catch (const Error& caught) {
      error = "code " + std::to_string(static_cast<int>(caught.code())) + ": " + caught.what();
    }
    testing::internal::GetCapturedStdout();
    return testing::internal::GetCapturedStderr() + error;
  }
  std::string step_file(std::int64_t step, const char* name) const {
    return (place() / Snapshots::folder_of(step) / name).string();
  }
  /// Checks all files of each snapshot that a start would accept.
  void expect_sound_snapshots() const {
    Folder storage{place()};
    const Snapshots snapshots{storage};
    std::size_t sound = 0;
    for (const auto& stored : snapshots.list()) {
      if (!stored.committed) continue;
      const auto read = snapshots.read(stored);
      ASSERT_TRUE(read.manifest) << read.damage;
      EXPECT_EQ(ShardReader(storage, stored.folder, *read.manifest).verify(), std::nullopt);
      ++sound;
    }
    EXPECT_GE(sound, 1U);
  }
  /// The files in save_dir, without the random parts of their names, which differ between starts. Empty folders do not
  /// count.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator{place()})
      if (entry.is_regular_file())
        names.insert(std::regex_replace(entry.path().lexically_relative(place()).string(),
                                        std::regex{"\\.[0-9a-f]{12}\\."}, ".START."));
    return names;
  }
};

/// What happens at a system call, and which calls the test covers.
struct Fault {
  const char* name;
  FailingCalls::End end;
  int error;
  const char* calls;  ///< All but write, which the test covers separately.
};

/// Kills happen after a call only: a kill before a call leaves the same files as a kill after the previous call.
class EveryCall : public StorageFaults, public testing::WithParamInterface<Fault> {
 protected:
  /// The numbers of all calls; of 100 or more calls, the first, the last, and some in between.
  static std::vector<long> numbers(long calls) {
    std::vector<long> numbers;
    for (long call = 1; call <= calls; ++call)
      if (calls < 100 || call <= 4 || call > calls - 2 || call % 25 == 0) numbers.push_back(call);
    return numbers;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Faults, EveryCall,
    testing::Values(Fault{"ReadOrWriteError", FailingCalls::End::error, EIO,
                          "open read pread pwrite ftruncate fsync flock close rename link unlink mkdir rmdir"},
                    Fault{"FullDisk", FailingCalls::End::error, ENOSPC,
                          "open pwrite ftruncate fsync rename link mkdir"},
                    Fault{"Kill", FailingCalls::End::killed_after, 0,
                          "open read pread pwrite ftruncate fsync flock close rename link unlink mkdir rmdir"}),
    [](const auto& info) { return std::string{info.param.name}; });

TEST_P(EveryCall, OfAStartAndASaveLeavesSnapshotsFromWhichTheNextStartGoesOnBitForBit) {
  const auto& fault = GetParam();
  const auto first = until(2, 1), faulty = until(3, 1), next = until(4, 1);
  for (const auto& options : {first, faulty, next}) told_by<DDP>(1, options);
  const auto expected = snapshot();
  const auto expected_files = files();
  forget();
  told_by<DDP>(1, first);
  const TemporaryFolder begin;
  fs::copy(place(), begin.path(), fs::copy_options::recursive);
  const auto start_with = [&](const FailingCalls& order) {
    fs::remove_all(place());
    fs::copy(begin.path(), place(), fs::copy_options::recursive);
    fail_calls(order);
    auto told = told_by<DDP>(1, faulty);
    let_calls_succeed();
    return told;
  };

  for (const char* calls : {fault.calls, "write"}) {
    FailingCalls order{.path = place().string(), .end = fault.end, .error = fault.error, .calls = calls};
    start_with(order);
    const auto count = count_calls();
    ASSERT_GT(count, 10) << calls;
    for (const auto call : numbers(count)) {
      order.first = order.last = call;
      const auto told = start_with(order);
      const auto trace = testing::Message()
                         << fault.name << " at call " << call << " of " << count << " of " << calls << ":\n"
                         << told;
      SCOPED_TRACE(trace);
      if (fault.end != FailingCalls::End::error) EXPECT_THAT(told, HasSubstr("ended by signal 9"));
      if (fault.end == FailingCalls::End::error && told.find("code ") != std::string::npos)
        EXPECT_THAT(told, AllOf(HasSubstr("code 4: "), HasSubstr("(errno " + std::to_string(fault.error) + ")")));
      expect_sound_snapshots();
      EXPECT_THAT(told_by<DDP>(1, next), AllOf(HasSubstr("resumed at step "), Not(HasSubstr("code "))));
      expect_same_bits(snapshot(), expected);
      EXPECT_EQ(files(), expected_files);
      if (HasFailure()) return;
    }
  }
}

class Unreadable : public StorageFaults {
 protected:
  void SetUp() override {
    told_by<FSDP>(2, until(6));
    expected_.emplace(snapshot());
  }
  /// Makes each of these calls on the file fail from now on.
  static void break_file(const std::string& path, int error, const char* calls = "read pread") {
    fail_calls({.path = path, .last = kForEver, .error = error, .calls = calls});
  }

  std::optional<Snapshot> expected_;
};

TEST_F(Unreadable, FileOfOneRankMakesAllRanksTakeTheSnapshotBefore) {
  const auto file = step_file(6, "rank-1");
  break_file(file, EIO);
  const auto told = told_by<FSDP>(2, until(6));
  EXPECT_THAT(told, AllOf(HasSubstr("warning: cannot read " + file), HasSubstr("Input/output error (errno 5)"),
                          HasSubstr("resumed at step 4"), Not(HasSubstr("code "))));
  EXPECT_TRUE(fs::exists(step_file(6, Snapshots::kRejected)));
  let_calls_succeed();
  expect_same_bits(snapshot(), *expected_);
}

TEST_F(Unreadable, ManifestIsSetAsideWithTheReason) {
  const auto file = step_file(6, Snapshots::kManifest);
  break_file(file, EUCLEAN);
  const auto told = told_by<FSDP>(2, until(5));
  EXPECT_THAT(
      told, AllOf(HasSubstr("warning: cannot read " + file), HasSubstr("resumed at step 4"), Not(HasSubstr("code "))));
  let_calls_succeed();
  EXPECT_THAT(StartedProgram::text_of(step_file(6, Snapshots::kRejected)), HasSubstr("(errno 117)"));
  EXPECT_THAT(steps(), testing::ElementsAre(5, 4, 2));
  told_by<FSDP>(2, until(6));
  expect_same_bits(snapshot(), *expected_);
}

TEST_F(Unreadable, FilesOfAllSnapshotsEndTheRunWithEachReasonAndLoseNothing) {
  break_file(place().string() + "/step-", EIO);
  const auto told = told_by<FSDP>(2, until(8));
  EXPECT_THAT(told, AllOf(HasSubstr("code 4: "), HasSubstr("3 snapshots found"), HasSubstr("none is usable"),
                          HasSubstr(step_file(2, Snapshots::kManifest) + ": Input/output error")));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
}

TEST_F(Unreadable, ForAWhileEndsTheRunAndSetsNothingAside) {
  for (const auto& [file, calls] : {std::pair{Snapshots::kManifest, "read"}, std::pair{"rank-1", "open"}}) {
    fail_calls({.path = step_file(6, file), .last = 3, .error = ESTALE, .calls = calls});
    EXPECT_THAT(told_by<FSDP>(2, until(8)), AllOf(HasSubstr("code 4: "), HasSubstr("can be read now")));
    let_calls_succeed();
    EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
  }
  EXPECT_THAT(told_by<FSDP>(2, until(6)), HasSubstr("resumed at step 6"));
}

TEST_F(Unreadable, ManifestThatIsMissingForAWhileIsNotSetAside) {
  fail_calls({.path = step_file(6, Snapshots::kManifest), .last = 1, .error = ENOENT, .calls = "open"});
  EXPECT_THAT(told_by<FSDP>(2, until(8)), AllOf(HasSubstr("code 4: "), HasSubstr("can be read now")));
  let_calls_succeed();
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
  EXPECT_THAT(told_by<FSDP>(2, until(6)), HasSubstr("resumed at step 6"));
}

TEST_F(Unreadable, ForMoreBytesThanAReaderTakesIsSetAside) {
  fs::resize_file(step_file(6, Snapshots::kManifest), kMaxManifestBytes + 1);
  EXPECT_THAT(told_by<FSDP>(2, until(6)), AllOf(HasSubstr("it has more than"), HasSubstr("resumed at step 4")));
  expect_same_bits(snapshot(), *expected_);
}

TEST_F(StorageFaults, LinkNamedLikeAStepEndsAStartAndAnyOtherLinkDoesNot) {
  told_by<DDP>(1, until(2));
  fs::create_directory_symlink("step-00000002", place() / "step-latest");
  fs::create_symlink("nothing", place() / "step-old");
  EXPECT_THAT(told_by<DDP>(1, until(4)), AllOf(HasSubstr("resumed at step 2"), Not(HasSubstr("code "))));
  fs::create_symlink("nothing", place() / "step-00000006");
  EXPECT_THAT(told_by<DDP>(1, until(6)),
              AllOf(HasSubstr("code 4: "), HasSubstr((place() / "step-00000006").string() + " is a symbolic link")));
}

TEST_F(Unreadable, OnceOrTwiceIsTriedAgain) {
  for (const int error : {EIO, ESTALE, EMFILE})
    for (const auto& [file, calls] : {std::pair{Snapshots::kManifest, "open"}, std::pair{Snapshots::kManifest, "read"},
                                      std::pair{"rank-0", "open"}, std::pair{"rank-1", "pread"}}) {
      const long failures = error == ESTALE ? 2 : 1;
      fail_calls({.path = step_file(6, file), .last = failures, .error = error, .calls = calls});
      EXPECT_THAT(told_by<FSDP>(2, until(6)), AllOf(HasSubstr("resumed at step 6"), Not(HasSubstr("warning"))))
          << calls << ", errno " << error;
      EXPECT_GT(count_calls(), failures) << calls;
    }
}

TEST_F(Unreadable, ForAReasonThatIsNotTheFilesOwnEndsTheRunAndSetsNothingAside) {
  for (const int error : {EMFILE, EACCES, ENOMEM}) {
    break_file(step_file(6, "rank-1"), error, "open");
    EXPECT_THAT(told_by<FSDP>(2, until(8)), AllOf(HasSubstr("code 4: "), HasSubstr(step_file(6, "rank-1")),
                                                  HasSubstr("(errno " + std::to_string(error) + ")")));
    EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
  }
}

}  // namespace
}  // namespace ddpxx::storage_faults_test
