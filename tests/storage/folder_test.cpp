// folder_test.cpp — properties that only folders have, and the errors of a program without S3; no server is needed.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/folder.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "../scoped_failpoint.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::folder_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Changes the working directory until the end of the test.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path) { std::filesystem::current_path(path); }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

class FolderNamed : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, FolderNamed,
                         testing::Values(".", "..", "../..", "./", "../", "a/..", "a/.", "a/b/", "a//b//", "new",
                                         "new/", "./new", "a/../new", "a/b/../../new/one", ""));

TEST_P(FolderNamed, HoldsObjectsWhereverItsNamePoints) {
  const TemporaryFolder place;
  std::filesystem::create_directories(place / "x/y/a/b");
  const WorkingDirectory inside{place / "x/y"};
  Folder folder{GetParam()};
  folder.prepare();
  EXPECT_TRUE(folder.claim("this test"));
  folder.write("step-1/part", std::array{bytes_of("one")});
  EXPECT_TRUE(folder.create("step-1/manifest.json", bytes_of("{}")));
  const auto all = std::vector<StoredObject>{{"step-1/manifest.json", 2}, {"step-1/part", 3}};
  EXPECT_EQ(folder.list("step-"), all);
  EXPECT_EQ(folder.list("step-1/"), all);
  EXPECT_EQ(folder.list(""), all);
  EXPECT_EQ(folder.read_text("step-1/part", 10), "one");
  EXPECT_TRUE(std::filesystem::exists(folder.full_name("step-1/part")));
  const auto path = std::filesystem::path{GetParam()};
  EXPECT_TRUE(std::filesystem::exists((path.empty() ? "." : path) / "step-1" / "part"));
  folder.remove("step-1/part");
  folder.remove("step-1/manifest.json");
  EXPECT_FALSE(std::filesystem::exists((path.empty() ? "." : path) / "step-1"));
}

TEST(Folder, SweepsWhatKilledWritersLeftHereAndInItsFolders) {
  const TemporaryFolder place;
  place.file(".object.12-0.tmp", "");
  place.file("step-1/.part.12-0.tmp", "");
  place.file("other/deep/.theirs.12-0.tmp", "");
  place.file("step-1/part", "");
  std::filesystem::create_directory(place / "elsewhere");
  const TemporaryFolder theirs;
  theirs.file(".theirs.12-0.tmp", "");
  std::filesystem::create_directory_symlink(theirs.path(), place / "linked");
  EXPECT_TRUE(Folder{place.path()}.claim("this test"));
  EXPECT_FALSE(std::filesystem::exists(place / ".object.12-0.tmp"));
  EXPECT_FALSE(std::filesystem::exists(place / "step-1/.part.12-0.tmp"));
  EXPECT_TRUE(std::filesystem::exists(place / "step-1/part"));
  EXPECT_TRUE(std::filesystem::exists(place / "other/deep/.theirs.12-0.tmp"));
  EXPECT_TRUE(std::filesystem::exists(theirs / ".theirs.12-0.tmp"));
}

TEST(Folder, SweepsTheProbeOfAStartThatWasKilled) {
  const TemporaryFolder place;
  const auto work = [&] {
    ::setenv("DDPXX_FAILPOINT", "file.after_publish:kill", 1);
    Folder{place.path()}.prepare();
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(std::filesystem::is_empty(place.path()));
  EXPECT_TRUE(Folder{place.path()}.claim("this test"));
  for (const auto& entry : std::filesystem::directory_iterator{place.path()})
    EXPECT_EQ(entry.path().filename(), ".owner");
}

TEST(Folder, IsTriedBesideTheProbeOfAProcessWithItsNumberInAnotherContainer) {
  const TemporaryFolder place;
  const auto probe = place / (".probe." + std::to_string(::getpid()) + "-0.tmp");
  std::ofstream{probe} << "theirs";
  EXPECT_NO_THROW(Folder{place.path()}.prepare());
  EXPECT_TRUE(std::filesystem::exists(probe)) << "it belongs to the other process";
}

TEST(Folder, StaysAsItIsWhenAProgramIsKilledWhileItListsIt) {
  const TemporaryFolder place;
  Folder{place.path()}.write("step-1/part", std::array{bytes_of("one")});
  const auto work = [&] {
    ::setenv("DDPXX_FAILPOINT", "folder.examine:kill", 1);
    Folder{place.path()}.list("step-");
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_THAT(Folder{place.path()}.list("step-"), ElementsAre(StoredObject{"step-1/part", 3}));
}

TEST(Folder, ListsWhatIsThereBesideLinksAndNamesThem) {
  const TemporaryFolder place, elsewhere;
  elsewhere.file("part", "theirs");
  Folder folder{place.path()};
  folder.write("step-1/part", std::array{bytes_of("one")});
  std::filesystem::create_directory_symlink("step-1", place / "step-latest");
  std::filesystem::create_directory_symlink(elsewhere.path(), place / "step-2");
  std::filesystem::create_symlink("nothing", place / "step-3");
  EXPECT_THAT(folder.list("step-"), ElementsAre(StoredObject{"step-1/part", 3}, StoredObject{"step-3", 0}));
  EXPECT_THAT(folder.links(), ElementsAre("step-2", "step-3", "step-latest"));
}

TEST(Folder, LeavesNoFileOutOfItsListSinceItCannotBeExamined) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  folder.write("step-1/part", std::array{bytes_of("one")});
  const auto listed = [&](const std::string& failure) {
    ::setenv("DDPXX_FAILPOINT", ("folder.examine:errno:" + failure).c_str(), 1);
    auto found = folder.list("step-1/");
    ::unsetenv("DDPXX_FAILPOINT");
    return found.size();
  };
  EXPECT_EQ(listed("5@2"), 1U) << "a read error must be tried again";
  EXPECT_EQ(listed("2@2"), 0U) << "a file that was removed meanwhile must be left out";
  EXPECT_THROW(listed("5"), Error);
  EXPECT_THROW(listed("13"), Error);
  ::unsetenv("DDPXX_FAILPOINT");
}

TEST(Folder, ListsFilesThatAreLinksAndThoseThatLeadNowhereAsEmpty) {
  const TemporaryFolder place, elsewhere;
  elsewhere.file("part", "theirs");
  std::filesystem::create_directory(place / "step-1");
  std::filesystem::create_symlink(elsewhere / "part", place / "step-1" / "part");
  Folder folder{place.path()};
  EXPECT_THAT(folder.list("step-"), ElementsAre(StoredObject{"step-1/part", 6}));
  ::setenv("DDPXX_FAILPOINT", "folder.examine:errno:13@3", 1);  // the folder, the link, and the file that it leads to
  EXPECT_THROW(folder.list("step-"), Error) << "a file that cannot be examined must not count as absent";
  ::unsetenv("DDPXX_FAILPOINT");
  std::filesystem::remove(elsewhere / "part");
  EXPECT_THAT(folder.list("step-"), ElementsAre(StoredObject{"step-1/part", 0}));
}

TEST(Folder, WaitsForTheLockOfAnotherMachineAndSaysWhatToDoIfThatIsDown) {
  using std::chrono::milliseconds;
  const TemporaryFolder place;
  std::optional<Folder> holder{place.path()};
  holder->claim("process 7 on another-machine");
  std::thread expires{[&] {
    std::this_thread::sleep_for(milliseconds{4500});  // the line about the lock comes after 3 s
    holder.reset();                                   // as a file server drops the lock of a machine that is lost
  }};
  testing::internal::CaptureStderr();
  Folder folder{place.path(), std::chrono::seconds{60}};
  EXPECT_TRUE(folder.claim("process 8 on another-machine"));
  expires.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("is in use by process 7 on another-machine: waiting up to 60 s"));

  Folder second{place.path(), milliseconds{3100}};
  try {
    second.claim("process 9 on another-machine");
    FAIL() << "two programs have claimed the folder";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("is in use by process 8 on another-machine"),
                                    HasSubstr("if its machine is down, remove " + (place / ".owner").string())));
  }
  std::filesystem::remove(place / ".owner");
  EXPECT_TRUE(second.claim("process 9 on another-machine"));
}

TEST(Folder, IsInUseAlsoWhereTheNameOfItsOwnerCannotBeRead) {
  const TemporaryFolder place;
  Folder holder{place.path()};
  holder.claim("process 7 on another-machine");
  std::filesystem::permissions(place.path(), std::filesystem::perms::all);
  std::filesystem::permissions(place / ".owner", static_cast<std::filesystem::perms>(0222));
  const auto work = [&] {
    constexpr ::uid_t kNobody = 65534;
    if (::getuid() == 0 && ::setuid(kNobody) != 0) std::_Exit(1);  // root could read everything
    try {
      Folder{place.path(), std::chrono::milliseconds{0}}.claim("process 8 on another-machine");
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(3);
    }
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(3), "is in use by a program whose name cannot be read");
}

TEST(Folder, LivesBesideAFolderThatItsUserMayNotRead) {
  const TemporaryFolder place;
  std::filesystem::create_directory(place / "lost+found");
  std::filesystem::permissions(place.path(), std::filesystem::perms::all);
  std::filesystem::permissions(place / "lost+found", std::filesystem::perms::none);
  const auto work = [&] {
    constexpr ::uid_t kNobody = 65534;
    if (::getuid() == 0 && ::setuid(kNobody) != 0) std::_Exit(1);  // root could read everything
    Folder folder{place.path()};
    folder.prepare();
    const bool claimed = folder.claim("this test");
    folder.write("step-1/part", std::array{bytes_of("one")});
    std::_Exit(claimed && folder.list("step-").size() == 1 ? 0 : 2);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
  std::filesystem::permissions(place / "lost+found", std::filesystem::perms::all);
}

TEST(Folder, WritesThroughNoLinkThatLiesInIt) {
  const TemporaryFolder place, elsewhere;
  const auto victim = elsewhere.file("victim", "important\n");
  for (const char* target : {"victim", "absent"}) {
    std::filesystem::create_symlink(elsewhere / target, place / ".owner");
    EXPECT_THROW(Folder{place.path()}.claim("this test"), Error) << target;
    std::filesystem::remove(place / ".owner");
  }
  std::filesystem::create_hard_link(victim, place / ".owner");
  EXPECT_TRUE(Folder{place.path()}.claim("this test")) << "a hard link, as cp -al makes one, must be replaced";
  EXPECT_EQ(std::filesystem::hard_link_count(place / ".owner"), 1U);
  std::filesystem::create_directory_symlink(elsewhere.path(), place / "step-1");
  Folder folder{place.path()};
  EXPECT_THROW(folder.write("step-1/part", std::array{bytes_of("one")}), Error);
  EXPECT_THROW(folder.create("step-1/manifest.json", bytes_of("{}")), Error);
  std::filesystem::create_symlink(victim, place / "object");
  folder.write("object", std::array{bytes_of("one")});
  EXPECT_EQ(folder.read_text("object", 10), "one") << "the file must replace the link";
  EXPECT_EQ(read_file(victim, Errc::storage), "important\n");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{elsewhere.path()})
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("victim"));
}

TEST(Folder, LeavesASharedOwnerWhoseLockCannotBeTaken) {
  const TemporaryFolder place;
  std::filesystem::create_hard_link(place.file("copy", "process 7 on another-machine\n"), place / ".owner");
  for (const int reason : {EBADF, ENOLCK, EIO}) {
    const ScopedFailpoint failing{"folder.lock:errno:" + std::to_string(reason)};
    EXPECT_THROW(Folder{place.path()}.claim("process 8 on another-machine"), Error) << reason;
    EXPECT_TRUE(std::filesystem::exists(place / ".owner")) << "its owner may be alive";
  }
  const ScopedFailpoint failing{"folder.lock:errno:" + std::to_string(EOPNOTSUPP)};
  EXPECT_FALSE(Folder{place.path()}.claim("process 8 on another-machine")) << "this file system has no locks";
  EXPECT_EQ(std::filesystem::hard_link_count(place / ".owner"), 1U);
}

TEST(Folder, IsFreeAfterAProgramThatWasKilledWhenItTookALock) {
  const TemporaryFolder place;
  std::filesystem::create_hard_link(place.file("copy", "process 7 on another-machine\n"), place / ".owner");
  const auto work = [&] {
    ::setenv("DDPXX_FAILPOINT", "folder.lock:kill", 1);
    Folder{place.path()}.claim("process 8 on another-machine");
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_TRUE(Folder{place.path()}.claim("this test"));
}

TEST(Folder, LeavesASharedOwnerThatALivingProcessHolds) {
  const TemporaryFolder place;
  Folder holder{place.path()};
  holder.claim("process 7 on another-machine");
  std::filesystem::create_hard_link(place / ".owner", place / "copy");
  EXPECT_THROW(Folder(place.path(), std::chrono::milliseconds{0}).claim("process 8 on another-machine"), Error);
  EXPECT_TRUE(std::filesystem::exists(place / ".owner"));
}

TEST(Folder, HasNoTextThatIsRemovedBeforeItIsOpened) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  folder.write("object", std::array{bytes_of("one")});
  const ScopedFailpoint failing{"io:errno:" + std::to_string(ENOENT)};
  EXPECT_EQ(folder.read_text("object", 10), std::nullopt);
}

TEST(Folder, ReadsATextWithoutALimit) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  folder.write("object", std::array{bytes_of("one")});
  EXPECT_EQ(folder.read_text("object", std::numeric_limits<std::uint64_t>::max()), "one");
}

TEST(Folder, MayBeALinkItself) {
  const TemporaryFolder place;
  std::filesystem::create_directory(place / "real");
  std::filesystem::create_directory_symlink("real", place / "link");
  Folder folder{place / "link"};
  folder.prepare();
  EXPECT_TRUE(folder.claim("this test"));
  folder.write("step-1/part", std::array{bytes_of("one")});
  EXPECT_TRUE(std::filesystem::exists(place / "real/step-1/part"));
}

TEST(Folder, WarnsWhereEveryUserMayReplaceItsFiles) {
  using std::filesystem::perms;
  const TemporaryFolder place;
  const auto said = [&](perms others) {
    std::filesystem::permissions(place.path(), perms::owner_all | others);
    testing::internal::CaptureStderr();
    Folder{place.path()}.prepare();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(perms::others_all),
              HasSubstr("every user of this machine may replace and remove the files in " + place.path().string()));
  EXPECT_EQ(said(perms::others_all | perms::sticky_bit), "")
      << "in a folder with the sticky bit other users cannot replace files";
  EXPECT_EQ(said(perms::group_all), "");
}

TEST(Folder, WarnsWhereItBelongsToAnotherUserAndIsOpenToAll) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a folder to another user";
  using std::filesystem::perms;
  const TemporaryFolder place;
  constexpr ::uid_t kNobody = 65'534;
  ASSERT_EQ(::chown(place.path().c_str(), kNobody, kNobody), 0);
  std::filesystem::permissions(place.path(), perms::owner_all | perms::others_all | perms::sticky_bit);
  testing::internal::CaptureStderr();
  Folder{place.path()}.prepare();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[rank0] warning: " + place.path().string() +
                " belongs to another user, who may replace and remove its files, and all users may write to it: choose "
                "a folder of your own\n");
}

TEST(Folder, DoesNotWarnOfThePermissionsOfWhatIsNoFolder) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(Folder{"/dev/null"}.prepare(), Error);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(OpenStorage, SaysWhyAProgramWithoutS3CannotReachABucket) {
  try {
    open_storage("s3://bucket/prefix");
    FAIL() << "a bucket was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("built without S3"), HasSubstr("link it to ddpxx::s3")));
  }
}

}  // namespace
}  // namespace ddpxx::folder_test
