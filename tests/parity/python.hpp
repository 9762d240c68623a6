// tests/parity/python.hpp — runs the Python side of a comparison.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

/// The process that python_server.py describes, by the interpreter that CTest names in DDPXX_PYTHON. It may write
/// Python's bytecode cache, because the first import of torch is slow.
class PythonServer {
 public:
  explicit PythonServer(const std::filesystem::path& folder) : folder_{folder} {
    const char* given = std::getenv("DDPXX_PYTHON");
    const std::string interpreter = given != nullptr ? given : "python3", script = folder_ / "python_server.py";
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error{"no socket"};
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error{"no process"};
    if (process_ == 0) {
      ::dup2(ends[1], STDIN_FILENO);
      ::dup2(ends[1], STDOUT_FILENO);
      ::unsetenv("PYTHONDONTWRITEBYTECODE");
      ::execlp(interpreter.c_str(), interpreter.c_str(), script.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    socket_ = ends[0];
    answers_ = ::fdopen(ends[0], "r");
  }
  PythonServer(const PythonServer&) = delete;
  PythonServer& operator=(const PythonServer&) = delete;
  ~PythonServer() {
    std::fclose(answers_);
    ::waitpid(process_, nullptr, 0);
  }

  /// Runs a script, relative to the folder, and returns what it prints.
  std::string run(std::string_view script, const std::vector<std::string>& arguments) {
    const std::lock_guard lock{mutex_};
    std::vector<std::string> words{folder_ / script};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const auto request = nlohmann::json(words).dump();
    std::string answer;
    if (::send(socket_, (request + '\n').data(), request.size() + 1, MSG_NOSIGNAL) ==
        static_cast<ssize_t>(request.size() + 1))
      for (int c = std::fgetc(answers_); c != EOF && c != '\n'; c = std::fgetc(answers_))
        answer += static_cast<char>(c);
    if (answer.empty()) throw std::runtime_error{"python_server.py has ended during " + request};
    const auto parts = nlohmann::json::parse(answer);
    if (parts["code"] != 0)
      throw std::runtime_error{"failed with " + parts["code"].dump() + ": " + request + '\n' +
                               parts["output"].get<std::string>()};
    return parts["output"];
  }

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::FILE* answers_ = nullptr;
};

/// Runs a script and returns what it prints. `script` is relative to this folder. The scripts of a test program share
/// one PythonServer.
inline std::string run_python(std::string_view script, const std::vector<std::string>& arguments) {
  static PythonServer server{std::filesystem::absolute(__FILE__).parent_path()};
  return server.run(script, arguments);
}
