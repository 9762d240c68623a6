// The frame of a main(): what it prints for an exception, and with which code it exits.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/mapped_file.hpp>
#include <ddpxx/core/program_end.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/program.hpp>

#include "../temporary_folder.hpp"

namespace program_test {
namespace {

using testing::ExitedWithCode;

template <class Body>
[[noreturn]] void run(Body body) {
  ddpxx::run_program("name", body);
}

TEST(Program, PrintsAnErrorOfOutsideWordsWithoutWhatATerminalObeys) {
  ::setenv("RANK", "\x1b[31m1", 1);
  EXPECT_EXIT(run([] {
                throw ddpxx::Error{ddpxx::Errc::storage,
                                   "\x1b]0;owned\a is damaged:\n  its \r\x9b"
                                   "2J line"};
              }),
              ExitedWithCode(4),
              R"(^name: rank \\x1b\[31m1: error: \\x1b\]0;owned\\x07 is damaged:)"
              "\n"
              R"(  its \\r\\x9b2J line)"
              "\n$");
  ::unsetenv("RANK");
}

TEST(Program, EndsWithTheCodeOfAProgramEndAndPrintsNothing) {
  EXPECT_EXIT(run([] { throw ddpxx::ProgramEnd{0}; }), ExitedWithCode(0), "^$");
  EXPECT_EXIT(run([] { throw ddpxx::ProgramEnd{2}; }), ExitedWithCode(2), "^$");
}

namespace of_a_user {
struct Refusal {};
}  // namespace of_a_user

TEST(Program, NamesTheTypeOfAnExceptionThatHasNoText) {
  EXPECT_EXIT(run([] { throw 42; }), ExitedWithCode(1), "^name: error: an exception of type int\n$");
  EXPECT_EXIT(run([] { throw of_a_user::Refusal{}; }), ExitedWithCode(1),
              "an exception of type .*of_a_user::Refusal\n");
}

TEST(Program, HasAFrameWhileItsBodyRuns) {
  EXPECT_FALSE(ddpxx::ProgramFrame::exists());
  EXPECT_EXIT(run([] { return ddpxx::ProgramFrame::exists() ? 42 : 1; }), ExitedWithCode(42), "^$");
}

/// A stream of output that another process answers with SIGTERM, at each flush.
struct AnsweredOutput : std::streambuf {
  int sync() override { return std::raise(SIGTERM); }
};

TEST(Program, KeepsTheSignalsOfAStopUntilItsEnd) {
  EXPECT_EXIT(run([] {
                static AnsweredOutput output;
                std::cout.rdbuf(&output);
                auto signals = std::make_shared<ddpxx::StopSignals>();
                throw ddpxx::Error{ddpxx::Errc::stopped, "stopped"}.keep(std::move(signals));
              }),
              ExitedWithCode(75), "^name: stopped\n$");
}

TEST(Program, EndsWith7WhereNoMemoryIsLeft) {
  EXPECT_EXIT(run([] { throw std::bad_alloc{}; }), ExitedWithCode(7), "out of memory: use a smaller batch, model");
  EXPECT_EXIT(run([] { throw std::runtime_error{"DefaultCPUAllocator: can't allocate memory: you tried"}; }),
              ExitedWithCode(7), "out of memory");
  EXPECT_EXIT(run([] { throw std::runtime_error{"[enforce fail a"}; }), ExitedWithCode(7), "out of memory")
      << "LibTorch had no memory left for the rest of its message";
  EXPECT_EXIT(run([] { throw std::runtime_error{"[enforce fail at inline_container.cc:1] ."}; }), ExitedWithCode(1),
              "error: .enforce fail at inline_container");
}

TEST(Program, NamesTheLimitWhereTheSystemHasNoMoreThreads) {
  const auto refused = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EXIT(run([&] { throw std::system_error{refused}; }), ExitedWithCode(5),
              "name: error: Resource temporarily unavailable: the system has no more threads \\(limit: ulimit -u\\)");
  EXPECT_EXIT(run([] { throw std::runtime_error{"no such layer"}; }), ExitedWithCode(1), "name: error: no such layer");
}

TEST(Program, EndsWith4WhereAMappedFileIsShortenedUnderIt) {
  const TemporaryFolder folder;
  const auto path = folder.file("file", std::string(100'000, 'x'));
  EXPECT_EXIT(run([&] {
                const ddpxx::MappedFile map{path, ddpxx::Errc::storage};
                std::filesystem::resize_file(path, 0);
                std::exit(std::to_integer<int>(map.bytes()[50'000]));
              }),
              ExitedWithCode(4), "was shortened by another program while its bytes were in use");
}

TEST(Program, EndsWith4WhereAFileWouldExceedItsLimit) {
  const TemporaryFolder folder;
  EXPECT_EXIT(run([&] {
                const rlimit limit{4096, 4096};
                ::setrlimit(RLIMIT_FSIZE, &limit);
                ddpxx::write_file_atomic(folder / "file", std::string(10'000, 'x'));
              }),
              ExitedWithCode(4), "name: error: cannot write .*: File too large");
}

TEST(Program, KeepsItsOwnActionForFilesThatExceedTheirLimit) {
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, [](int) { std::_Exit(42); });
        run([] { std::raise(SIGXFSZ); });
      },
      ExitedWithCode(42), "^$");
}

TEST(Program, GivesNoFileTheNumberOfAClosedStandardStream) {
  EXPECT_EXIT(
      {
        ::close(STDIN_FILENO);
        ::close(STDOUT_FILENO);
        run([] {
          const bool is_behind = ::open("/dev/zero", O_RDONLY) > STDERR_FILENO;
          return is_behind && ::write(STDOUT_FILENO, "x", 1) < 0 ? 42 : 1;
        });
      },
      ExitedWithCode(42), "^$")
      << "a file must not get what the program prints, and a failure to print must be noticed";
}

TEST(Program, KeepsItsOwnHandlerOfBusErrors) {
  const TemporaryFolder folder;
  const auto path = folder.file("file", std::string(100'000, 'x'));
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { std::_Exit(42); });
        run([&] {
          const ddpxx::MappedFile map{path, ddpxx::Errc::storage};
          std::filesystem::resize_file(path, 0);
          std::exit(std::to_integer<int>(map.bytes()[50'000]));
        });
      },
      ExitedWithCode(42), "^$");
}

}  // namespace
}  // namespace program_test
