// ddpxx/train/step_log.hpp — the numbers of the last steps, read when they have arrived and not before.
#pragma once

#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/train/step_facts.hpp>

namespace ddpxx {

/// Steps whose numbers are on their way to the host. A step's loss travels with the facts of the step after it, so a
/// step is complete once its successor has been pushed; with two steps kept back the loop never waits for a device.
class StepLog {
 public:
  struct Complete {
    StepDone row;
    double targets = 0;  ///< Of all ranks.
    bool stop_voted = false;
    bool save_due = false;
    bool snapshot_written = false;  ///< By every rank.
  };

  static constexpr std::size_t kKeptBack = 2;

  explicit StepLog(int world_size) : world_size_{world_size} {}

  /// A step that has been launched: its row lacks the loss and the norm.
  void push(StepDone row, const at::Tensor& facts, const at::Tensor& norm) {
    steps_.push_back({std::move(row), HostCopy{facts}, HostCopy{norm}});
  }

  /// The oldest step while more than `kept` are under way.
  /// Ranks   Local, but every rank reads the same numbers at the same step: a verdict on them is a common one.
  /// Errors  `peer` when the ranks ran different layers; `numerics` when loss or gradient norm is infinite or no
  /// number.
  std::optional<Complete> pop(std::size_t kept) {
    if (steps_.size() <= kept) return std::nullopt;
    auto& step = steps_.front();
    step.row.loss = steps_[1].facts[StepFacts::kLastLoss] / step.facts[StepFacts::kTargets];
    step.row.grad_norm = step.norm[0];
    auto& next = steps_[1].facts;
    const bool same_calls = StepFacts::same_calls(next[StepFacts::kCalls], next[StepFacts::kSquaredCalls], world_size_);
    Complete complete{step.row, step.facts[StepFacts::kTargets], step.facts[StepFacts::kVotes] > 0,
                      step.facts[StepFacts::kSaveDue] > 0, step.facts[StepFacts::kWritten] == world_size_};
    steps_.pop_front();
    const auto& row = complete.row;
    if (!same_calls)
      throw Error{Errc::peer,
                  "the ranks did not call the same layers in the same order, so that weights of different layers were "
                  "mixed: make the model's forward the same on every rank, and resume from the last snapshot"}
          .with("step", row.step);
    if (complete.targets == 0) throw StepFacts::no_targets().with("step", row.step);
    if (!std::isfinite(row.loss) || !std::isfinite(row.grad_norm))
      throw Error{Errc::numerics,
                  "loss or gradient norm is not finite: lower the learning rate, or look at the data of this step"}
          .with("step", row.step)
          .with("loss", row.loss)
          .with("grad_norm", row.grad_norm);
    return complete;
  }

  /// Ends the log with the facts that carry the last step's loss; all steps before can be popped then, down to one.
  void close(const at::Tensor& facts) { steps_.push_back({{}, HostCopy{facts}, HostCopy{facts}}); }
  void reopen() { steps_.clear(); }
  bool empty() const noexcept { return steps_.empty(); }

 private:
  struct UnderWay {
    StepDone row;
    HostCopy facts;
    HostCopy norm;
  };
  int world_size_;
  std::deque<UnderWay> steps_;
};

}  // namespace ddpxx
