// ddpxx/core/milestone.hpp — how far a rank has come, reported to the launcher that has started it.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>

#include <ddpxx/core/inherited_descriptor.hpp>

namespace ddpxx {

/// How far a rank has come; the values are what a launcher reads.
enum class Milestone : char {
  began = 'b',    ///< It is a program of ddpxx: its exit codes are those of `Errc`.
  trains = 't',   ///< It has a trainer: from now on a step is to be expected.
  stepped = 's',  ///< The result of a step has been read.
  stopped =
      'p',  ///< It was asked to stop and has saved a snapshot. A later report of one of the others takes this back.
};

/// Names the socket on which a launcher listens to one rank; see `inherited_descriptor`.
inline constexpr const char* kMilestonesVariable = "DDPXX_MILESTONES";

/// Tells the launcher of this process; does nothing where there is none, or where it no longer listens.
inline void tell_launcher(Milestone milestone) {
  const auto inherited = detail::inherited_descriptor(kMilestonesVariable);
  if (!inherited || !S_ISSOCK(inherited->status.st_mode)) return;
  const auto value = static_cast<char>(milestone);
  [[maybe_unused]] const auto sent = ::send(inherited->number, &value, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace ddpxx
