// On a system that refuses new threads, a rank reports the limit instead of ending without a message.
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::thread_limit_test {
namespace {

using testing::HasSubstr;

/// Makes every later attempt of this process to start a thread or a process fail as at the system's limit. It cannot be
/// undone.
void refuse_threads() {
  constexpr auto refused = SECCOMP_RET_ERRNO | EAGAIN;
  std::array filter{sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},  // load the number of the system call
                    sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_clone3},
                    sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone},
                    sock_filter{BPF_RET | BPF_K, 0, 0, refused}, sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{filter.size(), filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

void expect_limit(const char* what_for, const std::function<void()>& connects) {
  try {
    connects();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    EXPECT_THAT(error.what(), HasSubstr(what_for));
    EXPECT_THAT(error.what(), HasSubstr("Resource temporarily unavailable (limit: ulimit -u"));
  }
}

TEST(ThreadLimit, IsNamedByARankThatCannotConnectOverGloo) {
  spawn_ranks(1, [](Group&) {
    refuse_threads();
    const Meeting meeting{.store = c10::make_intrusive<c10d::HashStore>(),
                          .host = "127.0.0.1",
                          .join_timeout = std::chrono::seconds{5},
                          .collective_timeout = std::chrono::seconds{5}};
    expect_limit("a group over Gloo", [&] { connect_gloo(meeting); });
  });
}

}  // namespace
}  // namespace ddpxx::thread_limit_test
