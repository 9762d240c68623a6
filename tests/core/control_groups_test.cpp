// The limits of control groups, in folders laid out as systems and containers mount them.
#include <cstdint>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/control_groups.hpp>
#include <ddpxx/core/machine_memory.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::control_groups_test {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

TEST(ControlGroups, AreThoseOfTheProcessAndAllAroundThem) {
  const TemporaryFolder root;
  root.file("proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/job\nno group\n0::/slurm/job_7/step_0\n");
  const auto mount = root / "sys/fs/cgroup";
  EXPECT_THAT(control_groups("cpu", root.path()),
              testing::ElementsAre(mount / "cpu/job", mount / "cpu", mount / "slurm/job_7/step_0",
                                   mount / "slurm/job_7", mount / "slurm", mount / ""));
  EXPECT_THAT(control_groups("cpu", root / "absent"), testing::IsEmpty());
}

TEST(ControlGroups, OfAnotherNamespaceAreReplacedByTheTopmostOne) {
  const TemporaryFolder root;
  root.file("proc/self/cgroup", "0::/../..\n");
  EXPECT_THAT(control_groups("cpu", root.path()), testing::ElementsAre(root / "sys/fs/cgroup/"));
}

TEST(MachineMemory, IsTheLeastThatAGroupAllows) {
  const TemporaryFolder root;
  const auto machine = machine_memory_bytes(root.path());
  ASSERT_GT(machine, 8 * kMiB);
  root.file("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  root.file("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), machine);
  root.file("sys/fs/cgroup/slurm/job_7/memory.max", "4194304\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), 4 * kMiB);
  root.file("sys/fs/cgroup/slurm/memory.max", "8388608\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), 4 * kMiB);
  root.file("sys/fs/cgroup/memory.max", "2097152\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), 2 * kMiB);
}

TEST(MachineMemory, IsLimitedByVersion1OfControlGroups) {
  const TemporaryFolder root;
  const auto machine = machine_memory_bytes(root.path());
  root.file("proc/self/cgroup", "4:memory:/docker/a1b2\n0::/\n");
  root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), machine);
  // A container sees its own group as the topmost one, and the name of the group on the host.
  root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), 4 * kMiB);
  root.file("sys/fs/cgroup/memory/docker/a1b2/memory.limit_in_bytes", "2097152\n");
  EXPECT_EQ(machine_memory_bytes(root.path()), 2 * kMiB);
}

TEST(FreeMemory, IsTheLeastThatIsLeftInAGroup) {
  const TemporaryFolder root;
  root.file("proc/meminfo", "MemTotal:  99999 kB\nMemFree:  7 kB\nMemAvailable:  8192 kB\nBuffers:  1 kB\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 8 * kMiB);
  root.file("proc/self/cgroup", "0::/slurm/job_7\n");
  root.file("sys/fs/cgroup/slurm/job_7/memory.max", "max\n");
  root.file("sys/fs/cgroup/slurm/job_7/memory.current", "99999999\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 8 * kMiB);
  // The group may have 6 MiB, and has 5, of which 2 hold files that can be read again.
  root.file("sys/fs/cgroup/slurm/memory.max", "6291456\n");
  root.file("sys/fs/cgroup/slurm/memory.current", "5242880\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 1 * kMiB);
  root.file("sys/fs/cgroup/slurm/memory.stat", "anon 3\ninactive_file 2097152\nactive_file 5\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 3 * kMiB);
  root.file("sys/fs/cgroup/slurm/memory.current", "9999999999\n");  // above the limit, which was lowered meanwhile
  EXPECT_EQ(free_memory_bytes(root.path()), 0U);
}

TEST(FreeMemory, IsLimitedByVersion1OfControlGroups) {
  const TemporaryFolder root;
  root.file("proc/meminfo", "MemAvailable:  8192 kB\n");
  root.file("proc/self/cgroup", "4:memory:/job\n");
  root.file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4194304\n");
  root.file("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3145728\n");
  root.file("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 9\ntotal_inactive_file 1048576\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 2 * kMiB);
}

}  // namespace
}  // namespace ddpxx::control_groups_test
