// tests/launch/started_program.hpp — a program of ours that a test runs and watches from outside.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/stop_signals.hpp>

#include "../temporary_folder.hpp"

/// What a program has said and how it ended.
struct Ended {
  int code = 0;  ///< Exit code, or minus the signal.
  std::string out;
  std::string err;
};

/// The folder of the programs: the environment's DDPXX_BIN_DIR, or the build's.
inline std::string program_folder() {
  if (const char* folder = std::getenv("DDPXX_BIN_DIR")) return folder;
#ifdef DDPXX_BIN_DIR
  return DDPXX_BIN_DIR;
#else
  return "build/bin";
#endif
}

/// A running program with its output in files. Killed when the test leaves without waiting for it.
class StartedProgram {
 public:
  explicit StartedProgram(std::vector<std::string> command) {
    std::vector<char*> arguments;
    for (auto& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const auto out = (folder_ / "out").string(), err = (folder_ / "err").string();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error{"fork failed"};
    if (pid_ != 0) return;
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    for (const int number : ddpxx::kStopSignals) ::signal(number, SIG_DFL);  // nohup and `&` have them ignored
    ::execv(arguments[0], arguments.data());
    ::_exit(99);
  }
  StartedProgram(const StartedProgram&) = delete;
  StartedProgram& operator=(const StartedProgram&) = delete;
  ~StartedProgram() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  /// Where its standard error goes.
  std::filesystem::path error_file() const { return folder_ / "err"; }
  void signal(int number) const { ::kill(pid_, number); }

  /// Waits until the file holds as many lines; the test's own time limit ends a wait in vain.
  static void wait_for_lines(const std::filesystem::path& path, std::size_t count) {
    while (lines_of(path) < count) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }

  Ended wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text_of(folder_ / "out"),
            text_of(folder_ / "err")};
  }

  static std::string text_of(const std::filesystem::path& path) {
    return (std::ostringstream{} << std::ifstream{path}.rdbuf()).str();
  }

 private:
  static std::size_t lines_of(const std::filesystem::path& path) {
    std::size_t count = 0;
    for (const char c : text_of(path)) count += c == '\n' ? 1 : 0;
    return count;
  }

  TemporaryFolder folder_;
  pid_t pid_ = 0;
};

/// Runs `ddpxx-run` with these arguments to its end.
inline StartedProgram start_ddpxx_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program_folder() + "/ddpxx-run");
  return StartedProgram{std::move(arguments)};
}

inline Ended ddpxx_run(std::vector<std::string> arguments) { return start_ddpxx_run(std::move(arguments)).wait(); }
