// ddpxx/launch/agent/guardian.hpp — a small process that ends the ranks when their launcher has been killed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <string>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// Reads process groups from standard input: a positive number starts to watch a group, its negative stops. At the end
/// of the input, kills the groups that are still watched.
[[noreturn]] inline void guard(std::vector<pid_t>& groups) {
  pid_t group = 0;
  while (true) {
    const auto size = ::read(STDIN_FILENO, &group, sizeof group);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof group) break;
    if (group > 0)
      groups.push_back(group);
    else
      groups.erase(std::remove(groups.begin(), groups.end(), -group), groups.end());
  }
  for (const pid_t left : groups) ::kill(-left, SIGKILL);
  ::_exit(0);
}

/// A process that kills the process groups of the ranks if the launcher ends without having ended them, as by SIGKILL.
/// The kernel kills only the first process of each rank then (PR_SET_PDEATHSIG); if that is a shell, the program behind
/// it would run on. Make a Guardian before any thread, since it forks.
class Guardian {
 public:
  /// A process group that is watched while this handle lives. The handle must end before the group's number may be
  /// reused.
  class Watch {
   public:
    Watch() = default;
    Watch(const Guardian& guardian, pid_t group) : guardian_{&guardian}, group_{group} { guardian.send(group); }
    Watch(Watch&& other) noexcept : guardian_{other.guardian_}, group_{std::exchange(other.group_, 0)} {}
    Watch& operator=(Watch&& other) noexcept {
      std::swap(guardian_, other.guardian_);
      std::swap(group_, other.group_);
      return *this;
    }
    ~Watch() {
      if (group_ != 0) guardian_->send(-group_);
    }

   private:
    const Guardian* guardian_ = nullptr;
    pid_t group_ = 0;
  };

  /// Errors  `peer` if the system cannot start a process.
  Guardian() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error{Errc::peer,
                  "no pipe to watch the ranks: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
    const Descriptor read_end{ends[0]};
    write_end_ = Descriptor{ends[1]};
    std::vector<pid_t> groups;
    groups.reserve(kMaxGroups);  // the new process allocates nothing
    pid_ = ::fork();
    if (pid_ < 0)
      throw Error{Errc::peer,
                  "no process to watch the ranks: " + std::string{std::strerror(errno)} + " (limit: ulimit -u)"};
    if (pid_ > 0) return;
    ::setpgid(0, 0);  // signals to the launcher's process group must not end it
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    ::prctl(PR_SET_NAME, "ddpxx-guardian");
    ::dup2(read_end.get(), STDIN_FILENO);
    if (::close_range(STDOUT_FILENO, std::numeric_limits<unsigned>::max(), 0) != 0)
      for (int fd = STDOUT_FILENO; fd < 4'096; ++fd) ::close(fd);  // a kernel before 5.9
    guard(groups);
  }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian() {
    write_end_.close();
    ::kill(pid_, SIGCONT);  // it may be stopped
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

 private:
  static constexpr std::size_t kMaxGroups = 8'192;  // more than the ranks of one machine

  /// Sends a group to the guardian's process. If that was killed, the ranks go on unwatched.
  void send(pid_t group) const {
    while (::write(write_end_.get(), &group, sizeof group) < 0 && errno == EINTR) {
    }
  }

  Descriptor write_end_;
  pid_t pid_ = -1;
};

}  // namespace ddpxx::detail
