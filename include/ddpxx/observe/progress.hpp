// ddpxx/observe/progress.hpp — shows the progress of a run: one line that is rewritten in place on a terminal, and a
// line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/observe/data_waits.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/smoothed.hpp>

namespace ddpxx {

struct ProgressOptions {
  /// File descriptor that is asked whether it is a terminal and how wide it is. None: that of std::cout, std::cerr or
  /// std::clog if the stream is one of them; any other stream does not count as a terminal.
  std::optional<int> descriptor = {};
  std::chrono::milliseconds plain_interval{5'000};  ///< Least time between two lines if the output is not a terminal.
};

/// Shows a run on a screen: three lines about it, then its steps, evaluations and snapshots, then what it has reached.
/// On a terminal the step line is rewritten in place and is never wider than the terminal; elsewhere lines end with a
/// line end and hold no control characters: the first step, then at most one per interval, then the last. Loss and
/// tokens per second are moving averages: single steps differ widely. A line of its own, once in a run, tells that
/// waiting for batches takes a large part of the time.
class Progress : public Observer {
 public:
  explicit Progress(std::ostream& stream, ProgressOptions options = {});
  DDPXX_INLINE ~Progress() override;

  DDPXX_INLINE std::string name() const override;

  DDPXX_INLINE void on_begin(const RunBegan& run) override;
  DDPXX_INLINE Verdict on_step(const StepDone& event) override;
  DDPXX_INLINE void on_evaluating(const Evaluating& event) override;
  DDPXX_INLINE Verdict on_evaluated(const Evaluated& event) override;
  DDPXX_INLINE void on_snapshot(const SnapshotSaved& event) override;
  /// Prints nothing if the run had no step left to do.
  DDPXX_INLINE void on_end(const RunEnded& run) override;

 private:
  using Clock = std::chrono::steady_clock;

  void draw_step();
  /// Estimated seconds to the last step or to the time limit, whichever comes first; none if neither is known.
  std::optional<double> seconds_left() const;
  /// Whether enough time has passed to draw the line again.
  bool due() const;
  /// The columns that a line may have which is drawn now.
  std::size_t line_limit() const;
  /// Draws a line that the next one replaces; without a terminal it prints the line.
  void draw(const std::string& line, std::size_t width);
  /// Prints a line that stays; on a terminal it replaces the line drawn last.
  void print(std::string line);

  std::ostream* stream_;
  std::int64_t total_steps_ = 0;  // the last step of the run; 0 if it is not known
  double seconds_allowed_ = 0;    // the time limit of the run; 0 means no limit
  ProgressOptions options_;
  bool terminal_ = false;
  std::size_t line_width_ = 0;  // width of the line on the terminal that the next one replaces; 0 if there is none
  std::optional<StepDone> last_;
  bool last_shown_ = false;
  std::int64_t skipped_steps_ = 0;  // of all trainings of the program, as the events count them
  std::optional<Clock::time_point> drawn_;
  Clock::time_point begun_ = Clock::now();
  Smoothed loss_, tokens_, step_ms_;
  DataWaits data_waits_;
  bool has_told_of_waits_ = false;  // in this run
};

/// The step line, cut between its fields where it is longer than `width`. `seconds_left` may be unknown.
std::string progress_line(const StepDone& event, std::int64_t total_steps, std::optional<double> seconds_left,
                          std::size_t width);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/progress_inl.hpp>
#endif
