// ddpxx/launch/agent/failure_report.hpp — the report of a failed run: the rank that failed first, why, and the other
// ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <iomanip>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/core/number_list.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/output_plan.hpp>

namespace ddpxx::detail {

/// How a rank ended, in words.
inline std::string describe(const Exit& exit) {
  if (exit.is_silent)
    return "was still running when all other ranks had lost a peer; ended by ddpxx-run; it was stopped (state T), as "
           "by "
           "SIGSTOP";
  if (exit.code >= 0) return "exit code " + std::to_string(exit.code);
  return "Signal " + std::to_string(-exit.code) + " (" + signal_name(-exit.code) + ") received by PID " +
         std::to_string(exit.pid);
}

/// The report in torchrun's form, for people and for programs that look for its titles. `cause` is an index into
/// `exits`; `entry` names the program; `logs` is the folder of log files, empty for none. Every line ends with a
/// newline.
inline std::string failure_report(std::span<const Exit> exits, std::size_t cause, const std::string& entry,
                                  const std::string& host, const std::string& logs = {});

/// True if a report would only repeat the message of the rank: its exit code means a wrong configuration or wrong data,
/// and the other ranks ended well, were ended by the agent, lost their peers or have an equal exit code.
inline bool only_repeats(std::span<const Exit> exits, std::size_t cause);

/// True if the standard error of this rank goes to the console, so that its message is there.
inline bool shows_errors(const OutputPlan& outputs, const Exit& exit) {
  const bool is_redirected = includes(outputs.redirects.of(exit.local_rank), Streams::err);
  const bool is_teed = includes(outputs.tee.of(exit.local_rank), Streams::err);
  return outputs.shows(exit.local_rank) && (is_teed || !is_redirected);
}

/// A line, without a newline, about an exit code that `would_repeat`. It says what the code means in ddpxx programs,
/// since it may mean something else in other programs.
inline std::string repeat_line(const Exit& cause, bool has_restarts);

inline std::string iso_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return (std::ostringstream{} << std::put_time(&parts, "%Y-%m-%d_%H:%M:%S")).str();
}

/// How a rank ended that is not the cause.
inline std::string describe_bystander(const Exit& exit) {
  if (obeyed(exit)) return "ended by ddpxx-run with " + signal_name(*exit.signal_sent);
  return exit.code < 0 ? signal_name(-exit.code) : describe(exit);
}

/// A line about ranks that are not the cause and that have ended in the same way.
inline std::string bystanders(std::span<const Exit* const> exits, const Exit& cause) {
  std::vector<int> ranks;
  for (const Exit* exit : exits) ranks.push_back(exit->rank);
  const auto later = [&](const Exit* exit) {
    return std::chrono::duration<double>(exit->elapsed - cause.elapsed).count();
  };
  const auto [first, last] = std::minmax_element(
      exits.begin(), exits.end(), [](const Exit* one, const Exit* other) { return one->elapsed < other->elapsed; });
  std::ostringstream line;
  line << (ranks.size() == 1 ? "  rank " : "  ranks ") << number_list(ranks);
  if (ranks.size() == 1) line << " (local_rank: " << exits[0]->local_rank << ", pid: " << exits[0]->pid << ')';
  line << ": " << describe_bystander(*exits[0]) << ", " << std::fixed << std::setprecision(2)
       << std::abs(later(*first));
  if (ranks.size() > 1) line << " to " << std::abs(later(*last));
  line << " s " << (later(*last) < 0 ? "before" : "after");
  return line.str();
}

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
           return is_well(exit) || obeyed(exit) || lost_its_peers(exit) || exit.code == exits[cause].code;
         });
}

inline std::string failure_report(std::span<const Exit> exits, std::size_t cause, const std::string& entry,
                                  const std::string& host, const std::string& logs) {
  const Exit& root = exits[cause];
  const std::string thick(60, '='), thin(60, '-');
  std::ostringstream text;
  text << thick << '\n' << harmless(entry) << " FAILED\n" << thin << "\nFailures:\n";
  // The ranks by how they ended, and whether that was before the cause. A rank that ended well after the cause is not
  // listed; one that ended before may be the reason for the failure.
  std::map<std::pair<bool, std::string>, std::vector<const Exit*>> groups;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    const bool is_later = exits[i].elapsed >= root.elapsed;
    if (i != cause && !(is_well(exits[i]) && is_later))
      groups[{is_later, describe_bystander(exits[i])}].push_back(&exits[i]);
  }
  for (const auto& [how, ranks] : groups) text << bystanders(ranks, root) << '\n';
  if (groups.empty()) text << "  <NO_OTHER_FAILURES>\n";
  text << thin << "\nRoot Cause (first observed failure):\n"
       << "  time      : " << iso_time(root.time) << '\n'
       << "  host      : " << harmless(host) << '\n'
       << "  rank      : " << root.rank << " (local_rank: " << root.local_rank << ")\n"
       << "  exitcode  : " << root.code << " (pid: " << root.pid << ")\n";
  if (root.last_step > 0) text << "  last step : " << root.last_step << '\n';
  if (!root.last_collective.empty()) text << "  collective: " << root.last_collective << '\n';
  if (!logs.empty() && !root.error_file.empty()) text << "  error_file: " << harmless(root.error_file) << '\n';
  text << "  message   : " << describe(root) << (obeyed(root) && !root.is_silent ? ", sent because it did not end" : "")
       << '\n';
  if (!logs.empty()) text << "  logs      : " << harmless(logs) << '\n';
  if (!root.message.empty()) text << "  error     : " << harmless(root.message) << '\n';
  if (!root.hint.empty()) text << "  hint      : " << root.hint << '\n';
  if (!root.last_lines.empty()) text << "  stderr    :\n";
  for (const std::string& line : root.last_lines) text << "    " << harmless(line) << '\n';
  text << thick << '\n';
  return text.str();
}

}  // namespace ddpxx::detail
