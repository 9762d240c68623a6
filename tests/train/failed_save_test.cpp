// snapshot.on_failure=go_on: how a run continues after snapshots that could not be written.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/folder.hpp>

#include "training_run.hpp"

namespace ddpxx::failed_save_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class FailedSave : public TrainingRun {
 protected:
  static RunOptions going_on(SnapshotWriting writing = SnapshotWriting::foreground) {
    return {.max_steps = 6,
            .save_every = 2,
            .dropout = 0.2,
            .snapshot = {.writing = writing, .on_failure = SnapshotFailure::go_on, .keep_last = 0}};
  }
  static std::string full_disk_at(int operation) {
    return "io:errno:" + std::to_string(ENOSPC) + '@' + std::to_string(operation);
  }
  /// Expects that every snapshot can be read, and that there are no files of incomplete snapshots.
  void expect_whole() const {
    Folder storage{place()};
    const Snapshots snapshots{storage};
    for (const auto& stored : snapshots.list()) {
      ASSERT_TRUE(stored.committed) << stored.folder;
      EXPECT_NO_THROW(read_snapshot(storage, snapshots.read(stored).manifest.value()));
    }
  }
};

/// In the third batch, another run publishes a snapshot in the same place.
struct Shared : Tokens {
  std::filesystem::path place;
  std::int64_t step = 0;
  mutable int batches = 0;
  Batch batch(std::span<const std::int64_t> indices) const {
    if (++batches == 3) {
      try {
        save_snapshot(place, {.run = {.step = step}, .tensors = {{"model.theirs", at::ones({2})}}});
      } catch (const Error&) {  // the other rank was faster
      }
    }
    return Tokens::batch(indices);
  }
};

class PlaceOfTwoRuns : public FailedSave,
                       public testing::WithParamInterface<std::tuple<std::int64_t, SnapshotWriting, SnapshotFailure>> {
};
INSTANTIATE_TEST_SUITE_P(StepsWritingAndFailure, PlaceOfTwoRuns,
                         testing::Combine(testing::Values(4, 9),
                                          testing::Values(SnapshotWriting::foreground, SnapshotWriting::background),
                                          testing::Values(SnapshotFailure::stop, SnapshotFailure::go_on)));

TEST_P(PlaceOfTwoRuns, EndsTheRunOnAllRanksWhateverElseMayFail) {
  const auto [step, writing, on_failure] = GetParam();
  auto options = going_on(writing);
  options.max_steps = 100;
  options.snapshot.on_failure = on_failure;
  auto data = std::make_shared<Shared>();
  data->place = place();
  data->step = step;
  testing::internal::CaptureStderr();
  try {
    train<FSDP, Shared>(2, options, {}, data);
    ADD_FAILURE() << "two runs mixed their snapshots";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    for (const char* rank : {"rank 0: ", "rank 1: "})
      EXPECT_THAT(error.what(), HasSubstr(rank + (place() / Snapshots::folder_of(step)).string() +
                                          "manifest.json is there already: another run saves its snapshots here"));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("goes on")));
  EXPECT_EQ(steps().front(), step);
  EXPECT_LE(steps().size(), 2u) << "this run may have published the snapshot of step 2 only";
  for (const auto& entry : std::filesystem::recursive_directory_iterator{place()})
    if (entry.path().filename().string().starts_with("rank-")) {
      EXPECT_EQ(entry.path().parent_path().filename(), "step-00000002")
          << "no file of this run may lie beside the other run's";
    }
}

TEST_F(FailedSave, ThatHasNotEndedIsNamedByARankThatAnErrorEnds) {
  auto options = going_on(SnapshotWriting::background);
  options.save_every = 1;
  options.failpoint = "file.before_write:sleep:1000";
  options.failing_rank = 1;
  int batches = 0;
  testing::internal::CaptureStderr();
  EXPECT_THROW(train_watched<DDP>(2, options,
                                  [&] {
                                    const bool fails = std::getenv("DDPXX_FAILPOINT") != nullptr && ++batches == 2;
                                    if (fails) throw Error{Errc::data, "the second batch is lost"};
                                  }),
               Error);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("[rank1] warning: an error ends this rank once its work on the snapshot of step 1 is done"));
}

class LostAnswer : public FailedSave, public testing::WithParamInterface<SnapshotWriting> {};
INSTANTIATE_TEST_SUITE_P(Writing, LostAnswer,
                         testing::Values(SnapshotWriting::foreground, SnapshotWriting::background));

TEST_P(LostAnswer, OfTheLastSnapshotIsDetectedByTheNextTry) {
  train<FSDP>(2, going_on());
  const auto expected = snapshot();
  forget();
  auto options = going_on(GetParam());
  options.failpoint = "snapshot.after_commit:throw@3";
  testing::internal::CaptureStderr();
  train<FSDP>(2, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the snapshot of step 6 failed and training goes on"));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2));
  expect_same_bits(snapshot(), expected);
  expect_whole();
}

/// Hides the manifest of step 30 for some batches, as a storage with delayed lists would, while the ranks do not know
/// whether it exists.
struct Lagging : Tokens {
  std::filesystem::path folder;
  mutable int batches = 0;
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto manifest = folder / Snapshots::kManifest, hidden = folder / "hidden";
    std::error_code other_rank;
    if (++batches < 50 && std::filesystem::exists(manifest)) {
      // By then rank 0, which syncs the folder first, has looked for the manifest.
      std::this_thread::sleep_for(std::chrono::seconds{1});
      std::filesystem::rename(manifest, hidden, other_rank);
    }
    if (batches == 58) std::filesystem::rename(hidden, manifest, other_rank);
    return Tokens::batch(indices);
  }
};

TEST_F(FailedSave, RemovesNothingOfASnapshotThatOnlyRankZeroCanSee) {
  auto options = going_on(SnapshotWriting::background);
  options.max_steps = 60;
  options.save_every = 30;
  options.failpoint = "snapshot.after_commit:throw@1";
  auto data = std::make_shared<Lagging>();
  data->folder = place() / Snapshots::folder_of(30);
  testing::internal::CaptureStderr();
  train<FSDP, Lagging>(2, options, {}, data);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the snapshot of step 30 failed and training goes on"));
  EXPECT_THAT(steps(), testing::ElementsAre(60, 30));
  expect_whole();
}

/// Counts no targets from the third batch on, so that the loss is NaN.
struct GoingBlank : Tokens {
  mutable int batches = 0;
  Batch batch(std::span<const std::int64_t> indices) const {
    auto batch = Tokens::batch(indices);
    if (++batches > 2) batch.num_tokens = 0;
    return batch;
  }
};

/// A folder in which another program seems to create and remove each manifest `times` times.
class Contested : public Storage {
 public:
  Contested(const std::filesystem::path& path, int times) : folder_{path}, times_{times} {}
  std::string full_name(const std::string& name) const override { return folder_.full_name(name); }
  void prepare() override { folder_.prepare(); }
  bool claim(const std::string& owner) override { return folder_.claim(owner); }
  void write(const std::string& name, std::span<const Bytes> parts) override { folder_.write(name, parts); }
  bool create(const std::string& name, Bytes content) override { return --times_ < 0 && folder_.create(name, content); }
  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> room) override {
    folder_.read(name, offset, room);
  }
  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    return folder_.read_text(name, max_bytes);
  }
  std::vector<StoredObject> list(const std::string& front) override { return folder_.list(front); }
  void remove(const std::string& name) override { folder_.remove(name); }

 private:
  Folder folder_;
  int times_;
};

TEST_F(FailedSave, IsNotBlamedOnAnotherRunWithoutItsManifest) {
  const auto publish = [&](int times) {
    Contested storage{place(), times};
    Manifest manifest;
    manifest.run.step = 4;
    manifest.world_size = 1;
    manifest.starts = {"0123456789ab"};
    return Snapshots{storage}.try_commit(manifest);
  };
  EXPECT_THROW(publish(1000), Error);
  EXPECT_EQ(publish(2), std::nullopt);
  EXPECT_EQ(steps(), std::vector<std::int64_t>{4});
  Folder{place()}.write(Snapshots::folder_of(4) + Snapshots::kManifest, std::array{bytes_of("{")});
  try {
    publish(0);
    FAIL() << "a damaged manifest was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), HasSubstr("manifest.json is there already and damaged"));
  }
}

class FailedSaveOn : public FailedSave, public testing::WithParamInterface<std::pair<int, SnapshotWriting>> {};
INSTANTIATE_TEST_SUITE_P(RanksAndWriting, FailedSaveOn,
                         testing::Values(std::pair{0, SnapshotWriting::foreground},
                                         std::pair{1, SnapshotWriting::foreground},
                                         std::pair{0, SnapshotWriting::background},
                                         std::pair{1, SnapshotWriting::background}));

TEST_P(FailedSaveOn, AtAnyOperationIsAWarningAndTheNextOneIsAsItWouldHaveBeen) {
  const auto [rank, writing] = GetParam();
  train<FSDP>(2, going_on(writing));
  const auto expected = snapshot();
  int failed = 0;
  for (int operation = 1; operation < 200; operation += operation < 20 ? 1 : 17) {
    forget();
    auto options = going_on(writing);
    options.failpoint = full_disk_at(operation);
    options.failing_rank = rank;
    testing::internal::CaptureStderr();
    try {
      train<FSDP>(2, options);
    } catch (const Error& error) {
      EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("goes on")));
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_THAT(error.what(), HasSubstr("no snapshot can be written to"))
          << "a run may end only if its start fails, operation " << operation;
      continue;
    }
    const auto told = testing::internal::GetCapturedStderr();
    expect_same_bits(snapshot(), expected);
    expect_whole();
    if (told.find("goes on; failed snapshots of this run: 1;") == std::string::npos) {
      EXPECT_THAT(steps(), testing::ElementsAre(6, 4, 2)) << "operation " << operation << ": " << told;
      continue;
    }
    ++failed;
    EXPECT_THAT(told, HasSubstr("No space left on device")) << "operation " << operation;
  }
  EXPECT_GT(failed, 3);
}

TEST_F(FailedSave, OfTheLastStepIsTriedAgainAndThenAnError) {
  auto options = going_on();
  options.max_steps = 2;
  options.failpoint = full_disk_at(3);
  options.failing_rank = 1;
  testing::internal::CaptureStderr();
  train<FSDP>(2, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the snapshot of step 2 failed"));
  EXPECT_THAT(steps(), testing::ElementsAre(2));
  forget();
  options.save_every = 0;
  try {
    train<FSDP>(2, options);
    FAIL() << "the last snapshot was lost without an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), HasSubstr("no snapshot of step 2 was written"));
  }
}

TEST_F(FailedSave, OfThePublishingRankRemovesItsFiles) {
  auto options = going_on();
  options.failpoint = "snapshot.before_commit:throw";
  EXPECT_THROW(train<FSDP>(2, options), Error) << "the run must fail if its last snapshot cannot be written";
  EXPECT_TRUE(steps().empty());
  for (const std::int64_t step : {2, 4})
    EXPECT_FALSE(std::filesystem::exists(place() / Snapshots::folder_of(step))) << step;
}

TEST_F(FailedSave, DoesNotHideTheNumberThatEndedTheRun) {
  auto options = going_on(SnapshotWriting::background);
  options.snapshot.on_failure = SnapshotFailure::stop;
  options.failpoint = "snapshot.before_commit:throw";
  testing::internal::CaptureStderr();
  try {
    train<FSDP, GoingBlank>(2, options);
    ADD_FAILURE() << "the training continued without targets";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::numerics) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("the batches of this step count no targets"));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("snapshot.before_commit was told to throw"));
  EXPECT_TRUE(steps().empty());
}

TEST_F(FailedSave, IsNotNamedAsTheNewestSnapshotByTheErrorThatEndsTheRun) {
  const auto reason = [&](const RunOptions& options) -> std::string {
    testing::internal::CaptureStderr();
    try {
      train<FSDP, GoingBlank>(2, options);
    } catch (const Error& error) {
      testing::internal::GetCapturedStderr();
      return error.what();
    }
    return "the training continued without targets";
  };
  auto options = going_on(SnapshotWriting::background);
  EXPECT_THAT(reason(options), HasSubstr("; snapshots=the last one is of step 2"));
  EXPECT_THAT(steps(), testing::ElementsAre(2));
  forget();
  options.failpoint = "snapshot.before_commit:throw";
  EXPECT_THAT(reason(options), HasSubstr("; snapshots=none so far"));
  EXPECT_TRUE(steps().empty());
}

TEST_F(FailedSave, ForLackOfMemoryEndsWith7OrGoesOnAsConfiguredAndSoDoesALoad) {
  auto options = going_on();
  options.failpoint = "file.before_write:bad_alloc@1";
  options.failing_rank = 1;
  testing::internal::CaptureStderr();
  train<FSDP>(2, options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("rank 1: out of memory"));
  EXPECT_THAT(steps(), testing::ElementsAre(6, 4));
  forget();
  const auto expect_memory = [&](const char* says) {
    try {
      train<FSDP>(2, options);
      ADD_FAILURE() << "the training continued";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::memory) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  options.snapshot.on_failure = SnapshotFailure::stop;
  expect_memory("no snapshot of step 2 was written; older ones are as they were:\n  rank 1: out of memory");
  options.failing_rank = 0;
  options.failpoint = "snapshot.before_commit:bad_alloc";
  expect_memory("out of memory");
  options.failpoint.clear();
  options.max_steps = 2;
  train<FSDP>(2, options);
  options.max_steps = 4;
  options.failing_rank = 1;
  options.failpoint = "io:bad_alloc@1";
  expect_memory("out of memory");
  EXPECT_THAT(steps(), testing::ElementsAre(2));
}

TEST_F(FailedSave, StopsTheRunUnlessToldOtherwise) {
  auto options = going_on();
  options.snapshot.on_failure = SnapshotConfig{}.on_failure;
  options.failpoint = full_disk_at(3);
  options.failing_rank = 1;
  EXPECT_THROW(train<FSDP>(2, options), Error);
  EXPECT_TRUE(steps().empty());
}

}  // namespace
}  // namespace ddpxx::failed_save_test
