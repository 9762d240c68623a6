// A program passes its own storage to SnapshotSaver and SnapshotLoader.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/snapshot_loader.hpp>
#include <ddpxx/train/snapshot_saver.hpp>

#include "../error_of.hpp"
#include "../snapshot/memory_storage.hpp"

namespace ddpxx::own_storage_test {
namespace {

using testing::HasSubstr;

/// One rank of a run. The state is one tensor of 64 values, of which each rank holds a piece.
class RankOfRun {
 public:
  RankOfRun(const Group& group, std::shared_ptr<Storage> storage)
      : group_{&group},
        arena_{{{"weight", at::zeros({64}), 0}},
               {.gradients = Gradients::none, .pieces = group.size(), .piece = group.rank()}},
        history_{std::make_shared<SnapshotHistory>(std::move(storage), group)} {}

  at::Tensor values() const { return arena_.segments().front().master; }

  std::optional<LoadedRun> load(const Settings& settings = {}) {
    return SnapshotLoader{history_, 2, *group_, at::kCPU}.load(settings, state(), 0);
  }

  /// Saves a state in which all values equal `step`.
  void save(std::int64_t step, SnapshotWriting writing = SnapshotWriting::foreground, std::int64_t keep_last = 0) {
    SnapshotSaver saver{
        history_, {.writing = writing, .on_failure = on_failure, .keep_last = keep_last}, *group_, at::kCPU, on_saved};
    values().fill_(static_cast<double>(step));
    saver.save({.step = step, .epoch = 1, .settings = {{"width", "32"}}, .tokens = 100 * step}, state(), Copies::equal);
    values().fill_(-1);  // changes the values as training would while the snapshot is written
    saver.finish();
    left_of_first_ = history_->storage().list(Snapshots::folder_of(1)).size();
  }
  /// The number of objects of step 1 when the last save returned on this rank.
  std::size_t left_of_first() const { return left_of_first_; }
  bool is_rank_zero() const { return group_->rank() == 0; }

  std::function<void(const SnapshotSaved&)> on_saved;
  SnapshotFailure on_failure = SnapshotFailure::stop;

 private:
  RunState state() const { return {{values_part(arena_)}, {}}; }

  const Group* group_;
  Arena arena_;
  std::shared_ptr<SnapshotHistory> history_;
  std::size_t left_of_first_ = 0;
};

class OwnStorage : public testing::TestWithParam<SnapshotWriting> {
 protected:
  /// Runs two ranks that share one storage, which is a map in memory.
  void on_two_ranks(const std::function<void(RankOfRun&)>& body) const {
    spawn_ranks(2,
                [&](Group& group) {
                  RankOfRun run{group, storage_};
                  body(run);
                },
                {.ranks = Ranks::threads});
  }

  std::shared_ptr<MemoryStorage> storage_ = std::make_shared<MemoryStorage>();
};
INSTANTIATE_TEST_SUITE_P(Writing, OwnStorage,
                         testing::Values(SnapshotWriting::foreground, SnapshotWriting::background));

TEST_P(OwnStorage, KeepsWhatTheSaverWritesAndGivesItToTheLoader) {
  on_two_ranks([](RankOfRun& run) {
    EXPECT_FALSE(run.load()) << "an empty storage has no snapshot";
    run.save(3, GetParam());
  });
  EXPECT_TRUE(storage_->objects.contains(Snapshots::folder_of(3) + Snapshots::kManifest));
  EXPECT_EQ(storage_->objects.size(), 3u) << "expected the files of two ranks and the manifest";
  on_two_ranks([](RankOfRun& run) {
    const auto loaded = run.load();
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->info.step, 3);
    EXPECT_EQ(loaded->info.epoch, 1);
    EXPECT_EQ(loaded->info.tokens, 300);
    EXPECT_TRUE(run.values().eq(3).all().item<bool>());
  });
}

TEST_P(OwnStorage, EndsAllRanksWhereTheReportOfASnapshotFails) {
  on_two_ranks([](RankOfRun& run) {
    run.on_failure = SnapshotFailure::go_on;  // which is for snapshots that are not complete
    run.on_saved = [](const SnapshotSaved&) { throw Error{Errc::storage, "there is no room for a copy"}; };
    EXPECT_THAT(error_of([&] { run.save(1, GetParam()); }), HasSubstr("there is no room for a copy"));
    run.on_saved = {};
    run.save(2, GetParam());
  });
  EXPECT_TRUE(storage_->objects.contains(Snapshots::folder_of(1) + Snapshots::kManifest)) << "it was complete before";
}

TEST_P(OwnStorage, LosesOldSnapshotsAfterAllRanksKnowOfTheNewOne) {
  std::promise<void> other_rank_has_saved;
  const auto has_saved = other_rank_has_saved.get_future().share();
  on_two_ranks([&](RankOfRun& run) {
    run.save(1, GetParam());
    if (run.is_rank_zero()) storage_->before_next_remove = [&] { has_saved.wait_for(std::chrono::seconds{30}); };
    run.save(2, GetParam(), 1);
    if (!run.is_rank_zero()) {
      EXPECT_EQ(run.left_of_first(), 3U) << "this rank has waited until rank 0 had removed the first snapshot";
      other_rank_has_saved.set_value();
    }
  });
  EXPECT_TRUE(storage_->list(Snapshots::folder_of(1)).empty());
  EXPECT_EQ(storage_->objects.size(), 3U);
}

TEST_P(OwnStorage, GivesTheSnapshotBeforeOneThatItHasDamaged) {
  on_two_ranks([](RankOfRun& run) {
    for (const auto step : {3, 5}) run.save(step, GetParam());
  });
  for (auto& [name, content] : storage_->objects)
    if (name.starts_with(Snapshots::folder_of(5)) && name.ends_with(".safetensors")) content.back() ^= 1;
  testing::internal::CaptureStderr();
  on_two_ranks([](RankOfRun& run) {
    const auto loaded = run.load();
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->info.step, 3);
    EXPECT_TRUE(run.values().eq(3).all().item<bool>());
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("trying the one of step 3"));
  EXPECT_TRUE(storage_->objects.contains(Snapshots::folder_of(5) + Snapshots::kRejected));
}

TEST_P(OwnStorage, HoldsNoAttemptToLoadOnceAnyRankKnowsThatTheRunIsAnother) {
  on_two_ranks([](RankOfRun& run) { run.save(3, GetParam()); });
  const Settings others{{.path = "width", .value = "64", .resume = Resume::must_match}};
  storage_->pause_to_remove = std::chrono::milliseconds{300};
  on_two_ranks([&](RankOfRun& run) {
    EXPECT_THAT(error_of([&] { run.load(others); }), HasSubstr("width: 32 in the snapshot, 64 now"));
    EXPECT_FALSE(storage_->read_text(Snapshots::folder_of(3) + Snapshots::kAttempts, 100))
        << "a launcher that ended rank 0 now would leave the attempt, rank " << (run.is_rank_zero() ? 0 : 1);
  });
}

}  // namespace
}  // namespace ddpxx::own_storage_test
