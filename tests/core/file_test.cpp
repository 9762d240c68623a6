#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/file.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::file_test {
namespace {

constexpr std::array kStages{"file.before_write", "file.after_write", "file.after_fsync", "file.after_publish"};

auto entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator{folder}, std::filesystem::directory_iterator{});
}

/// Runs `body` in a process of its own; returns its wait status.
template <class Body>
int in_child(Body body) {
  const auto child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

template <class Operation>
std::string error_of(Errc code, Operation operation) {
  try {
    operation();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(ReadFile, ReturnsAllBytesOrTheFirstOnes) {
  const TemporaryFolder folder;
  const std::string text("a\0b\r\n\xff", 6);
  const auto path = folder.file("text", text);
  EXPECT_EQ(read_file(path, Errc::data), text);
  EXPECT_EQ(read_file(path, Errc::data, 3), text.substr(0, 3));
  EXPECT_EQ(read_file(folder.file("empty", ""), Errc::data), "");
}

TEST(ReadFile, ReadsFilesThatClaimToBeEmpty) {
  EXPECT_NE(read_file("/proc/self/status", Errc::data).find("VmRSS"), std::string::npos);
  EXPECT_EQ(read_file("/proc/self/status", Errc::data, 5), "Name:");
}

TEST(ReadFile, NamesThePathAndTheReasonUnderTheCallersCode) {
  const TemporaryFolder folder;
  const auto absent = error_of(Errc::data, [&] { read_file(folder / "absent", Errc::data); });
  EXPECT_NE(absent.find((folder / "absent").string()), std::string::npos) << absent;
  EXPECT_NE(absent.find("No such file"), std::string::npos) << absent;
  error_of(Errc::config, [&] { read_file(folder.path(), Errc::config); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  // A read that waited for a writer would hang.
  error_of(Errc::storage, [&] { read_file(folder / "pipe", Errc::storage); });
}

TEST(WriteFileAtomic, WritesThePartsInOrderAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const std::array parts{bytes_of("one,"), bytes_of(""), bytes_of("two")};
  write_file_atomic(folder / "file", parts);
  EXPECT_EQ(read_file(folder / "file", Errc::data), "one,two");
  write_file_atomic(folder / "file", "three");
  EXPECT_EQ(read_file(folder / "file", Errc::data), "three");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFileAtomic, LetsTheWriterCorrectWhatItWrote) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", [](File& file) {
    file.write(bytes_of("0000 content"));
    file.write_at(0, bytes_of("head"));
    file.write(bytes_of("."));
  });
  EXPECT_EQ(read_file(folder / "file", Errc::data), "head content.");
}

TEST(WriteFileAtomic, KnowsAFileThatIsInPlaceAlready) {
  const TemporaryFolder folder;  // as after a rename over a network whose answer was lost
  write_file_atomic(folder / "file", [&](File& file) {
    file.write(bytes_of("new"));
    std::filesystem::rename(file.path(), folder / "file");
  });
  EXPECT_EQ(read_file(folder / "file", Errc::data), "new");
}

TEST(WriteFileAtomic, CorrectsTheRestAfterAnInterruptedCall) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", [](File& file) {
    file.write(bytes_of("0000 content"));
    ::setenv("DDPXX_FAILPOINT", ("io:errno:" + std::to_string(EINTR) + "@1").c_str(), 1);
    file.write_at(0, bytes_of("head"));
    ::unsetenv("DDPXX_FAILPOINT");
  });
  EXPECT_EQ(read_file(folder / "file", Errc::data), "head content");
}

TEST(WriteFileAtomic, SaysWhyACorrectionWasWrittenInPart) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              try {
                write_file_atomic(folder / "file", [](File& file) {
                  file.write(bytes_of("content"));
                  errno = 0;
                  file.write_at(4000, bytes_of(std::string(200, 'x')));  // of which the limit admits 96 bytes
                });
              } catch (const Error& error) {
                const std::string_view text = error.what();
                ::_exit(text.find("File too large") != text.npos && text.find("bytes_left=104") != text.npos ? 0 : 2);
              }
              ::_exit(1);
            }),
            0);
}

TEST(WriteFileAtomic, WorksInTheWorkingFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              if (::chdir(folder.path().c_str()) != 0) ::_exit(1);
              write_file_atomic("bare-name", "text");
            }),
            0);
  EXPECT_EQ(read_file(folder / "bare-name", Errc::data), "text");
}

TEST(WriteFileAtomic, KeepsTheOldFileWhenTheWriterThrows) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "old");
  EXPECT_THROW(write_file_atomic(folder / "file",
                                 [](File& file) {
                                   file.write(bytes_of("half"));
                                   throw std::runtime_error{"no more"};
                                 }),
               std::runtime_error);
  EXPECT_EQ(read_file(folder / "file", Errc::data), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFileAtomic, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "old");
  const auto status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomic(folder / "file", std::string(10000, 'x'));
    } catch (const Error& error) {
      ::_exit(error.code() == Errc::storage &&
                      std::string_view{error.what()}.find("bytes_left=5904") != std::string_view::npos
                  ? 0
                  : 1);
    }
    ::_exit(2);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "file", Errc::data), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFileAtomic, NamesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto no_folder = error_of(Errc::storage, [&] { write_file_atomic(folder / "absent/file", "x"); });
  EXPECT_NE(no_folder.find("absent"), std::string::npos) << no_folder;
  std::filesystem::create_directory(folder / "taken");
  const auto taken = error_of(Errc::storage, [&] { write_file_atomic(folder / "taken", "x"); });
  EXPECT_NE(taken.find("taken"), std::string::npos) << taken;
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFileAtomic, LeavesTheOldFileOrTheNewOneWhenItFailsAtAnyStage) {
  const TemporaryFolder folder;
  for (const auto* stage : kStages) {
    write_file_atomic(folder / "file", "old");
    ::setenv("DDPXX_FAILPOINT", (std::string{stage} + ":throw").c_str(), 1);
    EXPECT_THROW(write_file_atomic(folder / "file", "new"), Error) << stage;
    ::unsetenv("DDPXX_FAILPOINT");
    EXPECT_EQ(read_file(folder / "file", Errc::data), stage == kStages.back() ? "new" : "old") << stage;
    EXPECT_EQ(entries(folder.path()), 1) << stage;
  }
}

TEST(WriteFileAtomic, LeavesTheOldFileOrTheNewOneWhenItIsKilledAtAnyStage) {
  const TemporaryFolder folder;
  for (const auto* stage : kStages) {
    write_file_atomic(folder / "file", "old");
    const auto status = in_child([&] {
      ::setenv("DDPXX_FAILPOINT", (std::string{stage} + ":kill").c_str(), 1);
      write_file_atomic(folder / "file", "new");
    });
    EXPECT_TRUE(WIFSIGNALED(status)) << stage;
    EXPECT_EQ(read_file(folder / "file", Errc::data), stage == kStages.back() ? "new" : "old") << stage;
  }
  write_file_atomic(folder / "file", "next");
  EXPECT_EQ(entries(folder.path()), 1) << "a killed writer's temporary file was not removed";
}

TEST(WriteFileAtomic, SweepsNeitherOtherFilesNorALivingWritersOne) {
  const TemporaryFolder folder;
  folder.file(".file.notes.tmp", "");   // not named like a temporary file
  folder.file(".file.1.17-0.tmp", "");  // a temporary file of another target, "file.1"
  folder.file(".file.18-0.tmp", "");    // a temporary file that a killed writer has left
  write_file_atomic(folder / "file", [&](File&) { write_file_atomic(folder / "file", "inner"); });
  EXPECT_EQ(read_file(folder / "file", Errc::data), "");
  EXPECT_TRUE(std::filesystem::exists(folder / ".file.notes.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder / ".file.1.17-0.tmp"));
  EXPECT_EQ(entries(folder.path()), 3);
}

TEST(FileToAppend, GrowsAndIsMadeWhereItIsMissing) {
  const TemporaryFolder folder;
  for (const auto* text : {"one,", "two"}) File::open_to_append(folder / "log", Errc::storage).write(bytes_of(text));
  EXPECT_EQ(read_file(folder / "log", Errc::data), "one,two");
}

TEST(FileToAppend, RefusesWhatLeadsToAnotherFile) {
  const TemporaryFolder folder;
  const auto victim = folder.file("victim", "important");
  std::filesystem::create_symlink("victim", folder / "link");
  std::filesystem::create_symlink("absent", folder / "dangling");
  std::filesystem::create_hard_link(victim, folder / "second name");
  std::filesystem::create_directory(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto before = entries(folder.path());
  for (const auto* name : {"link", "dangling", "second name", "folder", "pipe"}) {
    const auto text = error_of(Errc::config, [&] { File::open_to_append(folder / name, Errc::config); });
    EXPECT_NE(text.find((folder / name).string()), std::string::npos) << text;
  }
  EXPECT_EQ(read_file(victim, Errc::data), "important");
  EXPECT_EQ(entries(folder.path()), before);
}

TEST(MakeSubfolder, MakesAFolderOnceAndFollowsNoLink) {
  const TemporaryFolder folder;
  EXPECT_TRUE(make_subfolder(folder / "new"));
  EXPECT_FALSE(make_subfolder(folder / "new"));
  std::filesystem::create_directory_symlink("new", folder / "link");
  std::filesystem::create_directory_symlink("absent", folder / "dangling");
  folder.file("file", "");
  for (const auto* name : {"link", "dangling", "file", "absent/new"}) {
    const auto text = error_of(Errc::storage, [&] { make_subfolder(folder / name); });
    EXPECT_NE(text.find((folder / name).string()), std::string::npos) << text;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "absent"));
}

TEST(CreateFileAtomic, MakesAFileOnceOnAFileSystemWithoutHardLinks) {
  for (const int error : {EPERM, EOPNOTSUPP, ENOSYS}) {
    const TemporaryFolder folder;
    const auto no_links = "file.take_name:errno:" + std::to_string(error) + "@1";
    for (const auto* text : {"first", "second"}) {
      // Another text restarts the count of the failpoint.
      ::setenv("DDPXX_FAILPOINT", (no_links + (text[0] == 'f' ? "" : ",rank=0")).c_str(), 1);
      EXPECT_EQ(create_file_atomic(folder / "file", bytes_of(text)), text[0] == 'f');
    }
    ::unsetenv("DDPXX_FAILPOINT");
    EXPECT_EQ(read_file(folder / "file", Errc::data), "first");
    EXPECT_EQ(entries(folder.path()), 1);
  }
}

TEST(CreateFileAtomic, LeavesNoFileWhenItIsKilledBeforeTheFileHasItsName) {
  const TemporaryFolder folder;
  const auto status = in_child([&] {
    ::setenv("DDPXX_FAILPOINT", "file.take_name:kill", 1);
    create_file_atomic(folder / "file", bytes_of("text"));
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  EXPECT_TRUE(create_file_atomic(folder / "file", bytes_of("text")));
  EXPECT_EQ(entries(folder.path()), 1) << "the killed writer's temporary file was not removed";
}

TEST(CreateFileAtomic, SaysWhatAFileSystemLacks) {
  const TemporaryFolder folder;
  ::setenv("DDPXX_FAILPOINT", ("file.take_name:errno:" + std::to_string(ENOSYS)).c_str(), 1);
  const auto text = error_of(Errc::storage, [&] { create_file_atomic(folder / "file", bytes_of("text")); });
  ::unsetenv("DDPXX_FAILPOINT");
  EXPECT_NE(text.find("supports neither hard links nor"), std::string::npos) << text;
  EXPECT_NE(text.find("choose a folder on another file system"), std::string::npos) << text;
  EXPECT_EQ(entries(folder.path()), 0);
}

}  // namespace
}  // namespace ddpxx::file_test
