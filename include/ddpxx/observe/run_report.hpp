// ddpxx/observe/run_report.hpp — what one rank tells of a run: on the screen, and in the metrics file if there is one.
#pragma once

#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>

#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/metrics_file.hpp>
#include <ddpxx/observe/progress.hpp>
#include <ddpxx/observe/run_text.hpp>

namespace ddpxx {

/// Takes a run's events in their order, dates them, and passes them on.
class RunReport {
 public:
  /// `metrics` is the path of the metrics file; empty is none.
  /// Errors  `config` for a file that cannot be opened or is no metrics file.
  explicit RunReport(const std::string& metrics, std::ostream& screen = std::cout) : screen_{&screen} {
    if (!metrics.empty()) metrics_.emplace(metrics);
  }

  /// Comes first.
  void begin(const RunBegan& run) {
    began_ = Clock::now();
    ended_.step = first_step_ = run.step;
    ended_.last_step = run.last_step;
    if (metrics_ && run.goes_on) metrics_->resume_at(run.step);
    if (metrics_ && !run.goes_on) metrics_->start_anew();
    *screen_ << head_of_run(run) << std::flush;
    progress_.emplace(*screen_, run.last_step, ProgressOptions{.seconds_allowed = run.seconds_allowed});
  }

  void show(StepDone event) {
    ended_.step = event.step;
    pass_on(event);
  }
  void show(const Evaluating& event) {
    if (progress_) progress_->show(event);
  }
  void show(Evaluated event) {
    if (!ended_.best || event.val_loss < ended_.best->val_loss) ended_.best = event;
    pass_on(event);
  }
  void show(SnapshotSaved event) {
    ended_.saved = event.path;
    pass_on(event);
  }

  /// The run has come to its end. A run that had nothing left to do says nothing.
  void end() {
    if (!progress_) return;
    progress_->finish();
    ended_.steps = ended_.step - first_step_;
    ended_.seconds = seconds_since(began_);
    if (ended_.steps > 0) *screen_ << closing_line(ended_) << std::endl;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  template <class Event>
  void pass_on(Event& event) {
    event.at = {std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
                seconds_since(began_)};
    if (metrics_) metrics_->write(event);
    if (progress_) progress_->show(event);
  }

  std::ostream* screen_;
  std::optional<MetricsFile> metrics_;
  std::optional<Progress> progress_;
  Clock::time_point began_ = Clock::now();
  std::int64_t first_step_ = 0;
  RunEnded ended_;
};

}  // namespace ddpxx
