// without_threads.hpp — runs a part of a test where the system gives no thread.
#pragma once

#include <array>
#include <cerrno>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>

/// Calls `body` in a thread of its own, in which each attempt to start a thread or a process fails as at the system's
/// limit, also for root. `body` must not throw. Other threads are not affected.
inline void without_threads(const std::function<void()>& body) {
  std::thread{[&] {
    constexpr auto refused = SECCOMP_RET_ERRNO | EAGAIN;
    std::array filter{sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},  // load the number of the system call
                      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_clone3},
                      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone},
                      sock_filter{BPF_RET | BPF_K, 0, 0, refused},
                      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    const sock_fprog program{filter.size(), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      throw std::runtime_error{"the system takes no filter of system calls"};
    body();
  }}.join();
}
