// ddpxx/testing.hpp — ranks for unit tests: `spawn_ranks(n, body)` runs body on n ranks that really communicate.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/backend_log.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/each_entry.hpp>

namespace ddpxx {

/// Processes are forked: they share nothing, and a crash ends one of them only. Threads start faster, but share what a
/// process has once: the default random generator, the autocast cache.
enum class Ranks { processes, threads };

struct SpawnOptions {
  Ranks ranks = Ranks::processes;
  std::chrono::milliseconds deadline = std::chrono::seconds{60};
  /// The device of each rank, as `pick_device` reads it: cpu, cuda or auto. The ranks share the GPUs of this host. With
  /// Backend::automatic, `auto` is the CPU where there are fewer GPUs than ranks, because NCCL needs a GPU for each.
  std::string device = "cpu";
  /// How processes meet. Threads meet over Gloo, or over shared memory if this says so.
  ConnectConfig comm = {.backend = Backend::gloo};
};

namespace detail {

// GoogleTest counts failed assertions per process; in a forked rank somebody has to carry the count to the parent.
// Weak: a test program without GoogleTest has no such functions.
[[gnu::weak]] extern bool test_has_fatal_failure() __asm__("_ZN7testing4Test15HasFatalFailureEv");
[[gnu::weak]] extern bool test_has_nonfatal_failure() __asm__("_ZN7testing4Test18HasNonfatalFailureEv");

inline bool assertion_failed() {
  return (test_has_fatal_failure != nullptr && test_has_fatal_failure()) ||
         (test_has_nonfatal_failure != nullptr && test_has_nonfatal_failure());
}

struct RankFailure {
  int rank;
  Errc code;
  std::string text;
  bool is_cause;  ///< False for a rank that says that a peer is gone, and for one that had to be ended.
};

[[noreturn]] inline void throw_failures(std::vector<RankFailure> failures) {
  std::stable_partition(failures.begin(), failures.end(), [](const auto& failure) { return failure.is_cause; });
  std::string text;
  for (const auto& failure : failures)
    text += (text.empty() ? "rank " : "\nrank ") + std::to_string(failure.rank) + ": " + failure.text;
  throw Error{failures.front().code, text};
}

/// Why a rank ends with an exception. One of ddpxx with the code `peer` says that another rank is the cause.
inline RankFailure failure_of(int rank, const std::exception& cause) {
  const auto error = as_error(cause, Errc::peer);
  const bool blames_a_peer = error.code() == Errc::peer && dynamic_cast<const Error*>(&cause) != nullptr;
  return {rank, error.code(), error.what(), !blames_a_peer};
}

/// What `auto` means for `world_size` ranks on a host with `gpus` GPUs.
inline const char* auto_device(Backend backend, int world_size, int gpus) {
  return backend == Backend::automatic && gpus > 0 && gpus < world_size ? "cpu" : "auto";
}

/// What a forked rank does; returns the byte string that goes to the parent: empty, or the code, whether the rank is
/// the cause, and the text.
template <class Body>
std::string run_rank(const RankInfo& rank_info, std::uint16_t port, int listener, const std::string& token,
                     const SpawnOptions& spawn, Body& body) {
  const auto report = [](const RankFailure& failure) {
    return std::string{static_cast<char>(failure.code), static_cast<char>(failure.is_cause)} + failure.text;
  };
  try {
    // A fork after an OpenMP region hangs in the next one; one thread never enters one.
    at::set_num_threads(1);
    const auto wish =
        spawn.device == "auto" ? auto_device(spawn.comm.backend, rank_info.world_size.value, num_gpus()) : spawn.device;
    ConnectOptions options{spawn.comm, pick_device(wish, rank_info, spawn.comm.backend)};
    options.listening_socket = listener;
    options.credentials.token = token;
    quiet_backend_log();
    auto group = connect("tcp://127.0.0.1:" + std::to_string(port), rank_info, options);
    body(group);
    if (assertion_failed()) return report({rank_info.rank.value, Errc::data, "an assertion failed, see above", true});
    group.leave();
  } catch (const std::exception& cause) {
    auto failure = failure_of(rank_info.rank.value, cause);
    // A test may expect the exception, and must fail by the assertion nevertheless.
    if (assertion_failed())
      failure = {failure.rank, Errc::data, "an assertion failed, see above; then: " + failure.text, true};
    return report(failure);
  }
  return {};
}

template <class Body>
void spawn_processes(int world_size, Body& body, const SpawnOptions& options) {
  struct Child {
    pid_t pid;
    int pipe;
    std::string report;
    bool open = true;
  };
  auto listener = listen_on_loopback();
  const auto port = SocketAddress::of_socket(listener.get()).port();
  const auto token = make_secret();
  std::vector<Child> children;
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error{Errc::peer, "no pipe for a rank"};
    const pid_t pid = ::fork();
    if (pid < 0) throw Error{Errc::peer, "no process for a rank"};
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) std::_Exit(1);  // the parent has ended before it could be watched
      ::close(ends[0]);
      const int own_listener = rank == 0 ? ::dup(listener.get()) : -1;
      listener.close();
      const RankInfo rank_info{.rank = Rank{rank},
                               .world_size = WorldSize{world_size},
                               .local_rank = LocalRank{rank},
                               .local_world_size = LocalWorldSize{world_size}};
      const auto report = run_rank(rank_info, port, own_listener, token, options, body);
      std::fflush(nullptr);
      const bool sent = ::write(ends[1], report.data(), report.size()) == static_cast<ssize_t>(report.size());
      // Neither destructors nor atexit handlers: they belong to the parent, and a backend may still hold threads.
      std::_Exit(report.empty() && sent ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0], {}});
  }
  listener.close();

  auto until = std::chrono::steady_clock::now() + options.deadline;
  bool failed = false;
  std::vector<RankFailure> failures;
  const auto is_open = [](const Child& child) { return child.open; };
  while (std::any_of(children.begin(), children.end(), is_open) && std::chrono::steady_clock::now() < until) {
    for (int rank = 0; rank < world_size; ++rank) {
      auto& child = children[static_cast<std::size_t>(rank)];
      pollfd ready{child.pipe, POLLIN, 0};
      if (!child.open || ::poll(&ready, 1, 5) <= 0) continue;
      char bytes[4096];
      const auto count = ::read(child.pipe, bytes, sizeof bytes);
      if (count > 0) {
        child.report.append(bytes, static_cast<std::size_t>(count));
        continue;
      }
      child.open = false;
      int status = 0;
      ::waitpid(child.pid, &status, 0);
      if (WIFSIGNALED(status)) {
        failures.push_back({rank, Errc::peer, "ended by signal " + std::to_string(WTERMSIG(status)), true});
      } else if (child.report.size() > 1) {
        const auto code = static_cast<Errc>(child.report.front());
        failures.push_back({rank, code, child.report.substr(2), child.report[1] != 0});
      } else if (status != 0) {
        failures.push_back({rank, Errc::peer, "exited with code " + std::to_string(WEXITSTATUS(status)), true});
      }
      if (!failures.empty() && !std::exchange(failed, true))
        // The others notice a lost peer by themselves; a rank that does not is hung.
        until = std::min(until, std::chrono::steady_clock::now() + std::chrono::seconds{5});
    }
  }
  for (int rank = 0; rank < world_size; ++rank) {
    auto& child = children[static_cast<std::size_t>(rank)];
    if (child.open) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
      failures.push_back(
          {rank, Errc::peer,
           "still running " +
               std::string{failed ? "5 s after another rank failed"
                                  : "at the deadline of " + std::to_string(options.deadline.count()) + " ms"} +
               ", killed",
           false});
    }
    ::close(child.pipe);
  }
  if (!failures.empty()) throw_failures(std::move(failures));
}

/// Whether this process has opened a device of NVIDIA's driver, which CUDA keeps open from its start on. `descriptors`
/// is the folder of the process's descriptors. Asking LibTorch instead would start CUDA.
inline bool has_opened_gpu(const std::filesystem::path& descriptors = "/proc/self/fd") {
  bool has_opened = false;
  each_entry(descriptors, [&](const auto& descriptor) {
    std::error_code closed;
    has_opened |= std::filesystem::read_symlink(descriptor, closed).string().starts_with("/dev/nvidia");
  });
  return has_opened;
}

/// Turns off c10d's flight recorder, which is one for the process and not safe to use from the threads of several
/// groups: it crashes now and then. It reads the environment when the first group is made.
inline void disable_flight_recorder() { ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0); }

template <class Body>
void spawn_threads(int world_size, Body& body, const SpawnOptions& options) {
  disable_flight_recorder();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::vector<RankFailure> failures;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        const auto device = pick_device(options.device, {.local_rank = LocalRank{rank}}, Backend::gloo);
        // A thread cannot be killed: the collectives' timeout is what ends a hang.
        const auto& limit = options.deadline;
        const Meeting meeting{store, "127.0.0.1", rank, world_size, limit, limit};
        Group group = world_size == 1                                  ? Group{{}, {}, device}
                      : options.comm.backend == Backend::shared_memory ? connect_shared_memory(meeting)
                                                                       : connect_gloo(meeting, device);
        body(group);
        group.leave();
      } catch (const std::exception& cause) {
        const std::lock_guard lock{mutex};
        failures.push_back(failure_of(rank, cause));
      }
    });
  for (auto& thread : threads) thread.join();
  if (!failures.empty()) throw_failures(std::move(failures));
}

}  // namespace detail

/// Runs `body(group)` on `world_size` ranks that communicate on the loopback interface, over Gloo unless `options.comm`
/// says otherwise, and waits for them.
/// Ranks   GoogleTest assertions work inside `body` and name no rank by themselves.
/// Errors  the failing rank's own error, prefixed with its rank; `peer` for a rank that a signal has ended, and for one
///         that runs at the deadline, which is killed and named; `data` for a failed assertion;
///         `config` for processes in a program that has used a GPU before.
template <class Body>
  requires std::invocable<Body&, Group&>
void spawn_ranks(int world_size, Body body, const SpawnOptions& options = {}) {
  if (world_size < 1) throw Error{Errc::config, "spawn_ranks: a world has at least one rank"};
  if (options.ranks == Ranks::threads) return detail::spawn_threads(world_size, body, options);
  if (detail::has_opened_gpu())
    throw Error{Errc::config,
                "spawn_ranks: this program has used a GPU, which does not survive a fork: use the GPU in the ranks "
                "only, or use Ranks::threads"};
  detail::spawn_processes(world_size, body, options);
}

}  // namespace ddpxx
