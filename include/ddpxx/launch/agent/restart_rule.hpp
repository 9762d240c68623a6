// ddpxx/launch/agent/restart_rule.hpp — decides whether and when ranks are restarted after a failure.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include <ddpxx/launch/agent/failure_report.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>

namespace ddpxx::detail {

/// Decides by the attempts of one run. An attempt has made progress if a rank has read the result of a step
/// (Milestone::stepped) or, if no rank has a trainer, if the attempt lasted a minute.
class RestartRule {
 public:
  static constexpr int kMaxWithoutStep = 3;

  /// Adds a failed attempt.
  void note(std::span<const Exit> exits, std::size_t cause) {
    const bool is_ours = std::ranges::any_of(exits, &Exit::is_ours);
    const bool progressed = has_progressed(exits, exits[cause].elapsed);
    without_progress_ = progressed ? 0 : without_progress_ + 1;
    without_step_ = is_ours && !progressed ? without_step_ + 1 : 0;
    cause_ = exits[cause];
  }

  /// Adds an attempt that has not failed, and that ended because a node was lost or has come.
  void note_interruption(std::span<const Exit> exits) {
    for (const Exit& exit : exits)
      if (has_progressed(exits, exit.elapsed)) without_step_ = without_progress_ = 0;
  }

  /// Why the ranks are not restarted after the last failure; empty if they are.
  std::string refusal() const {
    if (would_repeat(cause_)) return repeat_line(cause_, /*has_restarts=*/true);
    if (without_step_ < kMaxWithoutStep) return {};
    return std::to_string(kMaxWithoutStep) +
           " starts in a row have ended before the result of a step was read; not started again";
  }

  /// The time to wait before the next attempt: 0 at first, then 250 ms, doubled each time, up to 4 s.
  std::chrono::milliseconds pause() const {
    using std::chrono::milliseconds;
    if (without_progress_ < 2) return milliseconds{0};
    return std::min(milliseconds{4'000}, milliseconds{250 << std::min(without_progress_ - 2, 10)});
  }

 private:
  static bool has_progressed(std::span<const Exit> exits, std::chrono::milliseconds elapsed) {
    if (std::ranges::any_of(exits, &Exit::stepped)) return true;
    return std::ranges::none_of(exits, &Exit::trains) && elapsed >= std::chrono::minutes{1};
  }

  Exit cause_;
  int without_step_ = 0;      // attempts in a row
  int without_progress_ = 0;  // attempts in a row
};

}  // namespace ddpxx::detail
