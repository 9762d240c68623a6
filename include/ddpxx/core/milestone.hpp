// ddpxx/core/milestone.hpp — how far a rank has come, reported to the launcher that has started it.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>

#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// How far a rank has come; the values are what a launcher reads.
enum class Milestone : char {
  began = 'b',    ///< It is a program of ddpxx: its exit codes are those of `Errc`.
  trains = 't',   ///< It has a trainer: from now on a step is to be expected.
  stepped = 's',  ///< The result of a step has been read.
  stopped =
      'p',  ///< It was asked to stop and has saved a snapshot. A later report of one of the others takes this back.
};

/// Names the socket on which a launcher listens to one rank, as `DESCRIPTOR:INODE`. A program that is started by the
/// rank may have closed the descriptor and opened another file under its number; that file has another inode.
inline constexpr const char* kMilestonesVariable = "DDPXX_MILESTONES";

/// Tells the launcher of this process; does nothing where there is none, or where it no longer listens.
inline void tell_launcher(Milestone milestone) {
  const auto text = environment(kMilestonesVariable);
  if (!text) return;
  int descriptor = -1;
  std::uint64_t inode = 0;
  const char* const end = text->data() + text->size();
  const auto first = std::from_chars(text->data(), end, descriptor);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return;
  if (std::from_chars(first.ptr + 1, end, inode).ec != std::errc{}) return;
  struct stat found {};
  if (::fstat(descriptor, &found) != 0 || !S_ISSOCK(found.st_mode) || found.st_ino != inode) return;
  const auto value = static_cast<char>(milestone);
  [[maybe_unused]] const auto sent = ::send(descriptor, &value, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace ddpxx
