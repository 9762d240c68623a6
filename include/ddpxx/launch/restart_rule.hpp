// ddpxx/launch/restart_rule.hpp — whether the ranks are started again after a failure, and how soon.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include <ddpxx/launch/failure_report.hpp>
#include <ddpxx/launch/root_cause.hpp>

namespace ddpxx {

/// Looks at the failed starts of one run, one after the other. A start has made progress when a rank has told of a step
/// that it has done (Milestone::stepped), or, in programs that tell nothing, when it lived for a minute.
class RestartRule {
 public:
  static constexpr int kMostWithoutStep = 3;

  void note(std::span<const Exit> exits, std::size_t cause) {
    const bool trains = std::any_of(exits.begin(), exits.end(), [](const Exit& exit) { return exit.trains; });
    const bool stepped = std::any_of(exits.begin(), exits.end(), [](const Exit& exit) { return exit.stepped; });
    without_step_ = trains && !stepped ? without_step_ + 1 : 0;
    const bool progressed = stepped || (!trains && exits[cause].elapsed >= std::chrono::minutes{1});
    without_progress_ = progressed ? 0 : without_progress_ + 1;
    cause_ = exits[cause];
  }

  /// Why the ranks are not started again after the failure that was noted last; empty when they are.
  std::string refusal() const {
    if (would_repeat(cause_)) return repeat_line(cause_, /*has_restarts=*/true);
    if (without_step_ < kMostWithoutStep) return {};
    return std::to_string(kMostWithoutStep) + " starts in a row have ended before a step was done; not started again";
  }

  /// The time to wait before the next start: nothing at first, then longer and longer, up to four seconds.
  std::chrono::milliseconds pause() const {
    using std::chrono::milliseconds;
    if (without_progress_ < 2) return milliseconds{0};
    return std::min(milliseconds{4'000}, milliseconds{250 << std::min(without_progress_ - 2, 10)});
  }

 private:
  Exit cause_;
  int without_step_ = 0;      // starts in a row
  int without_progress_ = 0;  // starts in a row
};

}  // namespace ddpxx
