// ddpxx/observe/progress_inl.hpp — definitions of progress.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/progress.hpp>
#include <ddpxx/observe/run_text.hpp>
#include <ddpxx/observe/short_text.hpp>

namespace ddpxx {

namespace detail {

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

DDPXX_INLINE std::string progress_line(const StepDone& event, std::int64_t total_steps,
                                       std::optional<double> seconds_left, std::size_t width) {
  std::vector<std::string> fields = {
      "step " + std::to_string(event.step) + (total_steps > 0 ? '/' + std::to_string(total_steps) : ""),
      "loss " + formatted("%.4f", event.loss),
      "gnorm " + formatted("%.2f", event.grad_norm),
      "lr " + formatted("%.2e", event.learning_rate),
      short_count(event.tokens_per_second, 1'000, " kMGT") + " tok/s",
  };
  if (const auto skipped = event.skipped_steps.value_or(0); skipped > 0)
    fields.push_back((event.loss_scale ? "scale " + formatted("%g", *event.loss_scale) + ", " : "") +
                     std::to_string(skipped) + " skipped");
  if (seconds_left) fields.push_back("eta " + short_duration(*seconds_left));
  // Memory comes last, because a line that is too long loses its last fields.
  fields.push_back("mem " + short_count(static_cast<double>(event.peak_memory_bytes), 1'024, " KMGT"));
  std::string line;
  for (const std::string& field : fields) {
    const std::string gap = line.empty() ? "" : "  ";
    if (!line.empty() && line.size() + gap.size() + field.size() > width) break;
    line += gap + field;
  }
  return line.substr(0, width);
}

DDPXX_INLINE Progress::Progress(std::ostream& stream, ProgressOptions options) : stream_{&stream}, options_{options} {
  if (!options_.descriptor) options_.descriptor = detail::descriptor_of(stream);
  const auto kind = environment("TERM");
  terminal_ = ::isatty(*options_.descriptor) == 1 && kind && *kind != "dumb";
}

DDPXX_INLINE Progress::~Progress() {
  if (line_width_ > 0) *stream_ << std::endl;  // what the program prints next, an error perhaps, gets its own line
}

DDPXX_INLINE std::string Progress::name() const { return "the progress line"; }

DDPXX_INLINE void Progress::on_begin(const RunBegan& run) {
  total_steps_ = run.last_step;
  seconds_allowed_ = run.seconds_allowed;
  begun_ = Clock::now();
  last_.reset();
  drawn_.reset();
  loss_ = tokens_ = step_ms_ = {};
  data_waits_ = {};
  has_told_of_waits_ = false;
  *stream_ << head_of_run(run) << std::flush;
}

DDPXX_INLINE Verdict Progress::on_step(const StepDone& event) {
  // The loss of a step that was left out may be far too large, or not finite.
  const auto skipped_steps = event.skipped_steps.value_or(0);
  const bool was_left_out = skipped_steps > std::exchange(skipped_steps_, skipped_steps);
  if (!was_left_out && std::isfinite(event.loss)) loss_.add(event.loss);
  // Overflows of a scaled loss are usual, and have no norm.
  if (was_left_out && (!event.loss_scale || event.grad_norm > 0))
    print("step " + std::to_string(event.step) + "  left out, because the norm of its gradients is " +
          (event.grad_norm > 0 ? formatted("%g, far above the average", event.grad_norm) : "not finite"));
  last_ = event;
  last_shown_ = false;
  tokens_.add(event.tokens_per_second * event.step_ms / 1'000);
  step_ms_.add(event.step_ms);
  if (const auto found = data_waits_.add(event); found && !std::exchange(has_told_of_waits_, true))
    print("step " + std::to_string(event.step) +
          formatted("  %.0f%% of the time of the last ", 100 * found->waited_fraction) + std::to_string(found->steps) +
          " steps was spent waiting for batches" + (event.gpu ? ", while the GPU may have computed" : "") +
          ": set a larger num_workers, so that threads prepare them during steps");
  if (due() || event.step == total_steps_) draw_step();
  return Verdict::go_on;
}

DDPXX_INLINE void Progress::on_evaluating(const Evaluating& event) {
  // If no line was drawn yet, count the interval from here: a short evaluation then prints no line.
  if (!drawn_) drawn_ = Clock::now();
  if (!due()) return;
  drawn_ = Clock::now();
  const auto step = "step " + std::to_string(event.step),
             counts = std::to_string(event.samples) + '/' + std::to_string(event.all_samples);
  const auto width = line_limit();
  std::string line = step + "  evaluating " + counts;
  if (line.size() > width) line = "evaluating " + counts;
  draw(line, width);
}

DDPXX_INLINE Verdict Progress::on_evaluated(const Evaluated& event) {
  auto line = "step " + std::to_string(event.step) + "  val_loss " + formatted("%.4f", event.val_loss);
  for (const auto& metric : event.metrics)  // printf would show the sign of a metric whose count is 0, as -nan
    line += "  val_" + harmless(metric.name) + (std::isnan(metric.value) ? " nan" : formatted(" %.4g", metric.value));
  print(line);
  if (!last_) drawn_.reset();  // the first step is shown, also after an evaluation
  return Verdict::go_on;
}

DDPXX_INLINE void Progress::on_snapshot(const SnapshotSaved& event) {
  print("step " + std::to_string(event.step) + "  snapshot " + harmless(event.path) +
        formatted(" saved in %.1fs, training waited %.1fs", event.seconds, event.waited_seconds));
}

DDPXX_INLINE void Progress::on_end(const RunEnded& run) {
  if (last_ && !last_shown_) draw_step();
  if (line_width_ > 0) *stream_ << std::endl;
  line_width_ = 0;
  if (run.steps > 0) *stream_ << closing_line(run) << std::endl;
}

DDPXX_INLINE bool Progress::due() const {
  static constexpr std::chrono::milliseconds kRedraw{100};
  return !drawn_ || Clock::now() - *drawn_ >= (terminal_ ? kRedraw : options_.plain_interval);
}

DDPXX_INLINE std::optional<double> Progress::seconds_left() const {
  std::optional<double> seconds;
  if (total_steps_ > last_->step) seconds = static_cast<double>(total_steps_ - last_->step) * step_ms_.value() / 1'000;
  if (seconds_allowed_ > 0 && (seconds || total_steps_ == 0)) {
    const auto passed = std::chrono::duration<double>(Clock::now() - begun_).count();
    const auto left = std::max(seconds_allowed_ - passed, 0.0);
    seconds = std::min(seconds.value_or(left), left);
  }
  return seconds;
}

DDPXX_INLINE void Progress::draw_step() {
  drawn_ = Clock::now();
  last_shown_ = true;
  auto shown = *last_;
  shown.loss = loss_.value();
  if (step_ms_.value() > 0) shown.tokens_per_second = tokens_.value() / step_ms_.value() * 1'000;
  const auto width = line_limit();
  draw(progress_line(shown, total_steps_, seconds_left(), width), width);
}

DDPXX_INLINE std::size_t Progress::line_limit() const {
  // A line that fills the last column makes some terminals wrap to the next line.
  return terminal_ ? detail::terminal_width(*options_.descriptor) - 1 : std::string::npos;
}

DDPXX_INLINE void Progress::draw(const std::string& line, std::size_t width) {
  if (!terminal_) return print(line);
  auto text = line.substr(0, width);
  const auto size = text.size();
  text.resize(std::max(size, std::min(line_width_, width)), ' ');
  (*stream_ << '\r' << text).flush();
  line_width_ = size;
}

DDPXX_INLINE void Progress::print(std::string line) {
  if (line_width_ > 0) {
    line.resize(std::max(line.size(), line_width_), ' ');
    line.insert(line.begin(), '\r');
    line_width_ = 0;
  }
  *stream_ << line << std::endl;
}

}  // namespace ddpxx
