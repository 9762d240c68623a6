// ddpxx/train/train_step.hpp — one optimizer step over all ranks: batches in, the numbers of a step out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/train/anomaly_detector.hpp>
#include <ddpxx/train/averaged_model.hpp>
#include <ddpxx/train/captured_step.hpp>
#include <ddpxx/train/check_group_device.hpp>
#include <ddpxx/train/check_step.hpp>
#include <ddpxx/train/decay_rule.hpp>
#include <ddpxx/train/default_types.hpp>
#include <ddpxx/train/gradient_pass.hpp>
#include <ddpxx/train/known_metrics.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/parameter_groups.hpp>
#include <ddpxx/train/parameter_step.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/step_clock.hpp>
#include <ddpxx/train/step_facts.hpp>
#include <ddpxx/train/step_log.hpp>
#include <ddpxx/train/train_step_config.hpp>

namespace ddpxx {

/// What a loop tells TrainStep about the step that it starts: the step's place in the data, and this rank's votes. The
/// votes of all ranks are combined and returned with the step's numbers, in `CompletedStep`.
struct StepNotes {
  std::int64_t epoch = 0;    ///< The epoch of the step's batches.
  std::int64_t samples = 0;  ///< Samples that all ranks together have trained on once the step is done.
  StepVotes votes = {};      ///< Of this rank.
  double data_ms = 0;        ///< Milliseconds for which this rank has waited for the step's batches.
};

/// Does one optimizer step after the other on batches from any source, in one order: forward and backward of each
/// micro-batch, unscale, hooks, clip, step, average.
///
///     TrainStep<Net> step{group, model, {.grad_norm_clip = 1.0, .optimizer = {.learning_rate = 1e-3}}};
///     for (const auto& batch : batches)
///       if (const auto done = step.step(std::span{&batch, 1})) show(done->row);
///     step.read_all([](const CompletedStep& done) { show(done.row); });
///     step.make_whole();
///
/// The loop never waits for a device: the numbers of a step are read when two later steps have been started, and
/// read_all() reads the rest.
///
/// With `capture`, the first three steps with one micro-batch run as without it. The next step whose batch is as large
/// as the largest so far is captured, and replayed for later batches of equal sizes. A larger batch is captured anew,
/// and all other steps run as without it. A replay does not compute again what the host does in the model's forward,
/// nor numbers that it hands to operations, such as `Batch::num_tokens`. Hooks run in each step.
///
/// Ranks   Collective: every rank makes one of the same configuration, and calls the same functions in the same order.
/// Errors  `config` for grad_norm_clip where parameters are stepped in backward, for spike_factor where a step cannot be
///         left out, for `capture` where the strategy or the optimizer cannot be captured, for parameter_groups that
///         the optimizer does not take, for a model that is on another device than the group, and for what the strategy
///         refuses; those of the parts; those of `StepLog`.
template <class Model, class Optimizer = AdamW, class Precision = Float32, class Strategy = DDP>
class TrainStep {
  static_assert(explain_optimizer<Optimizer>() && explain_precision<Precision>() && explain_strategy<Strategy>());
  static_assert(!scales_loss<Precision> || SkipsSteps<Optimizer>,
                "optimizer: this precision scales the loss, and needs `void step(double learning_rate, const "
                "std::optional<at::Tensor>& found_inf)`, which changes nothing where found_inf is 1");
  static_assert(!steps_in_backward<Strategy> || BuiltFromSlices<Optimizer>,
                "StepInBackward steps a part of the parameters at a time, and this optimizer needs whole parameters or "
                "matrices: choose the strategy alone");
  static_assert(!LetsRanksDrift<Strategy> || !MatrixOptimizer<Optimizer>,
                "this strategy lets the ranks hold different parameters, and this optimizer computes a matrix once for "
                "all of them: choose another strategy");
  static_assert(!steps_in_backward<Strategy> || !scales_loss<Precision>,
                "StepInBackward cannot leave a step out, which a scaled loss needs: that is known when all gradients "
                "are there, and then the first have been stepped. Choose AutocastBF16, or the strategy alone");

 public:
  using Config = TrainStepConfig<Optimizer, Precision, Strategy>;

  /// Throws what the constructor refuses before it sends anything.
  static void check(const Config& config) { detail::check_step(config); }

  TrainStep(Group& group, std::shared_ptr<Model> model, const Config& config)
      : group_{&group},
        config_{checked(config, group, model.get())},
        model_{std::move(model)},
        precision_{config.precision},
        groups_{parameter_groups(*model_, decay_rule(*model_), config.parameter_groups)},
        flat_{*model_, groups_.group_of, precision_.formats()},
        device_{flat_.device()},
        strategy_{config.strategy, group},
        parameter_step_{group,
                        strategy_,
                        flat_,
                        precision_,
                        config_.optimizer,
                        {config_.grad_norm_clip, config_.grad_value_clip, config_.fused_clip, config_.spike_factor},
                        config_.plateau,
                        groups_.table,
                        model_->named_parameters().keys()},
        gradient_pass_{*model_, precision_, strategy_, parameter_step_, device_, group.size(), Log{group.rank()}},
        averaged_model_{config_.ema_decay, strategy_},
        clock_{config_.rank_times ? group.wait_clock() : nullptr},
        log_{group.size(), LetsRanksDrift<Strategy>} {
    if (config_.capture) captured_.emplace(config_.capture(device_));
    if (config_.detect_anomaly) anomalies_.emplace(*model_);
  }
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Does step n, one optimizer step on the micro-batches of this rank, and returns the numbers of step n - 2; none in
  /// the first two steps, and in the first two after read_all() or resume_at().
  ///
  /// Ranks   Collective; every rank passes the same number of micro-batches.
  /// After an exception in a forward or backward pass the step may be tried again.
  /// Errors  `data` for no batch, and when the batches of the first step count no targets; `peer` on every rank where
  ///         the model's metrics in the first step differ between the ranks; `config` where those of a later batch have
  ///         other names, inside of read_all(), and between show_average() and show_parameters(); those of
  ///         `StepLog::pop` about an earlier step.
  template <std::ranges::forward_range Batches>
  std::optional<CompletedStep> step(const Batches& batches, const StepNotes& notes = {}) {
    static_assert(explain_batch<std::ranges::range_value_t<Batches>>());
    static_assert(explain_model<Model, std::ranges::range_value_t<Batches>>());
    if (std::ranges::empty(batches))
      throw Error{Errc::data, "step " + std::to_string(step_ + 1) +
                                  " was given no batch: pass at least one, and the same number on every rank"};
    if (is_reading_all_)
      throw Error{Errc::config,
                  "step() was called while the last steps are reported, as from an observer during an evaluation: call "
                  "it after that"};
    averaged_model_.expect_parameters("step()");
    if (!captured_) return do_step(batches, notes);
    std::optional<CompletedStep> done;
    captured_->run([&] { done = do_step(batches, notes); });
    return done;
  }

  /// Calls `report(completed)` for each step that is still under way, the oldest first. `report` may call it again, as
  /// an observer that evaluates does, and the inner call reports the rest then.
  ///
  /// Ranks   Collective.
  /// Errors  those of `StepLog::pop`.
  template <class Report>
  void read_all(Report&& report) {
    if (log_.empty()) return;
    const auto report_rest = [&] {
      while (const auto done = pop(1)) report(*done);
    };
    if (is_reading_all_) return report_rest();
    StepFacts facts{{.last_calls = calls()}, std::exchange(last_step_, {}), *group_};
    log_.close(facts.sums());
    is_reading_all_ = true;
    const auto reopen = [this] {
      log_.reopen();
      is_reading_all_ = false;
    };
    try {
      report_rest();
    } catch (...) {
      reopen();
      throw;
    }
    reopen();
  }

  /// From now on `hook` runs in every step, after those that were added before it, when the gradients of all
  /// micro-batches and ranks have been averaged and unscaled, and before they are clipped. A hook that changes a
  /// parameter changes `Slice::values`: the model's own tensor may be a copy of them, which the step overwrites.
  /// Ranks   Local. The slices are those of this rank; a hook that communicates must be added on every rank. Where ranks
  ///         step equal slices, as under DDP, each of them must change the gradients equally.
  /// Errors  `config` for a strategy that steps in backward: it never holds all gradients.
  void before_optimizer_step(SliceHook hook) {
    if (steps_in_backward<Strategy>)
      throw Error{Errc::config,
                  "before_optimizer_step: StepInBackward has stepped the first parameters before it has the gradients "
                  "of the last: choose the strategy alone"};
    parameter_step_.add_hook(std::move(hook));
  }

  /// The loss of a batch, with autograd where it is on, and the model's metrics of it. Inside of step() gradients
  /// follow from the loss.
  template <class Batch>
  Loss loss_of(const Batch& batch) {
    return gradient_pass_.loss_of(batch);
  }

  /// Gives the model the moving average of its parameters, as for an evaluation. Does nothing where no average is kept.
  /// Ranks   Collective.
  void show_average() { averaged_model_.show_average(); }
  /// Gives the model its parameters again.
  /// Ranks   Collective.
  void show_parameters() { averaged_model_.show_parameters(); }

  /// Exchanges this rank's parameters and their average back after an exception since show_average().
  /// Ranks   Local. The model itself gets its parameters back in show_parameters(), or at the next step or make_whole(),
  ///         since that may take a collective.
  void take_back_average() noexcept { averaged_model_.take_back(); }

  /// Gives the model of every rank all parameters, with equal values, until the next step; under FSDP not with
  /// whole_at_end=false.
  /// Ranks   Collective.
  void make_whole() {
    averaged_model_.show_parameters();
    strategy_.make_whole();
    share_buffers();
  }

  /// Gives the model of every rank rank 0's buffers, where a step begins with that too.
  /// Ranks   Collective.
  void share_buffers() {
    if constexpr (SharesBuffers<Strategy>) strategy_.share_buffers();
  }

  /// Compares the bits of the parameters of which several ranks hold copies. Returns a sentence about the first rank
  /// that differs from most others; empty where the copies are equal.
  /// Ranks   Collective: all ranks return the same.
  /// Errors  `config` between show_average() and show_parameters().
  std::string difference_of_replicas()
    requires HoldsReplicas<Strategy>
  {
    averaged_model_.expect_parameters("difference_of_replicas()");
    averaged_model_.show_parameters();  // an evaluation that failed may have left copies of the average
    return ddpxx::difference_of_replicas(strategy_.replicas(), *group_);
  }

  /// Notes the metric of an evaluation where `plateau.metric` names one. If the evaluations have stopped improving, the
  /// learning rate of the next steps is lower; returns that of the next step then.
  /// Ranks   Local; every rank must note the same values.
  std::optional<double> note_evaluation(double value) { return parameter_step_.note_evaluation(value, step_); }

  /// Restarts the clock that measures the next step's `step_ms` and this rank's time in it.
  void restart_clock() { clock_.restart(); }

  /// After an exception in step(): whether it came before any parameter was stepped, so that the same step may be tried
  /// again.
  bool can_try_again() const noexcept { return !has_changed_parameters_; }

  std::int64_t steps_done() const noexcept { return step_; }
  /// Targets of all ranks, in all steps whose numbers have been read.
  std::int64_t tokens() const noexcept { return tokens_; }
  at::Device device() const noexcept { return device_; }
  Model& model() noexcept { return *model_; }
  const Model& model() const noexcept { return *model_; }
  Strategy& strategy() noexcept { return strategy_; }
  const Strategy& strategy() const noexcept { return strategy_; }
  const FlatModel& flat_model() const noexcept { return flat_; }
  /// The settings of the optimizer groups, by the numbers that parameters have in flat_model().
  std::span<const ParameterGroup> groups() const noexcept { return groups_.table; }

  /// Bytes of this rank's persistent parameters, gradients and optimizer state.
  std::int64_t state_bytes() const {
    auto bytes = strategy_.trainable().bytes() + strategy_.frozen().bytes();
    for (const auto& moment : parameter_step_.optimizer().moments())
      for (const auto& slice : moment.slices) bytes += static_cast<std::int64_t>(slice.nbytes());
    return bytes;
  }

  /// All that a step changes, for a snapshot to write or to read into.
  /// Errors  `config` between show_average() and show_parameters().
  RunState state() const {
    averaged_model_.expect_parameters("state()");
    RunState state{state_parts(strategy_.trainable(), strategy_.frozen(), parameter_step_.optimizer().moments()),
                   {},
                   optimizer_name()};
    if (auto average = averaged_model_.state()) state.parts.push_back(std::move(*average));
    for (const auto& buffer : model_->named_buffers())
      state.whole.emplace_back("model." + buffer.key(), buffer.value());
    for (auto& value : parameter_step_.state()) state.whole.push_back(std::move(value));
    return state;
  }

  /// Continues after step `step`, whose values have been read into state() as far as `held` says; the rest begins anew.
  /// Ranks   Collective.
  void resume_at(std::int64_t step, std::int64_t tokens, const HeldState& held) {
    // Drop the steps that were under way: they are not those before the snapshot.
    log_ = StepLog{group_->size(), LetsRanksDrift<Strategy>};
    last_step_ = {};
    averaged_model_.resume_at(step, held.average);
    step_ = step;
    tokens_ = tokens;
    parameter_step_.resume_at(step, held, precision_);
    if constexpr (ResumesAtStep<Strategy>) strategy_.resume_at(step);
  }

 private:
  static Config checked(Config config, const Group& group, const Model* model) {
    check(config);
    config.rank_times = config.rank_times && group.size() > 1;
    if (model == nullptr) throw Error{Errc::config, "a step needs a model, and it is null"};
    if (const auto parameters = model->parameters(); !parameters.empty())
      check_group_device(parameters.front().device(), group.device());
    return config;
  }

  template <std::ranges::forward_range Batches>
  std::optional<CompletedStep> do_step(const Batches& batches, const StepNotes& notes) {
    has_changed_parameters_ = false;
    averaged_model_.show_parameters();
    parameter_step_.begin(step_);
    std::int64_t targets = 0;
    for (const auto& batch : batches) {
      if (batch.num_tokens < 0)
        throw Error{Errc::data, "step " + std::to_string(step_ + 1) +
                                    ": a batch has num_tokens=" + std::to_string(batch.num_tokens) +
                                    ": set it to the number of targets that count in the loss"};
      targets += batch.num_tokens;
    }
    StepFacts facts{{.targets = targets, .votes = notes.votes, .last_calls = calls()}, last_step_, *group_};
    if (!std::exchange(targets_checked_, true)) facts.check_targets();  // StepLog checks the later steps
    const auto scale = parameter_step_.loss_scale();
    auto before = std::exchange(last_step_, {});
    at::Tensor norm;
    try {
      const auto found_inf = gradients(batches, facts);
      known_metrics_.expect(last_step_.metrics.names(), step_ + 1);
      has_changed_parameters_ = true;
      const auto stepped = parameter_step_.step(found_inf, captured());
      norm = stepped.norm;
      last_step_.skipped = stepped.skipped;
      averaged_model_.finish_step();
    } catch (...) {
      if (parameter_step_.has_stepped_in_backward()) has_changed_parameters_ = true;
      last_step_ = std::move(before);  // goes with the facts of the next attempt
      throw;
    }
    ++step_;
    has_changed_parameters_ = false;
    known_metrics_.learn(last_step_.metrics.names(), step_, *group_);
    // A norm of this rank alone must not end the run on this rank alone: the ranks report the mean of their norms.
    if constexpr (LetsRanksDrift<Strategy>) last_step_.norm = norm;
    const auto lap = clock_.take();
    // On a GPU the host may wait for data while the stream waits for other ranks.
    if (config_.rank_times)
      last_step_.time = RankTime{.own_ms = lap.own_ms, .data_ms = std::min(notes.data_ms, lap.own_ms)};
    log_.push({.step = step_,
               .epoch = notes.epoch,
               .learning_rate = parameter_step_.learning_rate(),
               .skipped_steps = last_step_.skipped.defined() ? std::optional<std::int64_t>{0} : std::nullopt,
               .step_ms = lap.step_ms,
               .data_ms = notes.data_ms,
               .samples = notes.samples,
               .rank_times = std::vector<RankTime>(config_.rank_times ? static_cast<std::size_t>(group_->size()) : 0)},
              facts.sums(), LetsRanksDrift<Strategy> ? at::Tensor{} : norm, scale, last_step_.metrics.names());
    return pop(StepLog::kKeptBack);
  }

  /// Computes the gradients of the step, and returns what GradientPass::run() returns.
  template <std::ranges::forward_range Batches>
  at::Tensor gradients(const Batches& batches, StepFacts& facts) {
    if (!anomalies_) return gradient_pass_.run(batches, facts, last_step_, captured());
    try {
      const auto watch = anomalies_->watch();
      return gradient_pass_.run(batches, facts, last_step_, nullptr, &*anomalies_);
    } catch (Error& error) {
      error.with("step", step_ + 1);
      throw;
    }
  }

  /// A hash of what this rank has called and sent since the last step; 0 unless the strategy verifies calls.
  std::uint16_t calls() {
    if constexpr (VerifiesCalls<Strategy>) {
      const auto hash = strategy_.take_call_hash();
      return static_cast<std::uint16_t>(hash ^ (hash >> 16U));
    }
    return 0;
  }

  CapturedStep* captured() noexcept { return captured_ ? &*captured_ : nullptr; }

  std::optional<CompletedStep> pop(std::size_t kept_back) {
    auto done = log_.pop(kept_back);
    if (!done) return done;
    tokens_ += static_cast<std::int64_t>(done->targets);
    done->row.tokens = tokens_;
    done->row.tokens_per_second = done->targets / (done->row.step_ms / 1000.0);
    return done;
  }

  /// The name of the optimizer in snapshots; empty if it has none.
  static std::string optimizer_name() {
    if constexpr (HasPythonName<Optimizer>)
      return std::string{Optimizer::kPythonName};
    else if constexpr (HasSnapshotName<Optimizer>)
      return std::string{Optimizer::kSnapshotName};
    else
      return {};
  }

  Group* group_;
  Config config_;
  std::shared_ptr<Model> model_;
  Precision precision_;
  ParameterGroups groups_;
  FlatModel flat_;
  at::Device device_;
  Strategy strategy_;
  ParameterStep<Optimizer, Precision, Strategy> parameter_step_;
  GradientPass<Model, Optimizer, Precision, Strategy> gradient_pass_;
  AveragedModel<Strategy> averaged_model_;
  std::optional<CapturedStep> captured_;      ///< None where steps are not captured.
  std::optional<AnomalyDetector> anomalies_;  ///< None where no operation is watched.
  StepClock clock_;
  StepLog log_;
  LastStep last_step_;  ///< Facts of the current step, which are sent with those of the next one.
  KnownMetrics known_metrics_;
  bool targets_checked_ = false;
  bool has_changed_parameters_ = false;  ///< A step that an exception has ended has changed parameters.
  bool is_reading_all_ = false;          ///< read_all() has closed the log.
  std::int64_t step_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace ddpxx
