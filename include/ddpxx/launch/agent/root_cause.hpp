// ddpxx/launch/agent/root_cause.hpp — how the ranks of a run ended, which of them is to blame, and our own exit code.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <tuple>
#include <vector>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// How one rank ended.
struct Exit {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  int code = 0;                          ///< Exit code, or minus the signal's number, as Python counts.
  std::chrono::milliseconds elapsed{0};  ///< Since the ranks were started.
  std::chrono::system_clock::time_point time = {};
  std::optional<int> told = {};              ///< The last signal by which we had asked it to end, if we had.
  std::vector<std::string> last_lines = {};  ///< Of its standard error.
  std::string error_file = {};               ///< Of a Python program's `@record`; empty when there is none.
  bool is_ours = false;                      ///< It has told that it is a program of ddpxx,
  bool trains = false;                       ///< that it has a trainer,
  bool stepped = false;                      ///< and that it has read the result of a step.
  bool was_stopped = false;                  ///< Its process was in state T when we ended it.
  bool said_nothing = false;                 ///< It is the stopped one by which all others lost a peer.
  std::string hint = {};                     ///< What may be the reason of its end.
};

/// A rank that lost its peers ends with `Errc::peer`. If another one failed otherwise this close to it, that one is the
/// cause: who closes a socket by dying is sometimes seen to be dead only after its peers have noticed.
inline constexpr std::chrono::milliseconds kCollateralWindow{1'000};

/// True when this end needs no other one to explain it: a signal that we did not send, or an error of a known kind. Any
/// other end, above all that of a rank which lost its peers, may follow from one that is not seen yet.
inline bool explains_itself(const Exit& exit);

/// True for the exit codes by which programs of ddpxx refuse their configuration or their data. Python's argparse and
/// many other programs end with 2 for a wrong command line, too.
inline bool is_refusal(const Exit& exit) {
  return exit.code == static_cast<int>(Errc::config) || exit.code == static_cast<int>(Errc::data);
}

/// True for the exit codes after which another start would probably end in the same way: refusals, and of programs of
/// ddpxx also a snapshot that cannot be written or read, and a loss that is NaN or infinite. Other programs may mean
/// anything by the codes of the last two.
inline bool would_repeat(const Exit& exit) {
  const bool is_final = exit.code == static_cast<int>(Errc::storage) || exit.code == static_cast<int>(Errc::numerics);
  return is_refusal(exit) || (exit.is_ours && is_final);
}

/// The one rank that was still running, or stopped, when all others had lost a peer, so that we had to end it; none
/// when there is no such rank, or more than one.
inline std::optional<std::size_t> silent_rank(std::span<const Exit> exits);

/// The index of the exit that explains the run's failure; none when nothing failed.
/// `request` is the signal by which a user or a scheduler asked the run to end: then an end that follows from the
/// request, this very signal or a lost peer, is no failure.
inline std::optional<std::size_t> root_cause(std::span<const Exit> exits, std::optional<int> request);

/// The launcher's exit code: the root cause's; without one 0, or 75 when ranks stopped on request with their work
/// saved, or 128+n when the request's signal n ended some of them.
inline int exit_code(std::span<const Exit> exits, std::optional<int> request);

namespace detail {

inline bool is_well(const Exit& exit) { return exit.code == 0 || exit.code == static_cast<int>(Errc::stopped); }
inline bool lost_its_peers(const Exit& exit) { return exit.code == static_cast<int>(Errc::peer); }

/// True for an exit code of this signal: the signal itself, or a shell's or Python's 128+n for it.
inline bool is_end_by(int signal, int code) { return code == -signal || code == 128 + signal; }

/// True when the rank ended as we told it to.
inline bool obeyed(const Exit& exit) { return exit.told && is_end_by(*exit.told, exit.code); }

}  // namespace detail

inline bool explains_itself(const Exit& exit) {
  if (detail::obeyed(exit)) return false;
  if (exit.code < 0) return true;
  for (const Errc code : {Errc::config, Errc::data, Errc::storage, Errc::numerics, Errc::memory})
    if (exit.code == static_cast<int>(code)) return true;
  return false;
}

inline std::optional<std::size_t> root_cause(std::span<const Exit> exits, std::optional<int> request) {
  // Of ends that were seen at the same moment, one that we had asked for comes last, and one that explains itself
  // first.
  const auto order = [](const Exit& exit) {
    return std::tuple{exit.elapsed, exit.told.has_value(), !explains_itself(exit)};
  };
  const auto earliest = [&](auto&& counts) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < exits.size(); ++i)
      if (counts(exits[i]) && (!found || order(exits[i]) < order(exits[*found]))) found = i;
    return found;
  };
  const auto failed = [&](const Exit& exit) {
    const bool follows = request && (detail::is_end_by(*request, exit.code) || detail::lost_its_peers(exit));
    return !detail::is_well(exit) && !detail::obeyed(exit) && !follows;
  };
  const auto first = earliest(failed);
  // Nobody failed, yet somebody had to be ended: it did not follow the ranks that had stopped.
  if (!first) return request ? std::nullopt : earliest([](const Exit& exit) { return !detail::is_well(exit); });
  if (!detail::lost_its_peers(exits[*first])) return first;
  const auto other = earliest([&](const Exit& exit) { return failed(exit) && !detail::lost_its_peers(exit); });
  if (other && exits[*other].elapsed - exits[*first].elapsed <= kCollateralWindow) return other;
  const auto silent = earliest([](const Exit& exit) { return exit.said_nothing; });
  return silent ? silent : first;
}

inline std::optional<std::size_t> silent_rank(std::span<const Exit> exits) {
  std::optional<std::size_t> silent;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    if (detail::lost_its_peers(exits[i])) continue;
    if (silent || !detail::obeyed(exits[i])) return std::nullopt;
    silent = i;
  }
  return exits.size() > 1 ? silent : std::nullopt;
}

inline int exit_code(std::span<const Exit> exits, std::optional<int> request) {
  const auto shell_code = [](int code) { return code < 0 ? 128 - code : code; };
  if (const auto cause = root_cause(exits, request))
    return exits[*cause].said_nothing ? static_cast<int>(Errc::peer) : shell_code(exits[*cause].code);
  bool stopped = false;
  for (const Exit& exit : exits) {
    if (!detail::is_well(exit)) return 128 + request.value_or(SIGTERM);
    stopped |= exit.code != 0;
  }
  return stopped ? static_cast<int>(Errc::stopped) : 0;
}

}  // namespace ddpxx
