// ddpxx/launch/sweep_runner_inl.hpp — the definitions of sweep_runner.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <iomanip>
#include <iostream>
#include <list>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/standard_output.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/launch/child.hpp>
#include <ddpxx/launch/interrupts.hpp>
#include <ddpxx/launch/signal_inbox.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>
#include <ddpxx/launch/sweep/slurm_array.hpp>
#include <ddpxx/launch/sweep/sweep_folder.hpp>
#include <ddpxx/launch/sweep/sweep_table.hpp>
#include <ddpxx/launch/sweep_command.hpp>
#include <ddpxx/launch/sweep_runner.hpp>

namespace ddpxx {

namespace detail {

/// Runs a sweep's jobs, each with its own process group, folder and log. A job whose last run with these arguments
/// ended with 0 is not run again. Other jobs run after one has failed. Signals are forwarded to all running jobs, and
/// the sweep waits for them. After a signal that asks for an end no job is started, and a second SIGINT kills the jobs.
/// A job that cannot be started, or whose status cannot be written, has failed; no job is started after it either.
class SweepRunner {
 public:
  SweepRunner(const Sweep& sweep, SweepCommand command)
      : sweep_{sweep}, command_{std::move(command)}, folder_{sweep.options.folder, sweep.jobs} {}

  /// Runs the jobs, and returns the exit code that `run_sweep` describes.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t job;
    Child child;
    Clock::time_point started;
  };

  void start_jobs();
  void start(std::size_t job);
  void note_failure(const SweepJob& job, const Error& error);
  void on_signal(int number);
  void notice_ends();
  int exit_code() const;
  bool miss_metrics() const;
  void say(const SweepJob& job, const std::string& text) const {
    Log{0}.info("sweep: job " + std::to_string(job.number) + ' ' + text);
  }

  const Sweep& sweep_;
  SweepCommand command_;
  SweepFolder folder_;
  SignalInbox inbox_;
  std::vector<std::optional<JobStatus>> statuses_;
  std::size_t next_ = 0;
  std::list<Running> running_;
  std::optional<int> request_;  // the signal that asked the sweep to end
  Interrupts interrupts_;
  std::optional<int> forwarded_;  // the last signal sent to the jobs: a job may end by it, or with 75
  bool stopping_ = false;         // no job is started any more
};

inline int SweepRunner::run() {
  for (const auto& job : sweep_.jobs) {
    statuses_.push_back(folder_.status(job));
    if (statuses_.back() && statuses_.back()->code != 0) statuses_.back().reset();
  }
  Log{0}.info("sweep: " + std::to_string(sweep_.jobs.size()) + " jobs in " + folder_.path().string());
  while (true) {
    while (const auto number = inbox_.next()) on_signal(*number);
    notice_ends();
    start_jobs();
    if (running_.empty()) break;
    pollfd wait{inbox_.descriptor(), POLLIN, 0};
    ::poll(&wait, 1, -1);
  }
  std::cout << sweep_table(sweep_.jobs, statuses_, folder_, sweep_.options.metric) << std::flush;
  const int code = exit_code();
  return code == 0 && miss_metrics() ? static_cast<int>(Errc::storage) : code;
}

/// True if a job that ended with 0 lacks its metric; prints the names of such jobs.
inline bool SweepRunner::miss_metrics() const {
  const auto missing = jobs_without_metric(sweep_.jobs, statuses_, folder_, sweep_.options.metric);
  std::string names;
  for (const auto& name : metric_names(sweep_.options.metric)) names += (names.empty() ? "no " : " and no ") + name;
  for (const auto index : missing) {
    const auto& job = sweep_.jobs[index];
    say(job, "ended with 0, but there is " + names + " in " + (folder_.path(job) / "metrics.jsonl").string() +
                 ", or the last one is not a number: the job did nothing, wrote no metrics, or diverged; see " +
                 (folder_.path(job) / "log").string());
  }
  return !missing.empty();
}

inline void SweepRunner::start_jobs() {
  const auto most = static_cast<std::size_t>(sweep_.options.jobs_at_once.value_or(1));
  for (; !stopping_ && next_ < sweep_.jobs.size() && running_.size() < most; ++next_) {
    if (statuses_[next_]) {
      say(sweep_.jobs[next_], "was done before");
      continue;
    }
    try {
      start(next_);
    } catch (const Error& error) {
      statuses_[next_] = JobStatus{.code = static_cast<int>(error.code())};
      note_failure(sweep_.jobs[next_], error);
    }
  }
}

inline void SweepRunner::note_failure(const SweepJob& job, const Error& error) {
  say(job, "has failed: " + std::string{error.what()});
  stopping_ = true;
}

inline void SweepRunner::start(std::size_t index) {
  const SweepJob& job = sweep_.jobs[index];
  const auto log = folder_.begin(job);
  const Descriptor nothing{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  ChildStart start{.path = command_.path,
                   .arguments = command_.words,
                   .environment = {},
                   .input = nothing.get(),
                   .output = log.descriptor(),
                   .error = log.descriptor()};
  start.arguments.insert(start.arguments.end(), job.arguments.begin(), job.arguments.end());
  const std::string variable = kRunFolderVariable;
  for (auto& entry : own_environment())
    if (!entry.starts_with(variable + '=')) start.environment.push_back(std::move(entry));
  start.environment.push_back(variable + '=' + folder_.path(job).string());
  running_.push_back({index, Child{start}, Clock::now()});
  say(job, "starts: " + shell_line(job.varied));
}

inline void SweepRunner::on_signal(int number) {
  if (number == SIGCHLD) return;  // `notice_ends` checks all jobs anyway
  const bool kills = number == SIGINT && interrupts_.note();
  if (request_ && number == SIGINT && !kills) return;  // the jobs are stopping
  for (const auto& job : running_) {
    job.child.send_signal(kills ? SIGKILL : number);
    job.child.send_signal(SIGCONT);  // a stopped process handles signals only after SIGCONT
  }
  forwarded_ = number;
  if (number == SIGUSR1 || number == SIGUSR2) return;
  request_ = number;
  stopping_ = true;
}

inline void SweepRunner::notice_ends() {
  for (auto at = running_.begin(); at != running_.end();) {
    const auto ended = at->child.ended();
    if (!ended) {
      ++at;
      continue;
    }
    const auto& job = sweep_.jobs[at->job];
    JobStatus status{.code = *ended < 0 ? 128 - *ended : *ended,
                     .seconds = std::chrono::duration<double>(Clock::now() - at->started).count()};
    const auto index = at->job;
    at = running_.erase(at);  // ends the processes that the job has left running
    try {
      folder_.end(job, status);
    } catch (const Error& error) {
      if (status.code == 0) status.code = static_cast<int>(error.code());
      note_failure(job, error);
    }
    statuses_[index] = status;
    stopping_ |= forwarded_ && (status.code == static_cast<int>(Errc::stopped) || status.code == 128 + *forwarded_);
    std::ostringstream text;
    text << "ended with " << status.code << " after " << std::fixed << std::setprecision(1) << status.seconds << " s";
    if (status.code != 0) text << "; see " << (folder_.path(job) / "log").string();
    say(job, text.str());
  }
}

inline int SweepRunner::exit_code() const {
  constexpr int kStopped = static_cast<int>(Errc::stopped);
  const auto request = request_ ? request_ : forwarded_;
  bool stopped = false, obeyed = false;
  for (const auto& status : statuses_) {
    if (!status || status->code == kStopped)
      stopped = true;
    else if ((request && status->code == 128 + *request) || (request_ && status->code == 128 + SIGKILL))
      obeyed = true;
    else if (status->code != 0)
      return status->code;
  }
  return obeyed ? 128 + *request : stopped ? kStopped : 0;
}

}  // namespace detail

DDPXX_INLINE int run_sweep(const Sweep& sweep, const SweepCommand& command) {
  if (sweep.options.action == SweepAction::write_slurm_array) {
    std::cout << detail::slurm_array_script(sweep, command);
    check_standard_output();
    return 0;
  }
  if (sweep.options.action == SweepAction::print) {
    for (const auto& job : sweep.jobs) {
      auto words = command.words;
      words.insert(words.end(), job.for_the_record().begin(), job.for_the_record().end());
      std::cout << job.number << ": " << detail::shell_line(words) << '\n';
    }
    check_standard_output();
    return 0;
  }
  if (command.num_nodes > 1)
    throw Error{Errc::config,
                "--nnodes above 1 does not go with a sweep that runs from here: add --slurm-array, which writes a "
                "script for sbatch, or leave --nnodes out"};
  return detail::SweepRunner{sweep, command}.run();
}

}  // namespace ddpxx
