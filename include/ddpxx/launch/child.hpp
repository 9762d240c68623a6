// ddpxx/launch/child.hpp — a started program, with the processes that it starts.
#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/cpu_set.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/process_table.hpp>

namespace ddpxx {

/// How to start a program. The caller keeps the descriptors.
struct ChildStart {
  std::string path;  ///< Path of the executable file.
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< Texts `NAME=value`.
  int input = -1;
  int output = -1;
  int error = -1;
  detail::CpuSet processors = {};  ///< Where the program may run; empty: where this process may.
  std::vector<int> kept = {};      ///< Descriptors that stay open in the program under their numbers.
  /// The program's limit of open descriptors; none: that of this process.
  std::optional<rlimit> descriptor_limit = {};
};

/// The environment of this process, as `ChildStart` takes it.
inline std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

/// The file that `program` names, searched in PATH as a shell does.
/// Errors  `config` if there is no such file, it is not executable, or the system refuses access to the path.
inline std::string find_program(const std::string& program);

/// A started program in a process group of its own. The destructor kills the group. The program is also killed if the
/// thread that started it ends. After its end it stays a zombie until the destructor, so that its number is not reused.
class Child {
 public:
  /// Starts the program.
  /// Errors  `config` if the file cannot be executed; `peer` if the system cannot start a process.
  explicit Child(const ChildStart& start);
  Child(Child&& other) noexcept : pid_{std::exchange(other.pid_, 0)} {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ == 0) return;
    send_signal(SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid() const noexcept { return pid_; }

  /// The exit code, or minus the number of the signal that ended the program; none while it runs.
  std::optional<int> ended() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return std::nullopt;
    return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
  }

  /// True while a signal such as SIGSTOP keeps the program from running.
  bool is_stopped() const {
    const auto entry = process_entry(pid_);
    return entry && entry->state == 'T';
  }

  /// Sends a signal to the program and the processes that it has started.
  void send_signal(int number) const noexcept { ::kill(-pid_, number); }

  /// Sends a signal on which a program of ddpxx ends at once, instead of after a step. The program may get it twice.
  void end(int number) const noexcept {
    ::sigqueue(pid_, number, sigval{.sival_int = kEndAtOnce});
    send_signal(number);
  }

 private:
  pid_t pid_ = 0;
};

namespace detail {

inline std::vector<char*> c_texts(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Says why a program could not be executed, for an errno of execve(2).
inline std::string execution_failure(const std::string& path, int why) {
  if (why == ENOEXEC) return std::string{std::strerror(why)} + "; a script needs a first line such as #!/bin/sh";
  if (why != ENOENT) return std::strerror(why);
  // find_program() has found the file, so what is missing is the program that executes it.
  constexpr std::size_t kMaxLine = 256;  // The kernel reads no more of the first line.
  std::string line(kMaxLine, '\0');
  std::ifstream file{path, std::ios::binary};
  if (!file) return std::strerror(why);  // Another process may have removed it, or this user may not read it.
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  if (!line.starts_with("#!")) return "its dynamic loader or another part that it needs does not exist";
  line.resize(std::min(line.find('\n'), line.size()));
  const bool is_of_windows = line.ends_with('\r');
  if (is_of_windows) line.pop_back();
  return "the interpreter of its first line, " + line +
         (is_of_windows ? ", does not exist, since the line ends with a carriage return as on Windows: remove it"
                        : ", does not exist");
}

/// Why a file cannot be executed.
struct ExecutionObstacle {
  bool is_missing;  ///< There is no such file.
  std::string why;
};

/// None if the file can be executed.
inline std::optional<ExecutionObstacle> execution_obstacle(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const bool is_missing = errno == ENOENT || errno == ENOTDIR;
    return ExecutionObstacle{is_missing, is_missing ? "there is no such file" : std::strerror(errno)};
  }
  if (S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0) return std::nullopt;
  return ExecutionObstacle{false, "it is not an executable file"};
}

/// Turns the new process into the program. It calls only functions that are safe between fork and exec.
[[noreturn]] inline void become(const ChildStart& start, char* const* arguments, char* const* environment,
                                const CpuMask& processors, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD, SIGXFSZ})
    ::signal(number, SIG_DFL);
  ::signal(SIGTTOU, SIG_IGN);  // to a terminal it is a background job, which SIGTTOU would stop at a write
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool is_bound = start.processors.empty() || processors.bind();
  for (const int descriptor : start.kept) ::fcntl(descriptor, F_SETFD, 0);
  if (start.descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*start.descriptor_limit);
  if (is_bound && ::dup2(start.input, 0) >= 0 && ::dup2(start.output, 1) >= 0 && ::dup2(start.error, 2) >= 0)
    ::execve(start.path.c_str(), arguments, environment);
  const int why = errno;
  [[maybe_unused]] const auto written = ::write(report, &why, sizeof why);
  ::_exit(127);
}

}  // namespace detail

inline Child::Child(const ChildStart& start) {
  const auto arguments = detail::c_texts(start.arguments), environment = detail::c_texts(start.environment);
  const detail::CpuMask processors{start.processors};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error{Errc::peer, "cannot start " + start.path + ": " + std::strerror(errno) + " (limit: ulimit -n)"};
  const Descriptor from_child{ends[0]};
  Descriptor to_parent{ends[1]};
  const pid_t self = ::getpid(), pid = ::fork();
  if (pid < 0)
    throw Error{Errc::peer, "cannot start " + start.path + ": " + std::strerror(errno) + " (limit: ulimit -u)"};
  if (pid == 0) detail::become(start, arguments.data(), environment.data(), processors, self, to_parent.get());
  pid_ = pid;
  ::setpgid(pid, pid);  // parent and child both set it, so that it is set before either goes on
  to_parent.close();
  int why = 0;
  ssize_t size = 0;
  do size = ::read(from_child.get(), &why, sizeof why);
  while (size < 0 && errno == EINTR);
  if (size <= 0) return;  // exec has closed the other end: the program runs
  ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  throw Error{Errc::config, "cannot run " + start.path + ": " + detail::execution_failure(start.path, why)};
}

inline std::string find_program(const std::string& program) {
  namespace fs = std::filesystem;
  if (program.empty()) throw Error{Errc::config, "the name of the program is empty: write it after the flags"};
  if (program.find('/') != std::string::npos) {
    if (const auto obstacle = detail::execution_obstacle(program))
      throw Error{Errc::config, "cannot run " + program + ": " + obstacle->why};
    return program;
  }
  std::string refusal;  // of the first file that exists, or may exist
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const auto end = folders.find(':');
    const std::string folder{folders.substr(0, end)};
    const std::string path = (folder.empty() ? "." : folder) + '/' + program;
    const auto obstacle = detail::execution_obstacle(path);
    if (!obstacle) return path;
    if (refusal.empty() && !obstacle->is_missing) refusal = path + ": " + obstacle->why;
    if (end == std::string_view::npos) break;
    folders.remove_prefix(end + 1);
  }
  std::error_code ignored;
  throw Error{Errc::config, "cannot run " + program + ": " +
                                (refusal.empty() ? "it is in no folder of PATH"
                                                 : "PATH has no executable file of this name; " + refusal) +
                                (fs::exists(program, ignored) ? "; for the file here write ./" + program : "")};
}

}  // namespace ddpxx
