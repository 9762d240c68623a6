// ddpxx/launch/agent/root_cause.hpp — finds the rank whose failure has ended a run, and the launcher's exit code.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <tuple>
#include <vector>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// How one rank ended.
struct Exit {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  int code = 0;                          ///< Exit code, or minus the signal's number, as in Python.
  std::chrono::milliseconds elapsed{0};  ///< Time from the start of the ranks to this end.
  std::chrono::system_clock::time_point time = {};
  /// The signal by which the agent asked the rank to end, if it did; of several, the one that has ended it, or the
  /// last.
  std::optional<int> signal_sent = {};
  std::vector<std::string> last_lines = {};  ///< Last lines of its standard error.
  std::string error_file = {};               ///< File that it has written, as torchelastic's `record` does; or empty.
  std::string message = {};                  ///< The message in its error file; empty if there is none.
  std::int64_t last_step = 0;                ///< The last step whose result it has read; 0 for none.
  std::string last_collective = {};          ///< In words; empty for none.
  bool is_ours = false;                      ///< It is a program of ddpxx.
  bool trains = false;                       ///< It has a trainer.
  bool stepped = false;                      ///< It has read the result of a step.
  bool was_stopped = false;                  ///< Its process was in state T when the agent ended it.
  bool is_silent = false;                    ///< It is the stopped rank because of which all others lost a peer.
  std::string hint = {};                     ///< A possible reason of its end.
};

/// If one rank ends with `Errc::peer`, and another one fails in another way at most this much later, the second one is
/// the cause: peers of a dying rank may notice its closed socket before the launcher notices its end.
inline constexpr std::chrono::milliseconds kCollateralWindow{1'000};

/// The time that the other ranks have to end by themselves after a failure which may be a consequence of another one,
/// so that the cause can be found among them. It is longer than `kCollateralWindow`, so that a late cause is seen.
/// After a failure that explains itself the other ranks are ended at once.
inline constexpr std::chrono::milliseconds kPeerGrace{2'000};
static_assert(kPeerGrace > kCollateralWindow);

/// True if this end is not the consequence of another one: a signal that the agent did not send, or an error of a known
/// kind. Any other end, such as that of a rank which lost its peers, may follow from one that is not seen yet.
inline bool explains_itself(const Exit& exit);

/// True for the exit codes by which programs of ddpxx refuse their configuration or their data. Python's argparse and
/// many other programs end with 2 for a wrong command line, too.
inline bool is_refusal(const Exit& exit) {
  return exit.code == static_cast<int>(Errc::config) || exit.code == static_cast<int>(Errc::data);
}

/// True for the exit codes after which a restart would probably fail again: refusals, and in programs of ddpxx also a
/// snapshot that cannot be written or read, and a loss that is NaN or infinite. In other programs the codes of the last
/// two may mean anything.
inline bool would_repeat(const Exit& exit) {
  const bool is_final = exit.code == static_cast<int>(Errc::storage) || exit.code == static_cast<int>(Errc::numerics);
  return is_refusal(exit) || (exit.is_ours && is_final);
}

/// The only rank that was still running, or stopped, when all others had lost a peer, so that the agent had to end it;
/// none if there is no such rank or more than one.
inline std::optional<std::size_t> silent_rank(std::span<const Exit> exits);

/// The index of the exit that has caused the run's failure; none if no rank failed.
/// `request` is the signal by which a user or a scheduler asked the run to end: then an end by this signal, or because
/// of a lost peer, is not a failure.
inline std::optional<std::size_t> root_cause(std::span<const Exit> exits, std::optional<int> request);

/// The launcher's exit code: that of the root cause. Without a root cause: 0, or 75 if ranks stopped on request with
/// their work saved, or 128+n if the request's signal n ended some of them.
inline int exit_code(std::span<const Exit> exits, std::optional<int> request);

inline bool is_well(const Exit& exit) { return exit.code == 0 || exit.code == static_cast<int>(Errc::stopped); }
inline bool lost_its_peers(const Exit& exit) { return exit.code == static_cast<int>(Errc::peer); }

/// True for an exit code of this signal: the signal itself, or a shell's or Python's 128+n for it.
inline bool is_end_by(int signal, int code) { return code == -signal || code == 128 + signal; }

/// True if the rank ended by the signal that the agent had sent.
inline bool obeyed(const Exit& exit) { return exit.signal_sent && is_end_by(*exit.signal_sent, exit.code); }

inline bool explains_itself(const Exit& exit) {
  if (obeyed(exit)) return false;
  if (exit.code < 0) return true;
  for (const Errc code : {Errc::config, Errc::data, Errc::storage, Errc::numerics, Errc::memory})
    if (exit.code == static_cast<int>(code)) return true;
  return false;
}

inline std::optional<std::size_t> root_cause(std::span<const Exit> exits, std::optional<int> request) {
  // Among ends that were seen at one moment, an end that explains itself comes first, one that the agent asked for
  // last.
  const auto order = [](const Exit& exit) {
    return std::tuple{exit.elapsed, exit.signal_sent.has_value(), !explains_itself(exit)};
  };
  const auto earliest = [&](auto&& counts) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < exits.size(); ++i)
      if (counts(exits[i]) && (!found || order(exits[i]) < order(exits[*found]))) found = i;
    return found;
  };
  const auto failed = [&](const Exit& exit) {
    const bool follows = request && (is_end_by(*request, exit.code) || lost_its_peers(exit));
    return !is_well(exit) && !obeyed(exit) && !follows;
  };
  const auto first = earliest(failed);
  // No rank failed. If the agent had to end a rank, that rank did not follow the ranks that had stopped.
  if (!first) return request ? std::nullopt : earliest([](const Exit& exit) { return !is_well(exit); });
  if (!lost_its_peers(exits[*first])) return first;
  const auto other = earliest([&](const Exit& exit) { return failed(exit) && !lost_its_peers(exit); });
  if (other && exits[*other].elapsed - exits[*first].elapsed <= kCollateralWindow) return other;
  const auto silent = earliest([](const Exit& exit) { return exit.is_silent; });
  return silent ? silent : first;
}

inline std::optional<std::size_t> silent_rank(std::span<const Exit> exits) {
  std::optional<std::size_t> silent;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    if (lost_its_peers(exits[i])) continue;
    if (silent || !obeyed(exits[i])) return std::nullopt;
    silent = i;
  }
  return exits.size() > 1 ? silent : std::nullopt;
}

inline int exit_code(std::span<const Exit> exits, std::optional<int> request) {
  const auto shell_code = [](int code) { return code < 0 ? 128 - code : code; };
  if (const auto cause = root_cause(exits, request))
    return exits[*cause].is_silent ? static_cast<int>(Errc::peer) : shell_code(exits[*cause].code);
  bool stopped = false;
  for (const Exit& exit : exits) {
    if (!is_well(exit)) return 128 + request.value_or(SIGTERM);
    stopped |= exit.code != 0;
  }
  return stopped ? static_cast<int>(Errc::stopped) : 0;
}

}  // namespace ddpxx::detail
