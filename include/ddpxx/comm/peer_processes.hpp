// ddpxx/comm/peer_processes.hpp — notices that the process of a peer has ended.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// A descriptor of a process, which becomes readable when the process has ended. It is bound to the process, not to
/// its number, which the system may give to another process later.
/// Errors  `peer` if there is no such process, or if the system has no such descriptors (Linux before 5.3).
inline Descriptor open_process(pid_t process) {
  constexpr long kPidfdOpen = 434;  // equal on all architectures; older headers do not have SYS_pidfd_open
  Descriptor opened{static_cast<int>(::syscall(kPidfdOpen, process, 0))};
  if (!opened)
    throw Error{Errc::peer, "the end of process " + std::to_string(process) +
                                " cannot be watched: " + std::string{std::strerror(errno)}};
  return opened;
}

/// The processes of the ranks of a group.
class PeerProcesses {
 public:
  PeerProcesses() = default;
  /// Errors  those of `open_process`.
  explicit PeerProcesses(const std::vector<pid_t>& processes) {
    for (const auto process : processes) watched_.push_back(open_process(process));
  }

  /// Whether the process of `rank` has ended. Processes that are not watched have not.
  bool has_ended(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= watched_.size()) return false;
    ::pollfd end{watched_[index].get(), POLLIN, 0};
    return ::poll(&end, 1, 0) > 0;
  }

 private:
  std::vector<Descriptor> watched_;
};

}  // namespace ddpxx::detail
