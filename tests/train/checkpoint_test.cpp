#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGlobalBatch = 12;

/// Sample i is a short run of tokens that depends on i only.
struct Tokens {
  std::int64_t size() const { return 4 * kGlobalBatch; }
  Batch batch(std::span<const std::int64_t> indices) const {
    auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start * 7 + at::arange(9, at::kLong) * (start % 3 + 1)) % 11;
    return {ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), ids.size(0) * 8};
  }
};

struct RunOptions {
  std::int64_t max_steps = 0;
  std::int64_t save_every = 0;
  double dropout = 0.0;
  SnapshotConfig snapshot = {};
  std::string failpoint = {};  ///< Met by the rank below.
  int failing_rank = 0;
};

class Checkpoint : public testing::Test {
 protected:
  fs::path place() const { return folder_ / "run"; }

  /// Trains up to a step, going on from what is in `place()`; ranks share a global batch of one size in every world.
  template <class Strategy>
  void train(int world_size, const RunOptions& options, const typename Strategy::Config& strategy = {}) {
    spawn_ranks(world_size, [&](Group& group) {
      if (!options.failpoint.empty() && group.rank() == options.failing_rank)
        ::setenv("DDPXX_FAILPOINT", options.failpoint.c_str(), 1);
      using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;
      typename Train::Config config;
      config.batch_size = kGlobalBatch / group.size();
      config.strategy = strategy;
      config.training = {.max_steps = options.max_steps,
                         .max_epochs = 0,
                         .seed = 5,
                         .ema_decay = 0.9,
                         .save_dir = place().string(),
                         .save_every = options.save_every,
                         .metrics = (folder_ / "metrics.jsonl").string()};
      config.snapshot = options.snapshot;
      config.optimizer.learning_rate = 1e-2;
      at::manual_seed(3);
      const GPTConfig model{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = options.dropout};
      Train{group, std::make_shared<GPT>(model, 11, 8), std::make_shared<Tokens>(), config}.fit();
    });
  }

  std::vector<double> losses() const {
    std::map<std::int64_t, double> losses;
    std::ifstream file{folder_ / "metrics.jsonl"};
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      losses[row["step"]] = row["loss"];
    }
    std::vector<double> values;
    for (const auto& [step, loss] : losses) values.push_back(loss);
    return values;
  }
  Snapshot snapshot() const { return load_snapshot(place()).value(); }
  std::vector<std::int64_t> steps() const {
    Folder storage{place()};
    std::vector<std::int64_t> steps;
    for (const auto& stored : Snapshots{storage}.list())
      if (stored.published) steps.push_back(stored.step);
    return steps;
  }
  void forget() {
    fs::remove_all(place());
    fs::remove(folder_ / "metrics.jsonl");
  }

 private:
  TemporaryFolder folder_;
};

void expect_same_bits(const Snapshot& got, const Snapshot& expected) {
  EXPECT_EQ(got.step, expected.step);
  EXPECT_EQ(got.position, expected.position);
  ASSERT_EQ(got.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(at::equal(got.tensors.at(name), tensor)) << name;
}

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
  EXPECT_EQ(got.position, expected.position);
  for (const auto& [name, tensor] : expected.tensors)
    if (!name.starts_with("random.")) {
      EXPECT_TRUE(at::allclose(got.tensors.at(name), tensor, 1e-3, 1e-4)) << name;
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
  for (const auto& file : manifest.files) EXPECT_GT(file.bytes, bytes / 8) << "the ranks share the work";
  EXPECT_LT(bytes, static_cast<std::uint64_t>(numbers) + 4 * 16384) << "but for the headers";
}

class KilledCheckpoint : public Checkpoint, public testing::WithParamInterface<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(
    EveryFailpoint, KilledCheckpoint,
    testing::Values(std::pair{"checkpoint.before_shard:kill@2", 1}, std::pair{"file.before_write:kill@2", 1},
                    std::pair{"file.after_publish:kill@2", 1}, std::pair{"checkpoint.after_shard:kill@2", 0},
                    std::pair{"snapshot.before_publish:kill@2", 0}, std::pair{"snapshot.after_publish:kill@2", 0},
                    std::pair{"snapshot.before_remove:kill", 0}, std::pair{"snapshot.after_remove_manifest:kill", 0}));

TEST_P(KilledCheckpoint, GoesOnBitForBitAsIfNothingHadBeen) {
  const RunOptions plain{.max_steps = 7, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 1}};
  train<FSDP>(2, plain);
  const auto expected = snapshot();
  forget();
  auto killed = plain;
  std::tie(killed.failpoint, killed.failing_rank) = GetParam();
  EXPECT_THROW(train<FSDP>(2, killed), Error);
  const bool before = killed.failpoint.find("_shard") != std::string::npos || killed.failpoint.starts_with("file.") ||
                      killed.failpoint.starts_with("snapshot.before_publish");
  EXPECT_EQ(steps().front(), before ? 2 : 4);
  EXPECT_EQ(snapshot().step, before ? 2 : 4) << "and it is whole";
  train<FSDP>(2, plain);
  expect_same_bits(snapshot(), expected);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator{place()}) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 4u) << "two shards, the manifest and the lock: what the killed run left behind is gone";
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

TEST_F(Checkpoint, OneRankThatCannotWriteIsTheErrorOfAllAndNoSnapshot) {
  const auto run = [&](const char* failpoint) {
    train<DDP>(2, {.max_steps = 4, .save_every = 2, .failpoint = failpoint, .failing_rank = 1});
  };
  fs::create_directories(place() / "step-00000002");  // whoever comes first would make it
  try {
    run("io:errno:28@3");  // no space left, for the third operation: create, write, write
    FAIL() << "the disk was full";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    for (const char* rank : {"rank 0: ", "rank 1: "})
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string{rank} + "no snapshot of step 2 was written; older ones "
                                                                       "are as they were:\n  rank 1: cannot write"));
    EXPECT_THAT(error.what(), testing::HasSubstr("No space left on device"));
  }
  for (const auto& entry : fs::recursive_directory_iterator{place()})
    EXPECT_EQ(entry.path().filename(), ".owner") << "what the others have written is removed";
}

TEST_F(Checkpoint, InTheBackgroundHoldsTheStepItIsOf) {
  const RunOptions foreground{.max_steps = 6, .save_every = 2, .dropout = 0.2, .snapshot = {.keep_last = 0}};
  train<FSDP>(2, foreground);
  std::vector<Snapshot> expected;
  Folder storage{place()};
  for (const auto& stored : Snapshots{storage}.list())
    expected.push_back(read_snapshot(storage, *Snapshots{storage}.read(stored).manifest));
  forget();
  auto background = foreground;
  background.snapshot.writing = SnapshotWriting::background;
  background.failpoint = "file.before_write:sleep:30";  // training goes on meanwhile
  train<FSDP>(2, background);
  const auto stored = Snapshots{storage}.list();
  ASSERT_EQ(stored.size(), expected.size());
  for (std::size_t i = 0; i < stored.size(); ++i)
    expect_same_bits(read_snapshot(storage, *Snapshots{storage}.read(stored[i]).manifest), expected[i]);
}

TEST_F(Checkpoint, InTheBackgroundIsPublishedWhileTrainingGoesOn) {
  EXPECT_THROW(train<DDP>(2, {.max_steps = 250,
                              .save_every = 150,
                              .snapshot = {.writing = SnapshotWriting::background},
                              .failpoint = "snapshot.after_publish:kill"}),
               Error);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{150}));
  EXPECT_LT(losses().size(), 245u) << "at the end of the run it would be published in any case";
}

TEST_F(Checkpoint, DueWhileOneIsWrittenIsLeftOutIfSoChosenButNeverTheLast) {
  train<DDP>(2, {.max_steps = 8,
                 .save_every = 2,
                 .snapshot = {.writing = SnapshotWriting::background, .busy = SnapshotBusy::skip, .keep_last = 0},
                 .failpoint = "file.before_write:sleep:400@2"});
  const auto saved = steps();
  EXPECT_EQ(saved.front(), 8);
  EXPECT_LT(saved.size(), 4u) << "8, 6, 4 and 2 were due";
}

TEST_F(Checkpoint, KeepsTheNewestTwoUnlessToldOtherwise) {
  train<DDP>(1, {.max_steps = 7, .save_every = 2});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{7, 6}));
}

TEST_F(Checkpoint, OfAPlaceInUseIsRefusedWithItsOwner) {
  Folder storage{place()};
  storage.prepare();
  storage.claim("somebody else");
  try {
    train<DDP>(2, {.max_steps = 1});
    FAIL() << "two programs write to one place";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("is in use by somebody else"));
  }
}

}  // namespace
}  // namespace ddpxx
