#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/unix_time.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::checkpoint_test {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public TrainingRun {};

TEST_F(Checkpoint, WrittenByAnyStrategyAtAnyWorldSizeLoadsIntoAnyOther) {
  train<DDP>(1, {.max_steps = 12});
  const auto expected_losses = losses();
  const auto expected = snapshot();
  forget();
  train<DDP>(4, {.max_steps = 2});
  train<ZeRO2>(2, {.max_steps = 4});
  train<FSDP>(3, {.max_steps = 6}, {.unit_bytes = 0});
  train<DDP>(1, {.max_steps = 7});
  train<HSDP>(4, {.max_steps = 9}, {.shard_size = 2, .fsdp = {}});
  train<ZeRO1>(3, {.max_steps = 11});
  train<FSDP>(2, {.max_steps = 12});
  const auto got_losses = losses();
  ASSERT_EQ(got_losses.size(), expected_losses.size());
  for (std::size_t i = 0; i < got_losses.size(); ++i)
    EXPECT_NEAR(got_losses[i], expected_losses[i], 1e-5 * expected_losses[i]) << "step " << i + 1;
  const auto got = snapshot();
  EXPECT_EQ(got.run.position, expected.run.position);
  for (const auto& [name, tensor] : expected.tensors)
    if (!name.starts_with("random.")) {
      EXPECT_TRUE(at::allclose(got.tensors.at(name), tensor, 1e-4, 1e-5)) << name;
    }
}

TEST_F(Checkpoint, EveryElementIsWrittenByOneRank) {
  train<HSDP>(4, {.max_steps = 1}, {.shard_size = 2, .fsdp = {}});
  Folder storage{place()};
  const Snapshots snapshots{storage};
  const auto manifest = snapshots.read(snapshots.list().front()).manifest.value();
  std::uint64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.bytes;
  std::int64_t numbers = 0;
  for (const auto& [name, tensor] : manifest.tensors)
    numbers += tensor.numel() * static_cast<std::int64_t>(at::elementSize(tensor.dtype));
  ASSERT_EQ(manifest.files.size(), 4u);
  for (const auto& file : manifest.files) EXPECT_GT(file.bytes, bytes / 8) << "each rank must write its share";
  EXPECT_LT(bytes, static_cast<std::uint64_t>(numbers) + 4 * 16384) << "the files may only add headers to the numbers";
}

class KilledCheckpoint : public Checkpoint, public testing::WithParamInterface<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(
    EveryFailpoint, KilledCheckpoint,
    testing::Values(std::pair{"checkpoint.before_shard:kill@2", 1}, std::pair{"file.before_write:kill@2", 1},
                    std::pair{"file.after_publish:kill@2", 1}, std::pair{"checkpoint.after_shard:kill@2", 0},
                    std::pair{"snapshot.before_commit:kill@2", 0}, std::pair{"snapshot.after_commit:kill@2", 0},
                    std::pair{"snapshot.before_remove:kill", 0}, std::pair{"snapshot.after_remove_manifest:kill", 0}));

TEST_P(KilledCheckpoint, ResumesToTheBitsOfAnUndisturbedRun) {
  const RunOptions plain{.max_steps = 7, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 1}};
  train<FSDP>(2, plain);
  const auto expected = snapshot();
  forget();
  auto killed = plain;
  std::tie(killed.failpoint, killed.failing_rank) = GetParam();
  EXPECT_THROW(train<FSDP>(2, killed), Error);
  const bool before = killed.failpoint.find("_shard") != std::string::npos || killed.failpoint.starts_with("file.") ||
                      killed.failpoint.starts_with("snapshot.before_commit");
  EXPECT_EQ(steps().front(), before ? 2 : 4);
  EXPECT_EQ(snapshot().run.step, before ? 2 : 4) << "the newest snapshot must be complete";
  train<FSDP>(2, plain);
  expect_same_bits(snapshot(), expected);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator{place()}) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 4u) << "expected two shards, the manifest and the lock, and no files of the killed run";
}

TEST_F(Checkpoint, DamagedIsSetAsideAndTheOneBeforeIsTaken) {
  train<DDP>(2, {.max_steps = 6, .save_every = 2, .snapshot = {.keep_last = 0}});
  const auto expected = snapshot();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{6, 4, 2}));
  for (const auto& entry : fs::directory_iterator{place() / "step-00000006"})
    if (entry.path().filename().string().starts_with("rank-1")) {
      std::fstream file{entry.path(), std::ios::in | std::ios::out | std::ios::binary};
      file.seekp(-5, std::ios::end);
      file.put('\x55');
    }
  train<DDP>(2, {.max_steps = 6, .save_every = 2, .snapshot = {.keep_last = 0}});
  expect_same_bits(snapshot(), expected);
  EXPECT_TRUE(fs::exists(place() / "step-00000006" / "manifest.rejected.json"));
}

TEST_F(Checkpoint, ThatHasLostItsManifestIsNamedAtTheStart) {
  const RunOptions options{.max_steps = 6, .save_every = 2, .snapshot = {.keep_last = 0}};
  train<DDP>(1, options);
  fs::remove(place() / "step-00000006" / "manifest.json");
  testing::internal::CaptureStderr();
  train<DDP>(1, options);
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, testing::HasSubstr("step-00000006/ has no manifest.json and is not a snapshot"));
  EXPECT_THAT(told, testing::HasSubstr("resumed at step 4"));
}

TEST_F(Checkpoint, OneRankThatCannotWriteIsTheErrorOfAllAndNoSnapshot) {
  const auto run = [&](const char* failpoint) {
    train<DDP>(2, {.max_steps = 4, .save_every = 2, .failpoint = failpoint, .failing_rank = 1});
  };
  fs::create_directories(place() / "step-00000002");  // otherwise the first rank to save would make it
  try {
    run("io:errno:28@3");  // no space is left for the third operation: create, write, write
    FAIL() << "the disk was full";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    for (const char* rank : {"rank 0: ", "rank 1: "})
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string{rank} + "no snapshot of step 2 was written; older ones "
                                                                       "are as they were:\n  rank 1: cannot write"));
    EXPECT_THAT(error.what(), testing::HasSubstr("No space left on device"));
  }
  for (const auto& entry : fs::recursive_directory_iterator{place()})
    EXPECT_EQ(entry.path().filename(), ".owner") << "the files that other ranks have written must be removed";
}

TEST_F(Checkpoint, InTheBackgroundHoldsTheValuesOfItsStep) {
  const RunOptions foreground{.max_steps = 6, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 0}};
  train<FSDP>(2, foreground);
  std::vector<Snapshot> expected;
  Folder storage{place()};
  for (const auto& stored : Snapshots{storage}.list())
    expected.push_back(read_snapshot(storage, *Snapshots{storage}.read(stored).manifest));
  forget();
  auto background = foreground;
  background.snapshot.writing = SnapshotWriting::background;
  background.failpoint = "file.before_write:sleep:30";  // training continues meanwhile
  train<FSDP>(2, background);
  const auto stored = Snapshots{storage}.list();
  ASSERT_EQ(stored.size(), expected.size());
  for (std::size_t i = 0; i < stored.size(); ++i)
    expect_same_bits(read_snapshot(storage, *Snapshots{storage}.read(stored[i]).manifest), expected[i]);
}

// After the save each batch takes long, so that the run would go on for 10 s while the files are written.
TEST_F(Checkpoint, InTheBackgroundIsPublishedWhileTrainingGoesOn) {
  const auto text = error_of([&] {
    train_watched<DDP>(2,
                       {.max_steps = 199,
                        .save_every = 100,
                        .snapshot = {.writing = SnapshotWriting::background},
                        .failpoint = "snapshot.after_commit:kill"},
                       [batches = 0]() mutable {
                         if (++batches > 100) std::this_thread::sleep_for(std::chrono::milliseconds{100});
                       });
  });
  EXPECT_THAT(text, testing::HasSubstr("rank 0: ended by signal 9"));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{100}));
  EXPECT_LT(losses().size(), 195u) << "the snapshot must be published before the run ends";
}

TEST_F(Checkpoint, InTheBackgroundIsPublishedWithoutARankThatWaitsForIt) {
  train_watched<DDP>(2,
                     {.max_steps = 40,
                      .save_every = 20,
                      .snapshot = {.writing = SnapshotWriting::background, .keep_last = 0},
                      .failpoint = "snapshot.before_commit:sleep:3000@1"},
                     [] { std::this_thread::sleep_for(std::chrono::milliseconds{80}); });
  const auto saved = rows_with("snapshot");
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0]["step"], 20);
  EXPECT_GE(saved[0]["seconds"], 3.0);
  // The next save may wait for the end of a slow one, but training goes on meanwhile for a part of its time.
  EXPECT_LT(saved[0]["waited_seconds"], saved[0]["seconds"].get<double>() - 0.5);
  for (const auto& row : rows_with("loss"))
    if (row["step"] > 20) EXPECT_LT(row["step_ms"], 2800.0) << row["step"];
}

TEST_F(Checkpoint, IsToldOfWithTheTimeThatItTook) {
  testing::internal::CaptureStdout();
  train<DDP>(2, {.max_steps = 4, .save_every = 2, .failpoint = "file.before_write:sleep:300@2", .failing_rank = 1});
  const auto told = testing::internal::GetCapturedStdout();
  const auto saved = rows_with("snapshot");
  ASSERT_EQ(saved.size(), 2U);
  for (const std::size_t i : {0U, 1U}) {
    const auto step = 2 * static_cast<std::int64_t>(i + 1);
    const auto path = (place() / Snapshots::folder_of(step)).string();
    EXPECT_EQ(saved[i]["step"], step);
    EXPECT_EQ(saved[i]["snapshot"], path);
    EXPECT_THAT(told, testing::HasSubstr("step " + std::to_string(step) + "  snapshot " + path + " saved in "));
  }
  EXPECT_GE(saved[1]["seconds"], 0.3);
  EXPECT_GE(saved[1]["waited_seconds"], 0.3);
}

/// An event in step 5 that ends a rank while the snapshot of step 4 is being written.
class EndedWhileWriting : public Checkpoint,
                          public testing::WithParamInterface<std::pair<std::function<void()>, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Ends, EndedWhileWriting,
                         testing::Values(std::pair{[] { std::raise(SIGKILL); }, "ended by signal 9"},
                                         std::pair{[] { throw std::bad_alloc{}; }, "std::bad_alloc"}));

TEST_P(EndedWhileWriting, LeavesWholeSnapshotsAndGoesOnBitForBit) {
  RunOptions options{.max_steps = 7, .save_every = 2, .dropout = 0.2};
  options.snapshot.writing = SnapshotWriting::background;
  train<FSDP>(2, options);
  const auto expected = snapshot();
  forget();
  auto ended = options;
  ended.failpoint = "file.before_write:sleep:1000@2";
  ended.failing_rank = 1;
  try {
    train_watched<FSDP>(2, ended, [batches = 0]() mutable {
      if (++batches == 5) GetParam().first();
    });
    FAIL() << "the training continued";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().second));
  }
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(snapshot().run.step, 2) << "the newest snapshot must be complete";
  train<FSDP>(2, options);
  expect_same_bits(snapshot(), expected);
}

TEST_F(Checkpoint, WhosePlaceIsRemovedOrRenamedInMidRunIsMadeAgainByTheNextSave) {
  const RunOptions options{.max_steps = 6, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 0}};
  train<FSDP>(2, options);
  const auto expected = snapshot();
  const auto moved = place().string() + ".moved";
  const std::function<void()> operations[] = {[&] {
                                                std::error_code other_rank;
                                                fs::remove_all(place(), other_rank);
                                              },
                                              [&] {
                                                std::error_code other_rank;
                                                fs::rename(place(), moved, other_rank);
                                              }};
  for (const auto& operation : operations) {
    forget();
    train_watched<FSDP>(2, options, [&, batches = 0]() mutable {
      if (++batches == 3) operation();
    });
    EXPECT_EQ(steps(), (std::vector<std::int64_t>{6, 4}));
    expect_same_bits(snapshot(), expected);
  }
  EXPECT_EQ(load_snapshot(moved).value().run.step, 2);
}

TEST_F(Checkpoint, KnowsTheModelsOrderOfParametersAndWhichDecay) {
  train<FSDP>(2, {.max_steps = 1});
  Folder storage{place()};
  const Snapshots snapshots{storage};
  const auto manifest = snapshots.read(snapshots.list().front()).manifest.value();
  const GPT model{{.n_layer = 2, .n_head = 2, .n_embd = 16}, 11, 8};
  const auto named = model.named_parameters();
  ASSERT_EQ(manifest.run.parameters.size(), named.size());
  for (std::size_t i = 0; i < manifest.run.parameters.size(); ++i) {
    const auto& item = named[i];
    EXPECT_EQ(manifest.run.parameters[i].name, item.key());
    EXPECT_EQ(manifest.run.parameters[i].decays, model.decays(item.key(), item.value())) << item.key();
  }
  EXPECT_NEAR(static_cast<double>(manifest.written_at), static_cast<double>(unix_time()), 60.0);
}

TEST_F(Checkpoint, DueWhileOneIsWrittenIsLeftOutIfSoChosenButNeverTheLast) {
  train<DDP>(2, {.max_steps = 8,
                 .save_every = 2,
                 .snapshot = {.writing = SnapshotWriting::background, .busy = SnapshotBusy::skip, .keep_last = 0},
                 .failpoint = "file.before_write:sleep:400@2"});
  const auto saved = steps();
  EXPECT_EQ(saved.front(), 8);
  EXPECT_LT(saved.size(), 4u) << "at least one of the snapshots 8, 6, 4 and 2 must be skipped";
}

TEST_F(Checkpoint, DueWhileOneIsPublishedIsLeftOutAsWell) {
  train<DDP>(2, {.max_steps = 8,
                 .save_every = 1,  // a rank may then not have reported yet that it has written
                 .snapshot = {.writing = SnapshotWriting::background, .busy = SnapshotBusy::skip, .keep_last = 0},
                 .failpoint = "snapshot.before_commit:sleep:3000@1"});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{8, 1}));
}

TEST_F(Checkpoint, KeepsTheNewestTwoUnlessToldOtherwise) {
  train<DDP>(1, {.max_steps = 7, .save_every = 2});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{7, 6}));
}

TEST_F(Checkpoint, KeepsTheFirstOneOfEveryEpochAndTheOldestOfAnHour) {
  const RunOptions by_epochs{.max_steps = 14, .save_every = 2, .snapshot = {.keep_last = 1, .keep_every_epochs = 2}};
  train<DDP>(1, by_epochs);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{14, 8})) << "an epoch has four steps";
  forget();
  train<DDP>(1, {.max_steps = 14, .save_every = 2, .snapshot = {.keep_last = 1, .keep_every_time = 3600.0}});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{14, 2}));
}

TEST_F(Checkpoint, IsSavedByTheClockOfRankZeroOnAllRanks) {
  constexpr double kAtOnce = 1e-9, kNever = 1e9;
  train<DDP>(
      2,
      {.max_steps = 8, .snapshot = {.keep_last = 0}, .save_every_time = kAtOnce, .save_every_time_of_others = kNever});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{8, 6, 3}))
      << "a save starts two steps after the one in which it was due; the last step is always saved";
  forget();
  train<DDP>(
      2,
      {.max_steps = 8, .snapshot = {.keep_last = 0}, .save_every_time = kNever, .save_every_time_of_others = kAtOnce});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{8}));
}

TEST_F(Checkpoint, OfAPlaceInUseIsRefusedWithItsOwner) {
  Folder storage{place()};
  storage.prepare();
  storage.claim("somebody else on " + host_name());
  try {
    train<DDP>(2, {.max_steps = 1});
    FAIL() << "two programs write to one folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("is in use by somebody else"));
  }
}

}  // namespace
}  // namespace ddpxx::checkpoint_test
