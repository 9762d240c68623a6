// ddpxx/launch/agent/rank_process.hpp — one running rank: its program, its outputs, and how it ended.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/call_stack.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/rank_progress.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/agent/filtered_log.hpp>
#include <ddpxx/launch/agent/guardian.hpp>
#include <ddpxx/launch/agent/line_prefix.hpp>
#include <ddpxx/launch/agent/milestone_inbox.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>
#include <ddpxx/launch/agent/progress_page.hpp>
#include <ddpxx/launch/agent/rank_environment.hpp>
#include <ddpxx/launch/agent/rank_stream.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/child.hpp>
#include <ddpxx/launch/error_file.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/cpu_topology.hpp>
#include <ddpxx/launch/process_table.hpp>

namespace ddpxx::detail {

/// Data that all ranks of one attempt share.
struct RankCommon {
  const LaunchPlan& plan;
  const Guardian& guardian;
  std::string path;                    ///< Path of the program's file.
  std::vector<std::string> inherited;  ///< Environment of the launcher.
  std::filesystem::path folder;        ///< Holds a folder for each local rank; empty for none.
  FilteredLog* filtered_output = nullptr;
  FilteredLog* filtered_error = nullptr;
  std::vector<CpuSet> processors = {};          ///< The set of each local rank; empty: that of the agent.
  std::optional<rlimit> descriptor_limit = {};  ///< Limit of open descriptors in each rank; none: that of the agent.
  bool first_rank_has_terminal;                 ///< Rank 0 writes to the launcher's standard output, a terminal.
  /// From when the times of ends count. Agents compare these times, so they must not depend on this machine's folders.
  std::chrono::steady_clock::time_point started;
};

/// A rank from its start to its end. The destructor kills it.
class RankProcess {
 public:
  /// Starts the rank.
  /// Errors  `config` if the program cannot be run, `storage` if its log files cannot be made, `peer` if the system
  ///         cannot start a process.
  RankProcess(const RankCommon& common, const Launch& launch) : rank_info_{launch.rank_info}, started_{common.started} {
    std::string error_file;
    if (!common.folder.empty()) {
      folder_ = common.folder / std::to_string(rank_info_.local_rank.value);
      error_file = folder_ / "error.json";
    }
    ChildStart start{.path = common.path,
                     .arguments = {common.plan.program},
                     .environment = rank_environment(common.inherited, common.plan, launch, error_file)};
    start.descriptor_limit = common.descriptor_limit;
    start.arguments.insert(start.arguments.end(), common.plan.arguments.begin(), common.plan.arguments.end());
    if (!common.processors.empty())
      start.processors = common.processors[static_cast<std::size_t>(rank_info_.local_rank.value)];

    const Descriptor nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    start.input = nothing.get();
    std::optional<File> out_file, err_file;
    const bool has_terminal = common.first_rank_has_terminal && rank_info_.rank == Rank{0};
    start.output = open_output(common, Streams::out, out_file, has_terminal ? STDOUT_FILENO : -1, nothing.get());
    start.error = open_output(common, Streams::err, err_file, -1, -1);
    std::erase_if(start.environment,
                  [](const std::string& entry) {  // variables of a launcher that has started this one
                    const auto name = entry.substr(0, entry.find('='));
                    return name == kMilestonesVariable || name == kProgressVariable;
                  });
    start.environment.push_back(milestones_.variable());
    start.kept = {milestones_.write_end().get()};
    if (page_.descriptor()) {
      start.environment.push_back(page_.variable());
      start.kept.push_back(page_.descriptor().get());
    }
    child_.emplace(start);
    watch_ = Guardian::Watch{common.guardian, child_->pid()};
    milestones_.write_end().close();
    page_.descriptor().close();
    for (auto& stream : streams_) stream.write_end().close();
  }

  const std::optional<Exit>& exit() const noexcept { return exit_; }
  pid_t pid() const noexcept { return child_->pid(); }
  /// The rank's number in the run.
  int number() const noexcept { return rank_info_.rank.value; }
  /// Memory in which the rank notes its last step and collective; null if the system did not give it.
  const RankProgress* progress() const noexcept { return page_.progress(); }
  std::vector<RankStream>& streams() noexcept { return streams_; }
  /// Descriptor that is readable if a milestone has come or no process of the rank has the socket open; -1 after that.
  int milestones() const noexcept { return exit_ ? -1 : milestones_.descriptor(); }

  /// Sends a signal that asks the rank to stop. The signal is remembered, because an end that the launcher has caused
  /// is not a failure; but not after the end of the first process, since it has not caused that end.
  void ask_to_stop(int number) {
    if (exit_) return;
    note_signal(number);
    child_->send_signal(number);
    child_->send_signal(SIGCONT);  // a stopped process handles signals only after SIGCONT
  }

  /// Asks the rank to write its call stack to its standard error. Other programs than ddpxx's may use that signal, and
  /// get none; a stopped process would handle it only when it is to end.
  bool ask_for_call_stack() const {
    if (exit_ || first_end_ || !milestones_.has(Milestone::began) || child_->is_stopped() ||
        !handles_signal(child_->pid(), call_stack_signal()))
      return false;
    return ::kill(child_->pid(), call_stack_signal()) == 0;
  }

  /// Ends the rank by a signal, because the run has failed or its time to stop is over.
  void end(int number) {
    if (exit_) return;
    note_signal(number);
    was_stopped_ = was_stopped_ || child_->is_stopped();
    is_to_end_ = true;
    // Only programs of ddpxx know what `Child::end` tells them; another one might handle the signal twice.
    milestones_.read_some();
    if (milestones_.has(Milestone::began))
      child_->end(number);
    else
      child_->send_signal(number);
    child_->send_signal(SIGCONT);
  }

  /// The signal to stop that has ended the rank's first process, such as a shell, while processes that it has started
  /// are still running; none otherwise.
  std::optional<int> lingers() const { return exit_ ? std::nullopt : lingers_; }

  /// Checks at the time `now` whether the rank has ended; true the first time that it has. `group_lives(pid)` says
  /// whether a process of the group runs; it is called only if a signal to stop has ended the first process.
  template <class GroupLives>
  bool poll_exit(std::chrono::steady_clock::time_point now, GroupLives&& group_lives) {
    if (exit_) return false;
    if (!first_end_) {
      if (const auto code = child_->ended()) note_first_end(*code, now);
    }
    milestones_.read_some();  // after the check: milestones sent before the end have come
    if (!first_end_) return false;
    lingers_ = signal_to_stop(first_end_->code);
    if (lingers_ && !is_to_end_ && group_lives(child_->pid())) return false;
    exit_ = first_end_;
    // A shell ended by the signal, or one that went on to its next command, hides the exit code of the program.
    if ((lingers_ || exit_->code == 0) && milestones_.ends_with(Milestone::stopped))
      exit_->code = static_cast<int>(Errc::stopped);
    exit_->trains = milestones_.has(Milestone::trains);
    exit_->is_ours = exit_->trains || milestones_.has(Milestone::began);
    exit_->stepped = milestones_.has(Milestone::stepped);
    return true;
  }

  /// Call it after the rank's end: ends the processes that it has left running, and collects its last output.
  void finish(OutputQueue& queue) {
    if (!exit_) return;
    watch_ = {};
    child_.reset();
    for (auto& stream : streams_) stream.finish(queue);
    exit_->last_lines = has_error_stream_ ? streams_.back().last_lines() : last_lines_of(folder_ / "stderr.log");
    if (const auto* progress = page_.progress()) {
      exit_->last_step = progress->step();
      exit_->last_collective = progress->collective();
    }
    std::error_code ignored;
    if (const auto path = folder_ / "error.json"; !folder_.empty() && std::filesystem::exists(path, ignored))
      exit_->error_file = path;
    exit_->message = read_error_file(exit_->error_file).value_or("");
  }

 private:
  /// Remembers a signal that may end the first process. After SIGKILL no other signal does.
  void note_signal(int number) {
    if (first_end_ || (!signals_sent_.empty() && signals_sent_.back() == SIGKILL)) return;
    std::erase(signals_sent_, number);
    signals_sent_.push_back(number);
  }
  /// The signal that has ended the first process with this code, or else the last one that was sent.
  std::optional<int> signal_behind(int code) const {
    for (const int number : signals_sent_)
      if (is_end_by(number, code)) return number;
    return signals_sent_.empty() ? std::nullopt : std::optional{signals_sent_.back()};
  }

  static std::optional<int> signal_to_stop(int code) {
    for (const int number : kStopSignals)
      if (is_end_by(number, code)) return number;
    return std::nullopt;
  }

  void note_first_end(int code, std::chrono::steady_clock::time_point now) {
    first_end_ = Exit{.rank = rank_info_.rank.value,
                      .local_rank = rank_info_.local_rank.value,
                      .pid = child_->pid(),
                      .code = code,
                      .elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_),
                      .time = std::chrono::system_clock::now(),
                      .signal_sent = signal_behind(code),
                      .was_stopped = was_stopped_};
  }

  /// The descriptor that becomes an output of the rank: of a pipe, of a log file, which `file` keeps open, `terminal`
  /// if it is not -1, or `nothing` if the output is not shown. If `nothing` is -1, its last lines are kept for a
  /// report.
  int open_output(const RankCommon& common, Streams stream, std::optional<File>& file, int terminal, int nothing) {
    const OutputPlan& outputs = common.plan.outputs;
    const int local_rank = rank_info_.local_rank.value;
    const bool is_shown = outputs.shows(local_rank), is_error = stream == Streams::err;
    const bool is_teed = includes(outputs.tee.of(local_rank), stream) && !folder_.empty();
    const bool goes_to_file = is_teed || (includes(outputs.redirects.of(local_rank), stream) && !folder_.empty());
    if (goes_to_file) {
      file = File::open_to_append(folder_ / (is_error ? "stderr.log" : "stdout.log"), Errc::storage);
      if (!is_teed || !is_shown) return file->descriptor();
    } else if (is_shown && terminal >= 0) {
      return terminal;
    } else if (!is_shown && nothing >= 0) {
      return nothing;
    }
    StreamTargets targets{.prefix = line_prefix(common.plan, rank_info_, is_teed), .file = std::move(file)};
    file.reset();
    if (is_shown) targets.console = is_error ? STDERR_FILENO : STDOUT_FILENO;
    if (is_teed) targets.filtered = is_error ? common.filtered_error : common.filtered_output;
    streams_.emplace_back(std::move(targets));
    has_error_stream_ = is_error;
    return streams_.back().write_end().get();
  }

  RankInfo rank_info_;
  std::chrono::steady_clock::time_point started_;
  std::filesystem::path folder_;
  std::vector<RankStream> streams_;  // standard output and standard error, where the agent reads them
  bool has_error_stream_ = false;
  MilestoneInbox milestones_;
  ProgressPage page_;
  std::optional<Child> child_;
  Guardian::Watch watch_;          // destroyed before the child, whose number may be reused then
  std::vector<int> signals_sent_;  // each number once, the last one last
  bool was_stopped_ = false;
  bool is_to_end_ = false;
  std::optional<int> lingers_;
  std::optional<Exit> first_end_;  // how the first process ended, when that was first seen
  std::optional<Exit> exit_;
};

}  // namespace ddpxx::detail
