#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/snapshot.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

namespace fs = std::filesystem;

Snapshot snapshot_of(std::int64_t step) {
  Snapshot snapshot{.step = step, .epoch = 2, .position = 48, .world_size = 3, .settings = {}, .tensors = {}};
  snapshot.settings = {{"training.seed", "5"}, {"data.path", "\"a \\\"quoted\\\" name\""}};
  snapshot.tensors.emplace("model.weight", at::full({3, 4}, static_cast<double>(step)));
  snapshot.tensors.emplace("random.0", at::arange(16, at::kByte));
  return snapshot;
}

void expect_equal(const Snapshot& got, const Snapshot& expected) {
  EXPECT_EQ(got.step, expected.step);
  EXPECT_EQ(got.epoch, expected.epoch);
  EXPECT_EQ(got.position, expected.position);
  EXPECT_EQ(got.world_size, expected.world_size);
  ASSERT_EQ(got.settings.size(), expected.settings.size());
  for (std::size_t i = 0; i < got.settings.size(); ++i) {
    EXPECT_EQ(got.settings[i].path, expected.settings[i].path);
    EXPECT_EQ(got.settings[i].value, expected.settings[i].value);
  }
  ASSERT_EQ(got.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(at::equal(got.tensors.at(name), tensor)) << name;
}

TEST(Snapshot, ComesBackAsItWasSaved) {
  const TemporaryFolder folder;
  save_snapshot(folder / "deep" / "er", snapshot_of(7));
  const auto loaded = load_snapshot(folder / "deep" / "er");
  ASSERT_TRUE(loaded);
  expect_equal(*loaded, snapshot_of(7));
}

TEST(Snapshot, IsNoneWhereNoneWasSaved) {
  const TemporaryFolder folder;
  EXPECT_FALSE(load_snapshot(folder.path()));
  EXPECT_FALSE(load_snapshot(folder / "no such folder"));
}

TEST(Snapshot, AFileThatIsNotOneIsAnErrorAndNoFreshStart) {
  const TemporaryFolder folder;
  folder.file("snapshot.safetensors", "rubbish");
  EXPECT_THROW(load_snapshot(folder.path()), Error);
  write_safetensors(snapshot_path(folder.path()), {{"x", at::ones({2})}}, {});
  try {
    load_snapshot(folder.path());
    FAIL() << "a foreign file was taken for a snapshot";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("not a snapshot of a run"));
  }
}

class KilledSave : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(EveryFailpoint, KilledSave,
                         testing::Values("file.before_write", "file.after_write", "file.after_fsync",
                                         "file.after_rename"));

TEST_P(KilledSave, LeavesTheOldOneOrTheNewOneWhole) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("DDPXX_FAILPOINT", (std::string{GetParam()} + ":kill").c_str(), 1);
    save_snapshot(folder.path(), snapshot_of(2));
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the failpoint was not met";
  const auto loaded = load_snapshot(folder.path());
  ASSERT_TRUE(loaded);
  expect_equal(*loaded, snapshot_of(std::string{GetParam()} == "file.after_rename" ? 2 : 1));
}

TEST(Snapshot, AFullDiskIsAnErrorAndTheOldOneStays) {
  // A file system that holds one snapshot and not two.
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit limit{.rlim_cur = 128, .rlim_max = 128};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save_snapshot(folder.path(), snapshot_of(2));
    } catch (const Error& error) {
      std::_Exit(static_cast<int>(error.code()));
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Errc::storage));
  expect_equal(load_snapshot(folder.path()).value(), snapshot_of(1));
  EXPECT_EQ(std::distance(fs::directory_iterator{folder.path()}, {}), 1) << "nothing half-written is left behind";
}

}  // namespace
}  // namespace ddpxx
