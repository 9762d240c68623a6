// ddpxx/observe/progress.hpp — how a run looks while it runs: one line that renews itself on a terminal, few plain
// lines everywhere else.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>

namespace ddpxx {

struct ProgressOptions {
  /// Asked whether it is a terminal, and how wide; none: the stream's own where it is a standard stream.
  std::optional<int> descriptor = {};
  std::chrono::milliseconds plain_interval{5'000};  ///< Between two lines where there is no terminal.
};

/// Shows steps, evaluations and snapshots of one rank. On a terminal the step line is rewritten in place and is never
/// wider than the terminal; elsewhere lines end with a line end and hold no control characters: the first step, then at
/// most one per interval, then the last.
class Progress {
 public:
  /// `total_steps` is where the run ends; 0 when that is not known.
  explicit Progress(std::ostream& stream, std::int64_t total_steps = 0, ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (line_width_ > 0) *stream_ << std::endl;  // what the program says next, an error perhaps, gets its own line
  }

  void show(const StepDone& event);
  void show(const Evaluated& event);
  void show(const SnapshotSaved& event);

  /// The run has ended: shows the last step if it was not shown.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void draw_step();
  void print(std::string line);

  std::ostream* stream_;
  std::int64_t total_steps_;
  ProgressOptions options_;
  bool terminal_ = false;
  std::size_t line_width_ = 0;  // of the line that stands open on the terminal
  std::optional<StepDone> last_;
  bool last_shown_ = false;
  std::optional<Clock::time_point> drawn_;
  double smooth_step_ms_ = 0;
};

/// The step line without what lies behind its `width`-th column, cut between its fields. `seconds_left` may be unknown.
inline std::string progress_line(const StepDone& event, std::int64_t total_steps, std::optional<double> seconds_left,
                                 std::size_t width);

namespace detail {

inline std::string formatted(const char* format, auto... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

/// Three digits and a letter: 87, 412k, 1.25M.
inline std::string short_count(double value, double unit, std::string_view letters) {
  std::size_t letter = 0;
  for (; value >= unit * 0.9995 && letter + 1 < letters.size(); ++letter) value /= unit;
  const char* format = letter == 0 || value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f";
  return formatted(format, value) + (letter == 0 ? "" : std::string{letters[letter]});
}

/// 45s, 12m05s, 3h12m, 2d03h.
inline std::string short_duration(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return formatted("%llds", whole);
  if (whole < 3'600) return formatted("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86'400) return formatted("%lldh%02lldm", whole / 3'600, whole % 3'600 / 60);
  return formatted("%lldd%02lldh", whole / 86'400, whole % 86'400 / 3'600);
}

inline int descriptor_of(const std::ostream& stream) {
  if (&stream == &std::cout) return STDOUT_FILENO;
  return &stream == &std::cerr || &stream == &std::clog ? STDERR_FILENO : -1;
}

inline std::size_t terminal_width(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace detail

inline std::string progress_line(const StepDone& event, std::int64_t total_steps, std::optional<double> seconds_left,
                                 std::size_t width) {
  using detail::formatted;
  std::vector<std::string> fields = {
      "step " + std::to_string(event.step) + (total_steps > 0 ? '/' + std::to_string(total_steps) : ""),
      "loss " + formatted("%.4f", event.loss),
      "gnorm " + formatted("%.2f", event.grad_norm),
      "lr " + formatted("%.2e", event.learning_rate),
      detail::short_count(event.tokens_per_second, 1'000, " kMGT") + " tok/s",
      "mem " + detail::short_count(static_cast<double>(event.peak_memory_bytes), 1'024, " KMGT"),
  };
  if (seconds_left) fields.push_back("eta " + detail::short_duration(*seconds_left));
  std::string line;
  for (const std::string& field : fields) {
    const std::string gap = line.empty() ? "" : "  ";
    if (!line.empty() && line.size() + gap.size() + field.size() > width) break;
    line += gap + field;
  }
  return line.substr(0, width);
}

inline Progress::Progress(std::ostream& stream, std::int64_t total_steps, ProgressOptions options)
    : stream_{&stream}, total_steps_{total_steps}, options_{options} {
  if (!options_.descriptor) options_.descriptor = detail::descriptor_of(stream);
  const auto kind = environment("TERM");
  terminal_ = ::isatty(*options_.descriptor) == 1 && kind && *kind != "dumb";
}

inline void Progress::show(const StepDone& event) {
  static constexpr std::chrono::milliseconds kRedraw{100};
  static constexpr double kWeightOfOne = 0.1;
  smooth_step_ms_ += (last_ ? kWeightOfOne : 1.0) * (event.step_ms - smooth_step_ms_);
  last_ = event;
  last_shown_ = false;
  const auto interval = terminal_ ? kRedraw : options_.plain_interval;
  if (!drawn_ || event.step == total_steps_ || Clock::now() - *drawn_ >= interval) draw_step();
}

inline void Progress::show(const Evaluated& event) {
  print("step " + std::to_string(event.step) + "  val_loss " + detail::formatted("%.4f", event.val_loss));
}

inline void Progress::show(const SnapshotSaved& event) {
  print("step " + std::to_string(event.step) + "  snapshot " + harmless(event.path) +
        detail::formatted(" saved in %.1fs, training waited %.1fs", event.seconds, event.waited_seconds));
}

inline void Progress::finish() {
  if (last_ && !last_shown_) draw_step();
  if (line_width_ > 0) *stream_ << std::endl;
  line_width_ = 0;
}

inline void Progress::draw_step() {
  std::optional<double> seconds_left;
  if (total_steps_ > last_->step)
    seconds_left = static_cast<double>(total_steps_ - last_->step) * smooth_step_ms_ / 1'000;
  drawn_ = Clock::now();
  last_shown_ = true;
  if (!terminal_) return print(progress_line(*last_, total_steps_, seconds_left, std::string::npos));
  // A line that fills the last column makes some terminals go on to the next.
  const std::size_t room = detail::terminal_width(*options_.descriptor) - 1;
  std::string line = progress_line(*last_, total_steps_, seconds_left, room);
  const std::size_t width = line.size();
  line.resize(std::max(width, std::min(line_width_, room)), ' ');
  (*stream_ << '\r' << line).flush();
  line_width_ = width;
}

/// A line that stays; it takes the place of the open one.
inline void Progress::print(std::string line) {
  if (line_width_ > 0) {
    line.resize(std::max(line.size(), line_width_), ' ');
    line.insert(line.begin(), '\r');
    line_width_ = 0;
  }
  *stream_ << line << std::endl;
}

}  // namespace ddpxx
