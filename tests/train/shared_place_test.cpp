// Ranks on several machines save at one place. The machines are processes whose file systems are mounted differently.
#include <filesystem>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/shared_place.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "ones_and_line.hpp"

namespace ddpxx::shared_place_test {
namespace {

using testing::HasSubstr;

class SharedPlace : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may mount file systems";
  }

  /// Lets this process mount what no other process sees.
  static void mount_apart(const std::function<bool()>& mount_elsewhere) {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_TRUE(mount_elsewhere());
  }

  /// Lets rank 0, and rank 1 which has called `mount_elsewhere`, check the folder. Calls `then(rank, error)` on both.
  void check_after(const std::function<bool()>& mount_elsewhere,
                   const std::function<void(int rank, const std::string& error)>& then) {
    spawn_ranks(2, [&](Group& group) {
      Folder storage{folder_.path()};
      if (group.rank() == 0) storage.prepare();
      if (group.rank() == 1) mount_apart(mount_elsewhere);
      std::string error = "no error";
      try {
        check_shared_place(storage, "0123456789ab", group);
      } catch (const Error& caught) {
        EXPECT_EQ(caught.code(), Errc::storage);
        error = caught.what();
      }
      barrier(group);
      then(group.rank(), error);
      EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "of rank " << group.rank();
    });
  }

  std::string path() const { return folder_.path().string(); }
  bool mount_another_folder() const { return ::mount("tmpfs", path().c_str(), "tmpfs", 0, nullptr) == 0; }

  TemporaryFolder folder_;
};

TEST_F(SharedPlace, IsAFolderThatTwoMachinesHaveMounted) {
  check_after([] { return true; }, [](int, const std::string& error) { EXPECT_EQ(error, "no error"); });
}

TEST_F(SharedPlace, IsNoFolderThatIsAnotherOneOnAnotherMachine) {
  check_after([this] { return mount_another_folder(); },
              [this](int, const std::string& error) {
                EXPECT_THAT(error, HasSubstr("rank 1 on "));
                EXPECT_THAT(error, HasSubstr(" does not find " + path() +
                                             "/.probe.0123456789ab.0.tmp, which rank 0 has just written: choose a "
                                             "training.save_dir that all machines share"));
              });
}

TEST_F(SharedPlace, IsRequiredBeforeTheFirstStepOfARun) {
  using Train = Trainer<Line, Ones>;
  spawn_ranks(2, [this](Group& group) {
    if (group.rank() == 1) mount_apart([this] { return mount_another_folder(); });
    Train::Config config;
    config.batch_size = 2;
    config.training.max_steps = 2;
    config.training.save_dir = path();
    Train trainer{group, std::make_shared<Line>(), std::make_shared<Ones>(), config};
    try {
      trainer.fit();
      ADD_FAILURE() << "the ranks have no place in common";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 on "));
    }
    EXPECT_EQ(trainer.steps_done(), 0);
  });
}

/// The run of rank 0 may be killed before it removes the file that the other ranks look for.
TEST_F(SharedPlace, LosesAFileThatAnEarlierStartHasLeftWhenItIsClaimed) {
  const auto left = folder_.file(".probe.0123456789ab.0.tmp", "left");
  Folder storage{folder_.path()};
  storage.prepare();
  storage.claim("this test");
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(SharedPlace, IsNoFolderThatAnotherMachineCannotWriteTo) {
  check_after(
      [this] {
        return ::mount(path().c_str(), path().c_str(), nullptr, MS_BIND, nullptr) == 0 &&
               ::mount(nullptr, path().c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
      },
      [this](int, const std::string& error) {
        EXPECT_THAT(error, HasSubstr("rank 1 on "));
        EXPECT_THAT(error, HasSubstr(" cannot write to " + path()));
        EXPECT_THAT(error, HasSubstr("Read-only file system"));
      });
}

}  // namespace
}  // namespace ddpxx::shared_place_test
