// ddpxx/observe/progress.hpp — how a run looks while it runs: one line that renews itself on a terminal, few plain
// lines everywhere else.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/smoothed.hpp>

namespace ddpxx {

struct ProgressOptions {
  /// Asked whether it is a terminal, and how wide; none: the stream's own where it is a standard stream.
  std::optional<int> descriptor = {};
  std::chrono::milliseconds plain_interval{5'000};  ///< Between two lines where there is no terminal.
};

/// Shows a run on a screen: three lines about it, then its steps, evaluations and snapshots, then what it has reached.
/// On a terminal the step line is rewritten in place and is never wider than the terminal; elsewhere lines end with a
/// line end and hold no control characters: the first step, then at most one per interval, then the last. Loss and
/// tokens per second are moving averages: single steps differ widely.
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
  /// A run that had nothing left to do says nothing.
  DDPXX_INLINE void on_end(const RunEnded& run) override;

 private:
  using Clock = std::chrono::steady_clock;

  void draw_step();
  /// Until the last step, or until the time is up if that comes first; none where neither is known.
  std::optional<double> seconds_left() const;
  /// Whether the open line may be written again.
  bool due() const;
  /// A line that the next one replaces; without a terminal it stays.
  void draw(const std::string& line, std::size_t width);
  /// A line that stays; it takes the place of the open one.
  void print(std::string line);

  std::ostream* stream_;
  std::int64_t total_steps_ = 0;  // where the run ends; 0 when that is not known
  double seconds_allowed_ = 0;    // the run ends then in any case; 0 is no limit
  ProgressOptions options_;
  bool terminal_ = false;
  std::size_t line_width_ = 0;  // of the line that stands open on the terminal
  std::optional<StepDone> last_;
  bool last_shown_ = false;
  std::optional<Clock::time_point> drawn_;
  Clock::time_point begun_ = Clock::now();
  Smoothed loss_, tokens_, step_ms_;
};

/// The step line, cut between its fields where it is longer than `width`. `seconds_left` may be unknown.
std::string progress_line(const StepDone& event, std::int64_t total_steps, std::optional<double> seconds_left,
                          std::size_t width);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/progress_inl.hpp>
#endif
