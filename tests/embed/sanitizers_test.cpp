// Runs the host of embed_host.cpp compiled with sanitizers: it must return from main() without an error, a leak or a
// data race.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace sanitizers_test {
namespace {

using testing::HasSubstr;

void run_to_its_return(const char* program) {
  const TemporaryFolder folder;
  const auto host = StartedProgram{{program_folder() + '/' + program, folder.path().string()}}.wait();
  EXPECT_EQ(host.code, 0) << host.out << host.err;
  EXPECT_THAT(host.out, HasSubstr("embed_host: static destructors ran"));
}

TEST(Embed, AHostUnderAddressSanitizerEndsByItsOwnReturnAndLeaksNothing) {
  ::setenv("ASAN_OPTIONS", "exitcode=66:detect_leaks=1", 1);
  run_to_its_return("embed_host_address");
}

TEST(Embed, AHostUnderThreadSanitizerEndsByItsOwnReturn) {
  ::setenv("TSAN_OPTIONS", "exitcode=66:suppressions=" DDPXX_RACES, 1);
  run_to_its_return("embed_host_thread");
}

}  // namespace
}  // namespace sanitizers_test
