#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/launch/agent/oom_kills.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::oom_kills_test {
namespace {

using namespace detail;
using testing::HasSubstr;

TEST(OomKills, AreThoseOfOurCgroupOrElseOfTheMachine) {
  const TemporaryFolder root;
  EXPECT_FALSE(oom_kills(root.path())) << "no file with a count exists";
  root.file("proc/vmstat", "nr_free_pages 7\noom_kill 5\nballoon 1\n");
  EXPECT_EQ(oom_kills(root.path()).value().count, 5);
  root.file("proc/self/cgroup", "1:name=old:/\n0::/user/job 7\n");
  EXPECT_EQ(oom_kills(root.path()).value().count, 5) << "in cgroup version 1 the machine's count is used";
  const auto events = root.file("sys/fs/cgroup/user/job 7/memory.events", "low 0\noom 9\noom_kill 2\n");
  EXPECT_EQ(oom_kills(root.path()).value().count, 2);
  EXPECT_EQ(oom_kills(root.path()).value().file, events);
}

TEST(OomKills, ExplainASigkillIfTheirCountHasGrown) {
  const OomKills before{"/sys/fs/cgroup/memory.events", 1}, after{"/sys/fs/cgroup/memory.events", 2};
  EXPECT_THAT(kill_hint(before, after), HasSubstr("the kernel has killed 1 process meanwhile (oom_kill in "
                                                  "/sys/fs/cgroup/memory.events)"));
  for (const auto& hint : {kill_hint(before, before), kill_hint({}, after)})
    EXPECT_EQ(hint, "SIGKILL comes from the kernel when memory runs out, or from a kill command");
}

}  // namespace
}  // namespace ddpxx::oom_kills_test
