// tests/launch/started_program.hpp — a program that a test runs and observes from outside.
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

/// The output of a program and how it ended.
struct Ended {
  int code = 0;  ///< Exit code, or minus the signal.
  std::string out;
  std::string err;
};

/// The folder of the built programs: the environment variable DDPXX_BIN_DIR, or the build's folder.
inline std::string program_folder() {
  if (const char* folder = std::getenv("DDPXX_BIN_DIR")) return folder;
#ifdef DDPXX_BIN_DIR
  return DDPXX_BIN_DIR;
#else
  return "build/bin";
#endif
}

/// A running program whose output goes to files. The destructor kills it unless the test has waited for it.
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
    // Programs started by nohup or `&` ignore some of these signals.
    for (const int number : ddpxx::kStopSignals) ::signal(number, SIG_DFL);
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
  /// The file that receives the program's standard error.
  std::filesystem::path error_file() const { return folder_ / "err"; }
  void signal(int number) const { ::kill(pid_, number); }
  /// Stops the program, and waits until all of its threads are stopped: they run on until its first thread has got the
  /// signal, which may take a while on a busy machine.
  void stop() const {
    siginfo_t info{};
    signal(SIGSTOP);
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
  }
  /// True once the program has ended; `wait()` still returns its exit code.
  bool has_ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }

  /// Waits until `condition()` is true. Throws, with the program's standard error, if the program ends before that, or
  /// after two minutes.
  template <class Condition>
  void wait_until(const Condition& condition, const std::string& awaited) const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{2};
    while (!condition()) {
      const bool is_late = std::chrono::steady_clock::now() > latest, ended = has_ended();
      // The program may have done what is awaited just before its end.
      if ((is_late || ended) && !condition())
        throw std::runtime_error{"waited for " + awaited + (ended ? ": the program has ended" : " for two minutes") +
                                 "; its standard error:\n" + text_of(error_file())};
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
  }
  /// Waits until the file has at least `count` lines; throws as `wait_until` does.
  void wait_for_lines(const std::filesystem::path& path, std::size_t count) const {
    wait_until([&] { return lines_of(path) >= count; }, std::to_string(count) + " lines in " + path.string());
  }

  /// Waits until the program blocks the signal, as a launcher does, which reads its signals one at a time. Before, the
  /// signal would end the program at once. Throws as `wait_until` does.
  void wait_until_blocked(int number) const {
    wait_until(
        [&] {
          const std::string name = "SigBlk:", status = text_of("/proc/" + std::to_string(pid_) + "/status");
          const auto at = status.find(name);
          if (at == std::string::npos) return false;
          const auto blocked = std::stoull(status.substr(at + name.size()), nullptr, 16);
          return ((blocked >> (number - 1)) & 1U) != 0;
        },
        "signal " + std::to_string(number) + " to be blocked");
  }

  /// Sends the signal ten times a second until the program ends; throws as `wait()` does after two minutes. A program
  /// under load may read a signal so late that the next one seems to belong to the same request.
  Ended wait_while_signalling(int number) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{2};
    while (!has_ended() && std::chrono::steady_clock::now() < latest) {
      signal(number);
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
    return wait(std::chrono::seconds{0});
  }

  /// Waits for the end of the program. Throws, with its standard error, if it still runs after `limit`.
  Ended wait(std::chrono::seconds limit = std::chrono::minutes{10}) {
    const auto latest = std::chrono::steady_clock::now() + limit;
    while (!has_ended()) {
      if (std::chrono::steady_clock::now() > latest)
        throw std::runtime_error{"the program still runs after " + std::to_string(limit.count()) +
                                 " s; its standard error:\n" + text_of(error_file())};
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
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

/// Starts `ddpxx-run` with these arguments.
inline StartedProgram start_ddpxx_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program_folder() + "/ddpxx-run");
  return StartedProgram{std::move(arguments)};
}

inline Ended ddpxx_run(std::vector<std::string> arguments) { return start_ddpxx_run(std::move(arguments)).wait(); }
