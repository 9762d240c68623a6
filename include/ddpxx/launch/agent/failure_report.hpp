// ddpxx/launch/agent/failure_report.hpp — the one report of a failed run: who failed first, how, and who went with it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <iomanip>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>

namespace ddpxx {

/// How a rank ended, in words.
inline std::string describe(const Exit& exit) {
  if (exit.said_nothing)
    return "was still running when all other ranks had lost a peer; ended by ddpxx-run; it was stopped (state T), as "
           "by "
           "SIGSTOP";
  if (exit.code >= 0) return "exit code " + std::to_string(exit.code);
  return "Signal " + std::to_string(-exit.code) + " (" + signal_name(-exit.code) + ") received by PID " +
         std::to_string(exit.pid);
}

/// The report in torchrun's form, for people and for programs that look for its titles. `cause` is an index into
/// `exits`; `entry` names the program. Every line ends with a line end.
inline std::string failure_report(std::span<const Exit> exits, std::size_t cause, const std::string& entry,
                                  const std::string& host);

/// True when an exit code as of a wrong configuration or wrong data has ended this run, and what the rank itself has
/// written says all: the other ranks ended well, were ended by us, lost their peers or have the same exit code.
inline bool only_repeats(std::span<const Exit> exits, std::size_t cause);

/// One line, without its end, on an exit code that `would_repeat`. Other programs may mean something else by the code
/// of a refusal, so the line says whose meaning it is.
inline std::string repeat_line(const Exit& cause, bool has_restarts);

namespace detail {

inline std::string iso_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return (std::ostringstream{} << std::put_time(&parts, "%Y-%m-%d_%H:%M:%S")).str();
}

/// One line on a rank that is not the cause.
inline std::string bystander(const Exit& exit, const Exit& cause) {
  const double seconds = std::chrono::duration<double>(exit.elapsed - cause.elapsed).count();
  std::ostringstream line;
  line << "  rank " << exit.rank << " (local_rank: " << exit.local_rank << ", pid: " << exit.pid << "): ";
  if (obeyed(exit))
    line << "ended by ddpxx-run with " << signal_name(*exit.told);
  else
    line << describe(exit);
  line << ", " << std::fixed << std::setprecision(2) << std::abs(seconds) << " s "
       << (seconds < 0 ? "before" : "after");
  return line.str();
}

}  // namespace detail

inline std::string repeat_line(const Exit& cause, bool has_restarts) {
  const auto meaning = [&]() -> std::string {
    switch (static_cast<Errc>(cause.code)) {
      case Errc::config:
        return "a wrong configuration";
      case Errc::data:
        return "wrong data";
      case Errc::storage:
        return "a snapshot or another file cannot be written or read";
      default:
        return "the loss is NaN or infinite";
    }
  };
  return "rank " + std::to_string(cause.rank) + ": " + describe(cause) + " (in ddpxx programs: " + meaning() + ")" +
         (has_restarts ? "; not started again" : "");
}

inline bool only_repeats(std::span<const Exit> exits, std::size_t cause) {
  return is_refusal(exits[cause]) && std::all_of(exits.begin(), exits.end(), [&](const Exit& exit) {
           return detail::is_well(exit) || detail::obeyed(exit) || detail::lost_its_peers(exit) ||
                  exit.code == exits[cause].code;
         });
}

inline std::string failure_report(std::span<const Exit> exits, std::size_t cause, const std::string& entry,
                                  const std::string& host) {
  const Exit& root = exits[cause];
  const std::string thick(60, '='), thin(60, '-');
  std::ostringstream text;
  text << thick << '\n' << harmless(entry) << " FAILED\n" << thin << "\nFailures:\n";
  bool any = false;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    // A rank that ended well after the cause says nothing; one that ended before may be what its peers missed.
    if (i == cause || (detail::is_well(exits[i]) && exits[i].elapsed >= root.elapsed)) continue;
    text << detail::bystander(exits[i], root) << '\n';
    any = true;
  }
  if (!any) text << "  <NO_OTHER_FAILURES>\n";
  text << thin << "\nRoot Cause (first observed failure):\n"
       << "  time      : " << detail::iso_time(root.time) << '\n'
       << "  host      : " << harmless(host) << '\n'
       << "  rank      : " << root.rank << " (local_rank: " << root.local_rank << ")\n"
       << "  exitcode  : " << root.code << " (pid: " << root.pid << ")\n";
  if (!root.error_file.empty()) text << "  error_file: " << harmless(root.error_file) << '\n';
  text << "  message   : " << describe(root)
       << (detail::obeyed(root) && !root.said_nothing ? ", sent because it did not end" : "") << '\n';
  if (!root.hint.empty()) text << "  hint      : " << root.hint << '\n';
  if (!root.last_lines.empty()) text << "  stderr    :\n";
  for (const std::string& line : root.last_lines) text << "    " << harmless(line) << '\n';
  text << thick << '\n';
  return text.str();
}

}  // namespace ddpxx
