// A process writes its call stack when a launcher asks, and a launcher asks only processes that handle the signal; each
// case runs in a process of its own.
#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/call_stack.hpp>
#include <ddpxx/launch/process_table.hpp>

namespace ddpxx::call_stack_test {
namespace {

constexpr const char* kTitle = "call stack of the main thread";

struct ChildEnd {
  int code = -1;  // exit code, or minus the signal that ended it
  std::string err;
};

/// Runs `body` in a process of its own, and returns its end and what it wrote to standard error. While the process
/// runs, `watch` is called with its id, once the body has closed the file descriptor that it gets.
ChildEnd in_a_process(
    const std::function<int(int)>& body, const std::function<void(pid_t)>& watch = [](pid_t) {}) {
  std::array<int, 2> err{}, ready{};
  EXPECT_EQ(::pipe(err.data()), 0);
  EXPECT_EQ(::pipe(ready.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(err[1], STDERR_FILENO);
    ::close(ready[0]);
    ::signal(call_stack_signal(), SIG_DFL);
    ::_exit(body(ready[1]));
  }
  ::close(err[1]);
  ::close(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 0);  // until the body closes it, or ends
  watch(pid);
  ChildEnd end;
  for (std::array<char, 512> piece{}; true;) {
    const auto size = ::read(err[0], piece.data(), piece.size());
    if (size <= 0) break;
    end.err.append(piece.data(), static_cast<std::size_t>(size));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(err[0]);
  ::close(ready[0]);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return end;
}

volatile std::sig_atomic_t own_calls = 0;

TEST(CallStack, IsWrittenAndTheProgramGoesOn) {
  const auto end = in_a_process([](int) {
    write_call_stack_on_signal();
    ::raise(call_stack_signal());
    ::raise(call_stack_signal());
    return 7;
  });
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.err, testing::StartsWith(kTitle));
  EXPECT_THAT(end.err, testing::ContainsRegex("core_test.*0x"));
  EXPECT_NE(end.err.find(kTitle, 1), std::string::npos) << "it is written each time";
}

TEST(CallStack, LeavesWhatTheProgramDoesWithTheSignal) {
  const auto handled = in_a_process([](int) {
    ::signal(call_stack_signal(), [](int) { own_calls = own_calls + 1; });
    write_call_stack_on_signal();
    ::raise(call_stack_signal());
    return static_cast<int>(own_calls);
  });
  EXPECT_EQ(handled.code, 1);
  EXPECT_EQ(handled.err, "");
  const auto ignored = in_a_process([](int) {
    ::signal(call_stack_signal(), SIG_IGN);
    write_call_stack_on_signal();
    ::raise(call_stack_signal());
    return 3;
  });
  EXPECT_EQ(ignored.code, 3);
  EXPECT_EQ(ignored.err, "");
}

TEST(CallStack, IsAskedForOnlyWhereTheProgramHandlesTheSignal) {
  // The signal would end a program without a handler, as a launcher must not do.
  for (const bool has_handler : {true, false}) {
    const auto end = in_a_process(
        [has_handler](int ready) {
          if (has_handler) write_call_stack_on_signal();
          ::close(ready);
          while (true) ::pause();
          return 0;
        },
        [has_handler](pid_t pid) {
          EXPECT_EQ(handles_signal(pid, call_stack_signal()), has_handler);
          ::kill(pid, SIGKILL);
        });
    EXPECT_EQ(end.code, -SIGKILL);
  }
  pid_t gone = 0;
  in_a_process([](int) { return 0; }, [&](pid_t pid) { gone = pid; });
  EXPECT_FALSE(handles_signal(gone, call_stack_signal()));
}

}  // namespace
}  // namespace ddpxx::call_stack_test
