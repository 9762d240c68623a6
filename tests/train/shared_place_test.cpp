// Ranks on several machines save at one place. The machines are processes whose file systems are mounted differently.
#include <filesystem>
#include <functional>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/shared_place.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::shared_place_test {
namespace {

using testing::HasSubstr;

class SharedPlace : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may mount file systems";
  }

  /// Lets rank 0, and rank 1 which has called `mount_elsewhere`, check the folder. Calls `then(rank, error)` on both.
  void check_after(const std::function<bool()>& mount_elsewhere,
                   const std::function<void(int rank, const std::string& error)>& then) {
    spawn_ranks(2, [&](Group& group) {
      Folder storage{folder_.path()};
      if (group.rank() == 0) storage.prepare();
      if (group.rank() == 1) {
        ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
        ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        ASSERT_TRUE(mount_elsewhere());
      }
      const auto error = error_of([&] { check_shared_place(storage, "0123456789ab", group); });
      barrier(group);
      then(group.rank(), error);
      EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "of rank " << group.rank();
    });
  }

  std::string path() const { return folder_.path().string(); }

  TemporaryFolder folder_;
};

TEST_F(SharedPlace, IsAFolderThatTwoMachinesHaveMounted) {
  check_after([] { return true; }, [](int, const std::string& error) { EXPECT_EQ(error, "no error"); });
}

TEST_F(SharedPlace, IsNoFolderThatIsAnotherOneOnAnotherMachine) {
  check_after([this] { return ::mount("tmpfs", path().c_str(), "tmpfs", 0, nullptr) == 0; },
              [this](int, const std::string& error) {
                EXPECT_THAT(error, HasSubstr("rank 1 on "));
                EXPECT_THAT(error, HasSubstr(" does not find " + path() +
                                             "/.probe.0123456789ab.0.tmp, which rank 0 has just written: choose a "
                                             "training.save_dir that all machines share"));
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
