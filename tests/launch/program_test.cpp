#include <stdexcept>
#include <system_error>

#include <gtest/gtest.h>

#include <ddpxx/launch/program.hpp>

namespace ddpxx {
namespace {

using testing::ExitedWithCode;

TEST(RunProgram, NamesTheLimitWhereTheSystemHasNoMoreThreads) {
  const auto refused = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EXIT(
      run_program("program", [&] { throw std::system_error{refused}; }), ExitedWithCode(5),
      "program: error: Resource temporarily unavailable: the system has no more threads \\(limit: ulimit -u\\)");
  EXPECT_EXIT(run_program("program", [] { throw std::runtime_error{"no such layer"}; }), ExitedWithCode(1),
              "program: error: no such layer");
}

}  // namespace
}  // namespace ddpxx
