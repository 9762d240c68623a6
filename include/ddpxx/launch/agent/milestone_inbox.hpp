// ddpxx/launch/agent/milestone_inbox.hpp — receives the milestones of one rank in the launcher.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inherited_descriptor.hpp>
#include <ddpxx/core/milestone.hpp>

namespace ddpxx::detail {

/// A socket that the processes of one rank inherit, and to which programs of ddpxx write their milestones.
class MilestoneInbox {
 public:
  /// Errors  `peer` if the system cannot make a socket.
  MilestoneInbox() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw Error{Errc::peer, "no socket for a rank: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
    read_end_ = Descriptor{ends[0]};
    write_end_ = Descriptor{ends[1]};
    // Scripts use low numbers for their own files.
    if (Descriptor high{::fcntl(ends[1], F_DUPFD_CLOEXEC, 100)}) write_end_ = std::move(high);
  }

  /// The end that the rank inherits, under this number. The launcher closes it once the rank has started.
  Descriptor& write_end() noexcept { return write_end_; }
  /// `NAME=value`, for the environment of the rank.
  std::string variable() const { return descriptor_variable(kMilestonesVariable, write_end_.get()); }

  /// Descriptor that is readable if milestones have come; -1 once no process has the other end open.
  int descriptor() const noexcept { return read_end_.get(); }

  /// Reads the milestones that have come.
  void read_some() {
    std::array<char, 64> bytes;
    while (read_end_) {
      const auto size = ::recv(read_end_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (size <= 0) return read_end_.close();
      for (const char byte : std::string_view{bytes.data(), static_cast<std::size_t>(size)}) {
        std::erase(received_, byte);  // each byte is kept once, so that the text stays short
        received_ += byte;
      }
    }
  }
  /// True if the rank has reached this milestone.
  bool has(Milestone milestone) const { return received_.find(static_cast<char>(milestone)) != std::string::npos; }
  /// True if this milestone came last.
  bool ends_with(Milestone milestone) const { return received_.ends_with(static_cast<char>(milestone)); }

 private:
  Descriptor read_end_, write_end_;
  std::string received_;  ///< The milestones that have come, in the order of their last arrival.
};

}  // namespace ddpxx::detail
