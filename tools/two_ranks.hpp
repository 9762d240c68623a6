// two_ranks.hpp — two ranks on this machine, for commands that no launcher has started.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/host_address.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

/// Waits for the end of all ranks; when one has failed, ends the others, which may wait for it. Returns the exit code
/// of the rank that failed first, or 0.
inline int wait_for_ranks(std::span<pid_t> ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPeerGrace{2};  // in which a rank may say that it has lost its peer
  constexpr std::chrono::milliseconds kPause{10};
  int failed = 0;
  std::optional<Clock::time_point> until;
  for (std::size_t left = ranks.size(); left > 0;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, until ? WNOHANG : 0);
    if (ended == 0) {
      if (Clock::now() >= *until)
        for (const pid_t rank : ranks)
          if (rank > 0) ::kill(rank, SIGKILL);
      std::this_thread::sleep_for(kPause);
      continue;
    }
    if (ended < 0 && errno == ECHILD) break;  // SIGCHLD is ignored, so that the system keeps no exit codes
    const auto found = std::ranges::find(ranks, ended);
    if (found == ranks.end()) continue;
    *found = 0;  // the system may give the number to another process
    --left;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ddpxx::Errc::peer);
    if (code == 0 || failed != 0) continue;
    failed = code;
    until = Clock::now() + kPeerGrace;
  }
  return failed;
}

/// Runs `body(group)` on two forked ranks that meet on the loopback interface. The caller must have no threads, and
/// must not have used a GPU. The output of the ranks goes to this program's.
/// Errors  that of a rank which failed: its exit code, and its text, which says that it was printed.
template <class Body>
void run_on_two_ranks(std::string_view device, const ddpxx::ConnectConfig& config, Body body) {
  using namespace ddpxx;
  constexpr int kRanks = 2;
  auto listener = listen_on_loopback();
  const auto port = SocketAddress::of_socket(listener.get()).port();
  const auto token = make_secret();
  std::array<pid_t, kRanks> children{};
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& child = children[static_cast<std::size_t>(rank)];
    child = ::fork();
    if (child < 0) throw Error{Errc::peer, "no process for a rank: see ulimit -u"};
    if (child > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      if (::getppid() != parent) throw Error{Errc::stopped, "the command has ended"};
      const RankInfo rank_info{.rank = Rank{rank},
                               .world_size = WorldSize{kRanks},
                               .local_rank = LocalRank{rank},
                               .local_world_size = LocalWorldSize{kRanks}};
      ConnectOptions options{config, pick_device(device, rank_info, config.backend)};
      options.credentials.token = token;
      if (rank == 0) options.listening_socket = ::dup(listener.get());
      auto group = connect("tcp://127.0.0.1:" + std::to_string(port), rank_info, options);
      body(group);
      group.leave();
    } catch (const std::exception& cause) {
      const auto error = as_error(cause, Errc::peer);
      code = static_cast<int>(error.code());
      std::cerr << "ddpxx: rank " + std::to_string(rank) + ": error: " + harmless_lines(error.what()) + "\n";
    }
    std::cout.flush();
    std::fflush(nullptr);
    std::_Exit(code);  // without the destructors of the parent's objects
  }
  listener.close();
  if (const int failed = wait_for_ranks(children); failed != 0)
    throw Error{static_cast<Errc>(failed), "the two ranks did not end well; their own messages say more"};
}
