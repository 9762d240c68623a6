#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/state_slice.hpp>

#include "memory_storage.hpp"

namespace ddpxx::prune_test {
namespace {

using testing::ElementsAre;

class Prune : public testing::Test {
 protected:
  static std::string shard(const std::string& start) { return "rank-0-of-1." + start + ".safetensors"; }

  void save(std::int64_t step, const std::string& start) {
    Shard written{shard(start), {whole_slice("x", at::ones({2}))}};
    written.write(storage_, Snapshots::folder_of(step));
    Manifest manifest;
    manifest.run.step = step;
    manifest.starts = {start};
    add_reports(manifest, std::array{written.report()});
    EXPECT_FALSE(snapshots_.try_commit(manifest));
  }
  void leave(std::int64_t step, const std::string& file) {
    storage_.objects[Snapshots::folder_of(step) + file] = "half of it";
  }
  void set_aside(std::int64_t step) {
    for (const auto& stored : snapshots_.list())
      if (stored.step == step) snapshots_.set_aside(stored);
  }
  void make_of_another_version(std::int64_t step) {
    auto& text = storage_.objects.at(Snapshots::folder_of(step) + Snapshots::kManifest);
    text.replace(text.find("ddpxx snapshot 1"), 16, "ddpxx snapshot 9");
    text.resize(text.rfind(",\"crc32c\""));
    text += ",\"crc32c\":\"" + sums_text({crc32c(bytes_of(text))}) + "\"}\n";
  }
  bool has(std::int64_t step, const std::string& file) const {
    return storage_.objects.contains(Snapshots::folder_of(step) + file);
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> published;
    for (const auto& stored : snapshots_.list())
      if (stored.committed) published.push_back(stored.step);
    return published;
  }
  std::size_t manifests_read() {
    const auto reads = storage_.reads();
    storage_.forget_reads();
    return static_cast<std::size_t>(std::count_if(
        reads.begin(), reads.end(), [](const ReadRange& read) { return read.name.ends_with(Snapshots::kManifest); }));
  }

  const std::string kMine = "0123456789ab", kBefore = "111111111111", kYours = "ba9876543210";
  const std::vector<std::string> starts_{kBefore, kMine};
  const Snapshots::Owner whole_place_{.of_the_place = true, .starts = starts_};
  const Snapshots::Owner shared_place_{.of_the_place = false, .starts = starts_};
  MemoryStorage storage_;
  Snapshots snapshots_{storage_};
};

TEST_F(Prune, DoesNotCountWhatHasLostAFileSinceItWasRead) {
  for (const auto step : {2, 4, 6}) save(step, kMine);
  storage_.objects.erase(Snapshots::folder_of(6) + shard(kMine));
  snapshots_.prune({.last = 1}, whole_place_);
  EXPECT_THAT(steps(), ElementsAre(6, 4));
}

TEST_F(Prune, LeavesWhatTakesTooLongToTheNextTime) {
  using std::chrono::milliseconds;
  for (std::int64_t step = 1; step <= 20; ++step) save(step, kMine);
  storage_.pause_to_remove = milliseconds{40};  // two objects for each snapshot
  snapshots_.prune({.last = 1}, shared_place_, milliseconds{500});
  const auto left = steps().size();
  EXPECT_GT(left, 1U);
  EXPECT_LT(left, 20U);
  storage_.pause_to_remove = milliseconds{0};
  snapshots_.prune({.last = 1}, shared_place_);
  EXPECT_THAT(steps(), ElementsAre(20));
  EXPECT_EQ(storage_.objects.size(), 2U) << "files of removed snapshots were left";
}

TEST_F(Prune, ReadsNoMoreManifestsThanItHasTimeFor) {
  using std::chrono::milliseconds;
  for (std::int64_t step = 1; step <= 20; ++step) save(step, kMine);
  const Snapshots resumed{storage_};  // has read none of them
  storage_.pause_to_read_text = milliseconds{20};
  storage_.forget_reads();
  resumed.prune({.last = 1}, whole_place_, milliseconds{100});
  EXPECT_EQ(steps().size(), 20U) << "what is kept is known only when all are read";
  EXPECT_LT(storage_.reads().size(), 15U);
  storage_.pause_to_read_text = milliseconds{0};
  resumed.prune({.last = 1}, whole_place_);
  EXPECT_THAT(steps(), ElementsAre(20));
}

TEST_F(Prune, LetsAReaderWhoseManifestIsGoneTakeTheNewerOne) {
  const auto replace = [&](std::int64_t step) {
    storage_.before_next_text = [&, step] {
      save(step, kMine);
      snapshots_.prune({.last = 1}, shared_place_);
    };
  };
  save(2, kMine);
  replace(4);
  EXPECT_EQ(load_snapshot(storage_).value().run.step, 4);
  replace(6);
  EXPECT_EQ(choose_snapshot(storage_, {}).run.step, 6);
}

TEST_F(Prune, LetsAReaderThatHasListedARemovedSnapshotTakeTheNewerOne) {
  save(2, kMine);
  storage_.before_next_read = [&] {
    save(4, kMine);
    snapshots_.prune({.last = 1}, shared_place_);
  };
  const auto loaded = load_snapshot(storage_);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->run.step, 4);
  storage_.before_next_read = [&] { storage_.objects.erase(Snapshots::folder_of(4) + shard(kMine)); };
  EXPECT_THROW(load_snapshot(storage_), Error) << "a file that is missing beside its manifest is damage";
}

TEST_F(Prune, LeavesWhatWasSetAsideUntilAllThatIsKeptIsNewer) {
  for (const auto& owner : {whole_place_, shared_place_}) {
    storage_.objects.clear();
    save(2, kMine);
    save(4, kMine);
    save(5, kYours);
    for (const auto step : {4, 5}) {
      snapshots_.write_attempts(snapshots_.list().front(), 1);
      set_aside(step);
    }
    save(6, kMine);
    snapshots_.prune({.last = 2}, owner);
    EXPECT_TRUE(has(4, Snapshots::kRejected)) << "an older snapshot than the rejected one is kept";
    EXPECT_TRUE(has(4, shard(kMine))) << "a rejected snapshot must keep its files";
    save(8, kMine);
    snapshots_.prune({.last = 2}, owner);
    EXPECT_TRUE(storage_.list(Snapshots::folder_of(4)).empty());
    EXPECT_EQ(storage_.list(Snapshots::folder_of(5)).empty(), owner.of_the_place)
        << "the snapshot of another run may be removed by the owner of the place only";
  }
}

TEST_F(Prune, RemovesWhatAKilledSaveHasLeftBesideTheOneThatTookItsPlace) {
  for (const auto& owner : {whole_place_, shared_place_}) {
    storage_.objects.clear();
    for (const auto step : {4, 6}) {
      save(step, kMine);
      leave(step, shard(kBefore));
      leave(step, shard(kYours));
      leave(step, "notes.txt");
    }
    snapshots_.prune({.last = 0}, owner);
    EXPECT_TRUE(has(4, shard(kMine)));
    EXPECT_TRUE(has(4, "notes.txt")) << "a file that belongs to no run must stay";
    EXPECT_FALSE(has(4, shard(kBefore)));
    EXPECT_EQ(has(4, shard(kYours)), !owner.of_the_place);
    EXPECT_TRUE(has(6, shard(kBefore))) << "a file of the newest step may still be written";
  }
}

TEST_F(Prune, RemovesUnfinishedFilesOfItsStartsAndLaterThoseOfUnknownStarts) {
  save(2, kMine);
  leave(3, shard(kBefore));
  leave(4, shard(kYours));
  for (const auto step : {6, 8}) save(step, kMine);
  leave(10, shard(kMine));
  snapshots_.prune({.last = 3}, whole_place_);
  EXPECT_FALSE(has(3, shard(kBefore)));
  EXPECT_TRUE(has(4, shard(kYours))) << "the file may belong to a snapshot that has lost its manifest";
  EXPECT_TRUE(has(10, shard(kMine)));
  snapshots_.prune({.last = 1}, shared_place_);
  EXPECT_TRUE(has(4, shard(kYours)));
  snapshots_.prune({.last = 1}, whole_place_);
  EXPECT_FALSE(has(4, shard(kYours)));
}

TEST_F(Prune, LeavesWhatAnotherStartHasPutInThePlaceOfItsOwn) {
  for (const auto step : {2, 4}) save(step, kMine);
  set_aside(4);
  const Snapshots others{storage_};  // the other object does not see what this one commits
  Shard written{shard(kYours), {whole_slice("x", at::zeros({2}))}};
  written.write(storage_, Snapshots::folder_of(4));
  Manifest manifest;
  manifest.run.step = 4;
  manifest.starts = {kYours};
  add_reports(manifest, std::array{written.report()});
  EXPECT_FALSE(others.try_commit(manifest));
  for (const auto step : {6, 8}) save(step, kMine);
  snapshots_.prune({.last = 1}, shared_place_);
  EXPECT_THAT(steps(), ElementsAre(8, 4));
  EXPECT_TRUE(has(4, shard(kYours)));
}

TEST_F(Prune, LeavesFilesOfOtherStartsAndOfTheUser) {
  for (const auto& owner : {whole_place_, shared_place_}) {
    storage_.objects.clear();
    for (const auto step : {2, 4, 6}) save(step, kMine);
    set_aside(4);
    for (const auto step : {2, 4}) {
      leave(step, "eval.json");
      leave(step, shard(kBefore));
    }
    leave(2, Snapshots::kAttempts);
    leave(2, shard(kYours));
    leave(3, "eval.json");
    leave(3, Snapshots::kAttempts);
    save(8, kMine);
    for (int again = 0; again < 2; ++again) {  // the second time there is no manifest
      snapshots_.prune({.last = 1}, owner);
      EXPECT_THAT(steps(), ElementsAre(8));
      for (const auto step : {2, 3, 4}) EXPECT_TRUE(has(step, "eval.json")) << step;
    }
    EXPECT_EQ(has(2, shard(kYours)), !owner.of_the_place) << "another run may still be writing it";
    EXPECT_EQ(has(3, Snapshots::kAttempts), !owner.of_the_place);
    for (const auto& file : {shard(kMine), shard(kBefore), std::string{Snapshots::kRejected}})
      EXPECT_FALSE(has(4, file)) << file;
    for (const auto& file : {shard(kMine), shard(kBefore), std::string{Snapshots::kAttempts}})
      EXPECT_FALSE(has(2, file)) << file;
  }
}

TEST_F(Prune, KeepsAManifestThatItCannotReadAndRemovesOthers) {
  for (const auto step : {2, 4, 6, 8}) save(step, kMine);
  make_of_another_version(4);
  const Snapshots of_the_next_start{storage_};
  of_the_next_start.prune({.last = 2}, whole_place_);
  EXPECT_THAT(steps(), ElementsAre(8, 6, 4));
  EXPECT_TRUE(has(4, shard(kMine)));
  make_of_another_version(8);
  const Snapshots of_a_third_start{storage_};
  EXPECT_THROW(of_a_third_start.prune({.last = 1}, whole_place_), Error)
      << "without the newest step it is unknown whether the storage answers at all";
  EXPECT_THAT(steps(), ElementsAre(8, 6, 4));
}

TEST_F(Prune, ReadsNoManifestTwice) {
  constexpr int kSaves = 20;
  for (const Retention& retention : {Retention{.last = 1, .every_steps = 1}, Retention{.last = 0}}) {
    storage_.objects.clear();
    for (int step = 1; step <= kSaves; ++step) save(step, kMine);
    const Snapshots of_the_next_start{storage_};
    manifests_read();
    of_the_next_start.prune(retention, whole_place_);
    EXPECT_EQ(manifests_read(), retention.last == 0 ? 1U : static_cast<std::size_t>(kSaves));
    of_the_next_start.prune(retention, whole_place_);
    EXPECT_EQ(manifests_read(), 0U);
    EXPECT_THAT(steps(), testing::SizeIs(kSaves));
  }
}

}  // namespace
}  // namespace ddpxx::prune_test
