// This process receives orphans as process 1 of a container does.
#include <array>
#include <cerrno>
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/launch/agent/collect_orphans.hpp>

namespace ddpxx::collect_orphans_test {
namespace {

using namespace detail;

/// A child process that has ended and has not been waited for.
pid_t ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(7);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  return pid;
}
bool waits_to_be_collected(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

TEST(CollectOrphans, CollectsOrphansAndLeavesOurOwnToTheirOwner) {
  const std::array own = {ended_process()};  // waitid() would return this process before the orphan
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const pid_t orphan = ended_process();
    ::_exit(::write(ends[1], &orphan, sizeof orphan) == sizeof orphan ? 0 : 1);
  }
  pid_t orphan = 0;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  ::waitpid(parent, nullptr, 0);
  ASSERT_TRUE(waits_to_be_collected(orphan));
  collect_orphans(own);
  EXPECT_FALSE(waits_to_be_collected(orphan));
  EXPECT_TRUE(waits_to_be_collected(own[0]));
  ::waitpid(own[0], nullptr, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace ddpxx::collect_orphans_test
