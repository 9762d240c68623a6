// Sets of processors, also on a machine with more of them than a variable of type cpu_set_t has room for.
#include <cerrno>
#include <cstddef>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/cpu_set.hpp>

namespace ddpxx::cpu_set_test {
namespace {

/// The number of processors of the machine that the calls below show; 0 shows this machine.
std::size_t machine_size = 0;

}  // namespace
}  // namespace ddpxx::cpu_set_test

/// Takes the place of the C library's function in this program.
extern "C" int sched_getaffinity(pid_t process, std::size_t bytes, cpu_set_t* bits) noexcept {
  const auto size = ddpxx::cpu_set_test::machine_size;
  CPU_ZERO_S(bytes, bits);
  if (size == 0) return ::syscall(SYS_sched_getaffinity, process, bytes, bits) < 0 ? -1 : 0;
  if (8 * bytes < size) {
    errno = EINVAL;
    return -1;
  }
  for (std::size_t cpu = 0; cpu < size; ++cpu) CPU_SET_S(cpu, bytes, bits);
  return 0;
}

namespace ddpxx::cpu_set_test {
namespace {

TEST(CpuSet, HasTheProcessorsOfAMachineOfAnySize) {
  for (const std::size_t size : {1U, 1024U, 1025U, 4096U}) {
    machine_size = size;
    EXPECT_EQ(detail::allowed_cpus().size(), size);
  }
  machine_size = 0;
  EXPECT_FALSE(detail::allowed_cpus().empty());
}

TEST(CpuMask, KeepsNumbersAbove1023) {
  const detail::CpuSet cpus{0, 63, 64, 1024, 5000};
  EXPECT_EQ(detail::CpuMask{cpus}.cpus(), cpus);
  EXPECT_EQ(detail::CpuMask{detail::CpuSet{}}.cpus(), detail::CpuSet{});
}

TEST(CpuMask, BindsTheCallingThread) {
  std::thread{[] {
    const int here = *detail::allowed_cpus().rbegin();
    // The system leaves out processors that it does not have.
    ASSERT_TRUE(detail::CpuMask(detail::CpuSet{here, 5000}).bind());
    EXPECT_EQ(detail::allowed_cpus(), detail::CpuSet{here});
    EXPECT_FALSE(detail::CpuMask{detail::CpuSet{}}.bind());
  }}.join();
}

}  // namespace
}  // namespace ddpxx::cpu_set_test
