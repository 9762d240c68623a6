// embed_host.cpp — a program that owns its process: it has its own main(), threads and log, trains models with ddpxx in
// between, and ends by a return from main(). It prints each violated expectation and then returns 1.
//
//     embed_host FOLDER                     the host, which is rank 0 and starts its peers
//     embed_host peer FOLDER PORT FAILING   a peer, which is rank 1; it dies after FAILING steps (0: never)
#include <array>
#include <atomic>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/train/trainer.hpp>

#include "points.hpp"

namespace {

using Train = ddpxx::Trainer<embed::Line, embed::Points>;

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::cout << "embed_host: FAILED: " << what << std::endl;
}

/// Its destructor runs when the process ends by a return from main(), but not when _Exit ends it.
struct EndOfHost {
  bool is_host = false;
  ~EndOfHost() {
    if (is_host) std::puts("embed_host: static destructors ran");
  }
} end_of_host;

/// The state of the whole process, which belongs to the host.
struct ProcessState {
  std::array<void (*)(int), 32> handlers{};
  std::array<bool, 32> is_blocked{};
  int threads = at::get_num_threads();
  std::string locale = std::setlocale(LC_ALL, nullptr);
  std::streambuf* out = std::cout.rdbuf();
  std::ios::fmtflags out_flags = std::cout.flags();
  int backend_log = FLAGS_caffe2_log_level;

  ProcessState() {
    ::sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (int number = 1; number < 32; ++number) {
      struct ::sigaction action {};
      ::sigaction(number, nullptr, &action);
      handlers[static_cast<std::size_t>(number)] = action.sa_handler;
      is_blocked[static_cast<std::size_t>(number)] = ::sigismember(&mask, number) == 1;
    }
  }
  friend bool operator==(const ProcessState&, const ProcessState&) = default;
};

/// The host's log; any thread may write to it.
class HostLog {
 public:
  void add(const ddpxx::LogLine& line) {
    const std::lock_guard lock{mutex_};
    lines_.append(line.text).push_back('\n');
  }
  bool has(const std::string& text) const {
    const std::lock_guard lock{mutex_};
    return lines_.find(text) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string lines_;
};

/// A thread of the host that works during the trainings.
class OtherWork {
 public:
  std::int64_t done() const { return done_; }

 private:
  std::atomic<std::int64_t> done_ = 0;
  std::jthread thread_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ++done_;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }};
};

/// Rank 1, which runs in another process.
class Peer {
 public:
  Peer(const std::string& folder, std::uint16_t port, int failing_step) {
    std::vector<std::string> words{"embed_host", "peer", folder, std::to_string(port), std::to_string(failing_step)};
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    expect(::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) == 0, "a peer starts");
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { end(); }

  /// Waits for the process; returns its exit code, or minus the signal that ended it.
  int end() {
    int status = 0;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

/// Connects a rank at `port`, where rank 0 listens with the socket `listener`.
ddpxx::Group connect(int rank, std::uint16_t port, const ddpxx::Descriptor& listener = {}) {
  ddpxx::ConnectOptions options;
  if (listener) options.listening_socket = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  return ddpxx::connect("tcp://127.0.0.1:" + std::to_string(port),
                        {.rank = ddpxx::Rank{rank},
                         .world_size = ddpxx::WorldSize{2},
                         .local_rank = ddpxx::LocalRank{rank},
                         .local_world_size = ddpxx::LocalWorldSize{2}},
                        options);
}

Train::Config config(const std::string& folder, std::int64_t max_steps) {
  Train::Config result;
  result.batch_size = 4;
  result.num_workers = 1;
  result.training = {.max_steps = max_steps, .max_epochs = 0, .save_dir = folder, .save_every = 2};
  result.snapshot.writing = ddpxx::SnapshotWriting::background;
  result.optimizer.learning_rate = 0.01;
  return result;
}

/// Trains step by step; calls `between` with the number of the step before each step.
template <class Between>
void train(ddpxx::Group& group, const Train::Config& settings, const Between& between) {
  std::ostringstream screen;
  Train trainer{group,
                std::make_shared<embed::Line>(),
                std::make_shared<embed::Points>(),
                settings,
                /*record=*/{},
                {.screen = &screen}};
  trainer.resume();
  while (!trainer.finished()) {
    between(trainer.steps_done());
    trainer.step();
    if (trainer.save_due()) trainer.save();
  }
  trainer.close();
  expect(trainer.steps_done() == settings.training.max_steps, "a training comes to its end");
}

int be_peer(const std::string& folder, std::uint16_t port, int failing_step) {
  auto group = connect(1, port);
  train(group, config(folder, 6), [&](std::int64_t step) {
    if (failing_step > 0 && step == failing_step) ::raise(SIGKILL);
  });
  group.leave();
  return failures;
}

/// Trains with a peer, and leaves the group in order.
void train_with_peer(const std::string& folder, const OtherWork& other) {
  const auto listener = ddpxx::listen_on_loopback();
  const auto port = ddpxx::SocketAddress::of_socket(listener.get()).port();
  Peer peer{folder, port, 0};
  auto group = connect(0, port, listener);
  const auto before = other.done();
  train(group, config(folder, 6), [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds{5}); });
  expect(other.done() > before, "the host's other work goes on");
  group.leave(std::chrono::seconds{60});
  expect(peer.end() == 0, "the peer ends well");
}

/// Loses the peer in the middle of a training.
void lose_peer(const std::string& folder) {
  const auto listener = ddpxx::listen_on_loopback();
  const auto port = ddpxx::SocketAddress::of_socket(listener.get()).port();
  Peer peer{folder, port, 3};
  auto group = connect(0, port, listener);
  std::optional<ddpxx::Error> error;
  try {
    train(group, config(folder, 6), [](std::int64_t) {});
  } catch (const ddpxx::Error& caught) {
    error = caught;
  }
  expect(error && error->code() == ddpxx::Errc::peer, "a lost rank is an error `peer`");
  expect(peer.end() == -SIGKILL, "the peer was killed");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words{argv + 1, argv + argc};
  if (words.size() == 4) return be_peer(words[1], static_cast<std::uint16_t>(std::stoi(words[2])), std::stoi(words[3]));
  if (words.size() != 1) return 2;
  end_of_host.is_host = true;
  const auto first = words[0] + "/first", second = words[0] + "/second";

  HostLog log;
  ddpxx::set_log_sink([&](const ddpxx::LogLine& line) { log.add(line); });
  at::set_num_threads(2);
  const ProcessState before;
  const OtherWork other;

  train_with_peer(first, other);
  expect(std::filesystem::exists(first + "/step-00000006"), "the first training has saved");
  expect(ProcessState{} == before, "the first training leaves the process as it was");

  lose_peer(second);
  expect(ProcessState{} == before, "a lost rank leaves the process as it was");

  // The second training runs in another thread of the host and continues where the first one ended.
  std::thread{[&] {
    ddpxx::Group alone;
    train(alone, config(first, 9), [](std::int64_t) {});
  }}.join();
  expect(log.has("resumed at step 6"), "log lines come to the host's log");
  expect(ProcessState{} == before, "the second training leaves the process as it was");

  ddpxx::set_log_sink({});
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::cout << "embed_host: FAILED: " << error.what() << std::endl;
  return 1;
}
