// The waits of the tests for a program: one that ends too early fails its test at once, with its message.
#include "started_program.hpp"

#include <chrono>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace started_program_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no failure";
}

TEST(StartedProgram, ThatEndsBeforeWhatIsAwaitedIsAFailureWithItsMessage) {
  const StartedProgram run{{"/bin/sh", "-c", "echo one; echo out of luck >&2; exit 7"}};
  EXPECT_THAT(failure_of([&] { run.wait_for_lines(run.error_file(), 2); }),
              AllOf(HasSubstr("waited for 2 lines in "), HasSubstr("the program has ended"),
                    HasSubstr("its standard error:\nout of luck\n")));
  EXPECT_EQ(failure_of([&] { run.wait_for_lines(run.error_file(), 1); }), "no failure");
}

TEST(StartedProgram, ThatGoesOnForTooLongIsAFailureWithItsMessage) {
  StartedProgram run{{"/bin/sh", "-c", "echo in a loop >&2; exec sleep 600"}};
  run.wait_for_lines(run.error_file(), 1);
  EXPECT_THAT(failure_of([&] { run.wait(std::chrono::seconds{0}); }),
              AllOf(HasSubstr("still runs after 0 s"), HasSubstr("its standard error:\nin a loop\n")));
  run.signal(SIGKILL);
  EXPECT_EQ(run.wait().code, -SIGKILL);
}

TEST(StartedProgram, IsWaitedForUntilItBlocksASignal) {
  const StartedProgram run{{"/usr/bin/env", "--block-signal=USR1", "sleep", "600"}};
  run.wait_until_blocked(SIGUSR1);
  run.signal(SIGUSR1);
  EXPECT_FALSE(run.has_ended());
  const StartedProgram ended{{"/bin/true"}};
  EXPECT_THAT(failure_of([&] { ended.wait_until_blocked(SIGUSR1); }),
              HasSubstr("waited for signal " + std::to_string(SIGUSR1) + " to be blocked: the program has ended"));
}

}  // namespace
}  // namespace started_program_test
