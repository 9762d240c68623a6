// ddpxx/train/step_log.hpp — the numbers of the last steps, read when they have arrived and not before.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/train/metric_sums.hpp>
#include <ddpxx/train/step_facts.hpp>

namespace ddpxx {

/// One optimizer step whose numbers have arrived, with the votes that the ranks sent when they started it.
struct CompletedStep {
  StepDone row;
  double targets = 0;    ///< Targets of all ranks in this step.
  StepVotes votes = {};  ///< Of all ranks.
};

/// Steps whose numbers are on their way to the host. A step's loss travels with the facts of the step after it, so a
/// step is complete once its successor has been pushed; with two steps kept back the loop never waits for a device.
class StepLog {
 public:
  static constexpr std::size_t kKeptBack = 2;
  /// The run ends after this many steps in a row that were left out: neither the loss scale nor a batch is the cause.
  static constexpr std::int64_t kMaxSkipped = 100;

  /// `ranks_skip_alone` says whether a rank may leave out a step that others do.
  explicit StepLog(int world_size, bool ranks_skip_alone = false)
      : world_size_{world_size}, ranks_skip_alone_{ranks_skip_alone} {}

  /// Adds a step that has been started: its row lacks the loss, the norm, the scale, the metrics, and the values of its
  /// rank_times. `norm` is undefined where each rank has one of its own, which goes with the facts of the next step.
  /// `scale` is undefined where the loss is not scaled, and not written to after this call. `metrics` are the names of
  /// the step's metrics.
  void push(StepDone row, const at::Tensor& facts, const at::Tensor& norm, const at::Tensor& scale = {},
            std::vector<std::string> metrics = {}) {
    UnderWay step{std::move(row), HostCopy{facts}, std::nullopt, std::nullopt, std::move(metrics)};
    if (norm.defined()) step.norm.emplace(norm);
    if (scale.defined()) step.scale.emplace(scale);
    steps_.push_back(std::move(step));
  }

  /// Removes and returns the oldest step if more than `kept` are under way, else returns none. `kept` is at least 1.
  /// Ranks   Local, but every rank reads the same numbers at the same step: a verdict on them is a common one.
  /// Errors  `peer` when the ranks ran different layers, used different ones in their losses, or left out different
  ///         steps; `numerics` when loss or gradient norm is infinite or no number in a step that no rank left out,
  ///         when a step had no targets, and when the last kMaxSkipped steps were left out.
  std::optional<CompletedStep> pop(std::size_t kept) {
    if (steps_.size() <= kept) return std::nullopt;
    auto& step = steps_.front();
    step.row.loss = steps_[1].facts[StepFacts::kLastLoss] / step.facts[StepFacts::kTargets];
    step.row.grad_norm = step.norm ? (*step.norm)[0] : steps_[1].facts[StepFacts::kLastNorm] / world_size_;
    if (step.scale) step.row.loss_scale = (*step.scale)[0];
    auto& next = steps_[1].facts;
    step.row.metrics = read_metrics(step.metrics, next, StepFacts::kNumbers);
    auto index = StepFacts::first_time(2 * std::ssize(step.metrics));
    for (auto& time : step.row.rank_times) {
      time.own_ms = next[index++];
      time.data_ms = next[index++];
    }
    const auto ranks_that_skipped = next[StepFacts::kLastSkipped];
    const bool skipped = ranks_that_skipped > 0;
    const bool same_verdict = ranks_skip_alone_ || !skipped || ranks_that_skipped == world_size_;
    skipped_in_a_row_ = skipped ? skipped_in_a_row_ + 1 : 0;
    skipped_ += skipped ? 1 : 0;
    if (step.row.skipped_steps) step.row.skipped_steps = skipped_;
    const bool same_calls = StepFacts::same_calls(next[StepFacts::kCalls], next[StepFacts::kSquaredCalls], world_size_);
    CompletedStep complete{.row = step.row,
                           .targets = step.facts[StepFacts::kTargets],
                           .votes = {.to_stop = step.facts[StepFacts::kVotes] > 0,
                                     .asked_to_stop = step.facts[StepFacts::kAsked] > 0,
                                     .save_due = step.facts[StepFacts::kSaveDue] > 0,
                                     .snapshot_written = step.facts[StepFacts::kWritten] == world_size_}};
    steps_.pop_front();
    const auto& row = complete.row;
    if (!same_calls)
      throw Error{Errc::peer,
                  "the ranks did not call the same layers in the same order, or their losses use different layers, so "
                  "that weights of different layers were mixed: make the model's forward the same on every "
                  "rank, add what a loss does not use with weight 0, and resume from the last snapshot"}
          .with("step", row.step);
    if (!same_verdict)
      throw Error{Errc::peer,
                  "some ranks left out a step because of its gradients, and others did not, so that their parameters "
                  "differ: resume from the last snapshot. Machines with different processors or OMP_NUM_THREADS may "
                  "round norms differently, or a hook changes the gradients on some ranks only"}
          .with("step", row.step)
          .with("ranks_that_left_it_out", ranks_that_skipped);
    if (complete.targets == 0) throw StepFacts::no_targets(Errc::numerics).with("step", row.step);
    // The loss of a step that was left out may be anything: the scale may be too large for this batch, or the batch is
    // damaged.
    if ((!skipped && !std::isfinite(row.loss)) || !std::isfinite(row.grad_norm))
      throw Error{Errc::numerics,
                  "loss or gradient norm is not finite: lower the learning rate, or look at the data of this step; "
                  "training.detect_anomaly=true names the operation that makes NaN"}
          .with("step", row.step)
          .with("loss", row.loss)
          .with("grad_norm", row.grad_norm);
    if (skipped_in_a_row_ >= kMaxSkipped) throw too_many_skipped(row);
    return complete;
  }

  /// Ends the log with the facts that carry the last step's loss; all steps before can be popped then, down to one.
  void close(const at::Tensor& facts) { push({}, facts, {}); }
  void reopen() { steps_.clear(); }
  bool empty() const noexcept { return steps_.empty(); }

 private:
  static Error too_many_skipped(const StepDone& row) {
    const auto steps = "the last " + std::to_string(kMaxSkipped) + " steps were left out, because ";
    if (!row.loss_scale || row.grad_norm > 0)
      return Error{Errc::numerics,
                   steps +
                       "their gradients were not finite, or larger than training.spike_factor allows: nothing is "
                       "learned any more. Look at the data and the model, or set spike_factor=0: the first step whose "
                       "gradients are not finite then ends the run"}
          .with("step", row.step);
    return Error{Errc::numerics,
                 steps +
                     "gradients of the scaled loss were infinite or no numbers: nothing is learned any more. Look in "
                     "the model for what gives NaN (a division by zero, a logarithm of zero), begin with a lower scale "
                     "(initial_scale of the scaler), or train in bfloat16 or float32"}
        .with("step", row.step)
        .with("loss_scale", *row.loss_scale);
  }

  struct UnderWay {
    StepDone row;
    HostCopy facts;
    std::optional<HostCopy> norm;
    std::optional<HostCopy> scale;
    std::vector<std::string> metrics;
  };
  int world_size_;
  bool ranks_skip_alone_;
  std::int64_t skipped_ = 0;
  std::int64_t skipped_in_a_row_ = 0;
  std::deque<UnderWay> steps_;
};

}  // namespace ddpxx
