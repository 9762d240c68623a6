// ddpxx/observe/observer.hpp — the interface of what watches a run: files, screens, rules that stop it.
#pragma once

#include <span>
#include <string>

#include <ddpxx/observe/events.hpp>

namespace ddpxx {

struct Slice;  // flat/arena.hpp, which an observer of gradients includes

/// What an observer answers to an event. `stop` is a vote: all ranks stop after the same step, a few steps later, and
/// the run ends as it does at max_time, with a snapshot if there is a save_dir.
enum class Verdict { go_on, stop };

/// Watches a run. A program derives from it, overrides the events that it wants, and calls `Trainer::add`:
///
///     struct StopAtLoss : Observer {
///       std::string name() const override { return "StopAtLoss"; }
///       Verdict on_step(const StepDone& step) override { return step.loss < 0.1 ? Verdict::stop : Verdict::go_on; }
///     };
///     trainer.add(std::make_shared<StopAtLoss>());
///
/// An observer is called in the thread of the training loop, and the loop waits for it. It starts no collective, unless
/// it was added on every rank and starts the same one on each. Such an observer may call evaluate() and save() of its
/// trainer in on_step, and save() in on_evaluated.
/// Ranks   Local: the observers of a rank are those that were added there. The numbers of an event are those of all
///         ranks, unless the event says otherwise.
/// Errors  An exception ends no run. The first one of an observer is a warning with its name, and further ones are
///         counted. Two events are different. From `on_begin` an exception reaches the program, on every rank: nothing
///         has been trained then, and the observers whose `on_begin` has returned get `on_end`. From
///         `before_optimizer_step` it ends the rank, and with it the run: the rank would go on with other gradients
///         than the others.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  /// The name of the observer in warnings.
  virtual std::string name() const = 0;

  /// Once, in resume(), or before the first step of a loop without it. No other event comes before it.
  virtual void on_begin(const RunBegan&) {}
  /// Once for each optimizer step, two steps after it was started: the loop does not wait for a device.
  virtual Verdict on_step(const StepDone&) { return Verdict::go_on; }
  /// Several times during an evaluation.
  virtual void on_evaluating(const Evaluating&) {}
  /// After an evaluation, when the model has its parameters again where their moving average was evaluated.
  virtual Verdict on_evaluated(const Evaluated&) { return Verdict::go_on; }
  /// Once a snapshot can be loaded, which may be some steps after it was asked for.
  virtual void on_snapshot(const SnapshotSaved&) {}
  /// Between backward and clip of each step, on all slices that this rank's optimizer steps: gradients are averaged
  /// over the ranks, not scaled, and may be changed. An observer that changes a parameter changes `Slice::values`: the
  /// model's own tensor may be a copy of them, which the step overwrites. Not called where the strategy steps in
  /// backward.
  virtual void before_optimizer_step(const std::span<const Slice>&) {}
  /// Once, after the last event.
  virtual void on_end(const RunEnded&) {}
};

}  // namespace ddpxx
