// ddpxx/launch/milestone_inbox.hpp — what one rank tells its launcher, and whether any of its processes still lives.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/milestone.hpp>

namespace ddpxx {

/// A socket that all processes of one rank inherit. Ranks of other programs than ours write nothing to it, but its end
/// tells of them as well that all are gone.
class MilestoneInbox {
 public:
  /// Errors  `peer` when the system gives no socket.
  MilestoneInbox() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw Error{Errc::peer, "no socket for a rank: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
    read_end_ = Descriptor{ends[0]};
    write_end_ = Descriptor{ends[1]};
  }

  /// What the rank inherits under this number; ours is to be closed as soon as it has it.
  Descriptor& write_end() noexcept { return write_end_; }
  /// `NAME=value`, for the environment of the rank.
  std::string variable() const {
    struct stat found {};
    ::fstat(write_end_.get(), &found);
    return std::string{kMilestonesVariable} + '=' + std::to_string(write_end_.get()) + ':' +
           std::to_string(found.st_ino);
  }

  /// Readable when there is something to read; -1 once no process of the rank holds the other end.
  int descriptor() const noexcept { return read_end_.get(); }

  /// Reads what is there now.
  void read_some() {
    std::array<char, 64> bytes;
    while (read_end_) {
      const auto size = ::recv(read_end_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (size <= 0) return read_end_.close();
      // A few bytes are all that a rank has to say; what a stranger sends is not kept.
      for (const char byte : std::string_view{bytes.data(), static_cast<std::size_t>(size)})
        if (told_.find(byte) == std::string::npos) told_ += byte;
    }
  }
  bool has(Milestone milestone) const { return told_.find(static_cast<char>(milestone)) != std::string::npos; }

 private:
  Descriptor read_end_, write_end_;
  std::string told_;  ///< Each byte once.
};

}  // namespace ddpxx
