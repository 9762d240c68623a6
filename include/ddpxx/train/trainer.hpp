// ddpxx/train/trainer.hpp — the training loop; it knows optimizers, strategies and datasets by their concepts only.
#pragma once

#include <concepts>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/gpu_name.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/comm/trace_span.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/rank_progress.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/evaluation_mode.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/memory.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/snapshot/run_info.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/check_trainer.hpp>
#include <ddpxx/train/config_hash.hpp>
#include <ddpxx/train/config_walks.hpp>
#include <ddpxx/train/configured_observers.hpp>
#include <ddpxx/train/cuda_graph.hpp>
#include <ddpxx/train/decay_rule.hpp>
#include <ddpxx/train/default_types.hpp>
#include <ddpxx/train/deterministic_mode.hpp>
#include <ddpxx/train/evaluate.hpp>
#include <ddpxx/train/evaluations.hpp>
#include <ddpxx/train/gpu_memory.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/micro_batches.hpp>
#include <ddpxx/train/recorded_settings.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/step_batches.hpp>
#include <ddpxx/train/step_capture.hpp>
#include <ddpxx/train/step_profiler.hpp>
#include <ddpxx/train/stop_request.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer_config.hpp>
#include <ddpxx/train/trainer_parts.hpp>
#include <ddpxx/train/training_limits.hpp>
#include <ddpxx/train/training_snapshots.hpp>

namespace ddpxx {

/// Trains `Model` on `Dataset`; how parameters are stepped, in which numbers, and how they are held over the ranks is
/// chosen by type.
///
///     Trainer<GPT, CharDataset> trainer{group, std::make_shared<GPT>(...), dataset, config};
///     trainer.fit();
///
/// fit() calls resume(), a loop and close(), and turns signals into requests to stop. A program may hand it a loop of
/// its own, as here. One that calls resume(), step() and close() itself calls request_stop() where it wants to stop.
///
///     trainer.fit([&] {
///       while (!trainer.finished()) {
///         trainer.step();
///         if (trainer.evaluation_due()) trainer.evaluate();
///         if (trainer.save_due()) trainer.save();
///       }
///     });
///
/// A trainer uses the random generators of the process: its constructor seeds LibTorch's default generators with
/// `training.seed` plus the rank. With `training.deterministic` it sets how LibTorch computes in this process, and its
/// destructor restores that.
/// Ranks   Collective: every rank makes one, of the same configuration, and calls the same functions in the same order.
/// Errors  those of its parts; `peer` naming the settings in which the ranks differ; `data` for a dataset smaller than
///         the world; `numerics` when loss or gradient norm is not a number any more.
template <class Model, class Dataset, class Optimizer = AdamW, class Precision = Float32, class Strategy = DDP>
class Trainer {
  static_assert(explain_dataset<Dataset>());  // before Batch is asked for
  using Batch = BatchOf<Dataset>;
  static_assert(explain_model<Model, Batch>());
  using Step = TrainStep<Model, Optimizer, Precision, Strategy>;

 public:
  using Config = TrainerConfig<Optimizer, Precision, Strategy>;
  using Parts = TrainerParts<Dataset>;

  /// Checks all settings, as parse_config does, and the rules between them. A program may call it before it forms a
  /// group; a trainer calls it before it sends anything.
  ///
  /// Errors  `config`, with all that is wrong; for check_replicas_every where ranks hold no copies; for spike_factor
  ///         where a step cannot be left out; for grad_norm_clip where parameters are stepped in backward; for what the
  ///         strategy refuses.
  static void check(const Config& config) {
    check_trainer_config(config);
    if (config.training.check_replicas_every > 0 && !HoldsReplicas<Strategy>)
      throw Error{Errc::config, "training.check_replicas_every: under " + type_name<Strategy>() +
                                    " the ranks hold no copies that could be compared: set it to 0"};
    Step::check(step_config(config));
  }

  /// Makes a trainer: checks the settings on all ranks, lays out the model, and seeds the random generators. Snapshots
  /// keep `record`, as parse_recorded() returns it beside the program's config, and a run that resumes compares its
  /// settings with it.
  /// Ranks   Collective.
  Trainer(Group& group, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset, const Config& config,
          const ConfigRecord& record = {}, Parts parts = {})
      : group_{&group},
        config_{checked(config, record, parts, group, model.get(), dataset.get())},
        record_{record},
        parts_{std::move(parts)},
        hosts_{config.training.slow_rank_factor > 0 && group.size() > 1 ? all_gather_text(host_name(), group)
                                                                        : std::vector<std::string>{}},
        deterministic_{config.training.deterministic ? std::make_unique<DeterministicMode>(group.device()) : nullptr},
        step_{group, std::move(model), step_config(config)},
        micro_batches_{micro_batches(config.batch_size, config.training, group.size())},
        batches_{std::move(dataset),
                 group,
                 {.batch_size = micro_batches_.size,
                  .num_workers = config.num_workers,
                  .accumulation_steps = micro_batches_.count,
                  .seed = config.training.seed,
                  .shuffle = config.training.shuffle},
                 parts_.make_loader},
        log_{group.rank()},
        report_{log_},
        snapshots_{group,
                   step_.device(),
                   config.training,
                   config.snapshot,
                   parts_.storage,
                   open_storage,
                   [this](const SnapshotSaved& saved) { report_.show(saved); },
                   [this](std::int64_t step) { evaluations_.forget_snapshot(step); }},
        profiler_{detail::make_profiler(config_.training, group, step_.device())},
        limits_{config.training},
        evaluations_{parts_.validation,
                     group,
                     {.batch_size = config.batch_size,
                      .samples = config.training.eval_samples,
                      .early_stopping = config.early_stopping,
                      .plateau_metric = config.plateau.metric,
                      .keep_best = config.snapshot.keep_best,
                      .ranking = {config.snapshot.best_by, config.snapshot.best_mode}}} {
    if (!record.settings.empty()) config_hash_ = config_hash(record.settings);
    record_.settings = recorded_settings(std::move(record_.settings), config, batches_, parts_.validation.get(),
                                         micro_batches_.size * micro_batches_.count * group.size());
    on_rank_zero(group, Errc::config, [&] {
      add_configured_observers(report_, config_.training, parts_.screen != nullptr ? *parts_.screen : std::cout);
    });
    if constexpr (!steps_in_backward<Strategy>)
      step_.before_optimizer_step([this](std::span<const Slice> slices) { report_.before_optimizer_step(slices); });
    // Weights are the same everywhere; what dropout draws must not be.
    for (const auto& [name, device] : random_generators(group.rank(), step_.device()))
      seed_random(device, config.training.seed + static_cast<std::uint64_t>(group.rank()));
    tell_launcher(Milestone::trains);
  }

  /// Adds an observer. It is called after those that the configuration asks for and those that were added before it.
  /// Ranks   Local: it sees the events of this rank. Snapshots are reported on rank 0 only.
  /// Errors  `config` for a null pointer, for an observer that was added before, and while a training runs: between
  ///         resume(), or the first step, and close().
  void add(std::shared_ptr<Observer> observer) { report_.add(std::move(observer)); }

  /// Trains until max_steps, max_epochs or max_time, going on from the snapshot in save_dir if there is one.
  ///
  /// With a save_dir, under run_program, a signal of kStopSignals to any rank asks all of them to stop: they end after
  /// the same step, at most three steps later, and save a snapshot. Where max_steps or max_epochs is reached by then,
  /// the training has ended as it would have without the signal, and the signal takes effect after it. Without a
  /// save_dir, without run_program, and before the loop, signals keep their meaning.
  /// Errors  `stopped` when a signal or request_stop() has ended the training before its end. While this error lives,
  ///         further signals do not end the process: srun sends SIGTERM to the other ranks once one rank has ended.
  void fit() {
    fit([this] {
      while (!finished()) {
        step();
        if (evaluation_due()) evaluate();
        if (save_due()) save();
      }
    });
  }

  /// fit() with a loop of the program's own: calls resume(), `loop()` and close(). `loop` ends when finished() is true,
  /// or earlier, which ends the training there.
  /// Ranks   Collective.
  /// Errors  as of fit(), and what `loop` throws.
  template <std::invocable Loop>
  void fit(Loop loop) {
    tell_launcher(Milestone::trains);  // a stop that was told before is over
    try {
      resume();
      if (snapshots_.is_open()) stop_.hold_signals();
      loop();
      close();
    } catch (...) {
      stop_.release_signals();
      snapshots_.warn_of_wait();
      throw;
    }
    if (!stop_.is_agreed()) return stop_.raise_signals_again();  // one that came after the last step
    if (!config_.training.save_dir.empty()) tell_launcher(Milestone::stopped);
    throw stop_.error(steps_done(), config_.training.save_dir).keep(stop_.hand_over_signals());
  }

  /// Begins a training, or resumes one: loads the newest snapshot in save_dir; if there is none, the one that
  /// `snapshot` names; else keeps the trainer's present state. Without a save_dir nothing is saved. A model in
  /// evaluation mode is put into training mode; parts of a model in training mode keep the mode that they have. With
  /// training.eval_at_start a new run is evaluated.
  ///
  /// Ranks   Collective.
  /// Errors  `storage` where no snapshot can be written to save_dir, where none of those in it can be loaded, and for a
  ///         snapshot of another model or of other settings that must be equal; `config` where `snapshot` names one of
  ///         save_dir; what an observer throws when it is told of the begin; those of evaluate().
  void resume() {
    stop_.dismiss();
    votes_to_stop_ = false;
    evaluations_.begin();
    step_.strategy().wait_pending();  // gathers that an exception has left under way read what load() overwrites
    if (const auto run = snapshots_.load(record_.settings, state(), has_stepped())) {
      stand_at(*run);
      if (finished())
        log_.info("already at step " + std::to_string(steps_done()) +
                  ": nothing left to do; set a larger training.max_steps or max_epochs to train on, or " +
                  (is_saved() ? "another training.save_dir to begin anew" : "begin with an earlier snapshot"));
    }
    if (profiler_) profiler_->begin();
    begin_report();
    // In a model that trains, a part such as a frozen one may be in evaluation mode.
    if (!step_.model().is_training()) step_.model().train();
    step_.restart_clock();
    limits_.start_clocks();
    const auto& training = config_.training;
    const bool is_new = !snapshots_.has_loaded() && !has_stepped();
    if (training.eval_at_start && training.evaluates() && is_new && !evaluations_.has_result(steps_done())) evaluate();
  }

  /// One optimizer step on the next batches of the dataset. After an exception in the model's forward or backward pass
  /// the place in the dataset stays, and the next call tries the same batches again, with new random numbers; running
  /// statistics may count them twice. A sample that always fails is left out by the dataset: its batch() makes a batch
  /// of the other samples, with their num_tokens. step(batches) does not move on in the dataset.
  void step() {
    evaluations_.expect_none("step()", "call it in the training loop");
    profiled([this] {
      const auto before = batches_.cursor();
      const auto batches = batches_.next();
      const auto steps = steps_done();
      try {
        do_step(batches, before.epoch, batches_.cursor().epoch != before.epoch);
      } catch (...) {
        if (steps_done() == steps && step_.can_try_again()) batches_.seek(before);
        throw;
      }
    });
  }
  /// One optimizer step on micro-batches from elsewhere; the place in the dataset stays as it is.
  template <std::ranges::forward_range Batches>
  void step(const Batches& batches) {
    evaluations_.expect_none("step()", "call it in the training loop");
    profiled([&] { do_step(batches, batches_.cursor().epoch, false); });
  }

  /// Whether max_steps or max_epochs is reached, or the ranks have agreed to end earlier: a rank's time is over, one of
  /// its observers votes to stop, it was asked to stop, or early stopping ends the training. The ranks agree at most
  /// three steps later.
  bool finished() const { return votes_to_stop_ || stop_.is_agreed() || reached_limit(); }
  /// Whether eval_every or eval_every_epochs wants an evaluation after the last step. The step that ends the training
  /// is evaluated before it is saved, so that its snapshot has the numbers.
  bool evaluation_due() const { return !is_evaluated() && (evaluation_wanted() || wants_last_evaluation()); }
  /// Whether save_every, save_every_epochs or save_every_time want a snapshot of the last step, or snapshot.keep_best
  /// since its evaluation is one of the best.
  bool save_due() const {
    return snapshots_.is_open() && !is_saved() &&
           (save_due_ || limits_.wants_snapshot(steps_done(), ended_epochs()) ||
            evaluations_.wants_snapshot(steps_done()));
  }

  /// The mean loss over the validation set, and the model's metrics, with the parameters as they are, or with their
  /// moving average where training.ema_decay keeps one. Reports all steps that are under way first. After an exception
  /// the model has its parameters again from the next step, evaluation or close() on.
  /// Ranks   Collective.
  /// Errors  `config` without a validation set, during an evaluation, and where snapshot.keep_best,
  ///         early_stopping.metric or plateau.metric name a number that the evaluation does not have; `peer` where the
  ///         model returns other metrics on other ranks.
  EvaluationResult evaluate() { return evaluate(Occasion::asked); }

  /// The mean loss over all of `data`, and the model's metrics, with the parameters that evaluate() uses. They are only
  /// returned: observers, snapshots, early stopping and the learning rate do not learn of them.
  /// Ranks   Collective, with equal data.
  /// Errors  `config` during an evaluation; those of ddpxx::evaluate.
  EvaluationResult evaluate(const Dataset& data) {
    evaluations_.expect_none("evaluate()", "call it in on_step");
    read_all_steps();
    const auto result = with_average(
        [&] { return ddpxx::evaluate(data, *group_, config_.batch_size, 0, loss_of_batch(), [](auto...) {}); });
    step_.restart_clock();
    return result;
  }

  /// Whether the last step is the one that this run has saved or loaded last.
  bool is_saved() const { return snapshots_.is_saved(steps_done()); }

  /// Saves a snapshot of the last step, unless this run has saved or loaded that step already: the files of a snapshot
  /// do not change. With snapshot.writing=background it is being written when this returns. Saves none if
  /// snapshot.busy=skip and the save before it is still under way, or if it cannot be written and
  /// snapshot.on_failure=go_on. Reports all steps that are under way first. Where a step is evaluated as well, evaluate
  /// it first: a run that resumes does not evaluate the step of its snapshot again.
  ///
  /// Ranks   Collective.
  /// Errors  `config` without a save_dir, before resume(), after close() and during an evaluation; `storage` where it
  ///         cannot be written; `memory` on every rank where one has no memory for it.
  void save() {
    evaluations_.expect_no_running("save()", "call it in on_evaluated");
    read_all_steps();
    // The votes of this step may have been read just now, and with them that it ends the training.
    if (wants_last_evaluation() && !is_evaluated()) evaluate();
    if (snapshots_.has_saved(steps_done())) {
      save_due_ = false;
      return;
    }
    if (config_.training.check_replicas_every > 0) check_replicas();
    constexpr auto copies = LetsRanksDrift<Strategy> ? Copies::drifting : Copies::equal;
    const auto run_state = state();
    const RunInfo run{.step = steps_done(),
                      .epoch = batches_.cursor().epoch,
                      .position = batches_.cursor().position,
                      .settings = record_.settings,
                      .metrics = evaluations_.metrics(steps_done()),
                      .parameters = optimized_parameters(step_.model(), step_.flat_model(), step_.groups()),
                      .overrides = record_.overrides,
                      .config_hash = config_hash_,
                      .optimizer = run_state.optimizer,
                      .tokens = step_.tokens()};
    snapshots_.save(run, run_state, copies);
    if (is_saved()) evaluations_.note_snapshot(steps_done());
    save_due_ = false;
    step_.restart_clock();
    limits_.restart_save_clock();
  }

  /// Ends a training as its configuration wants it: reports all steps, evaluates if the settings ask for evaluations,
  /// saves if there is a save_dir, waits until the snapshot is complete, and makes the model whole on every rank.
  /// Nothing is left running then. Another training may follow, from resume() or step() on.
  ///
  /// A trainer that keeps parameters in shards and ends without this leaves a model that throws where it is used.
  /// To read parameters between two steps, hold what strategy().gathered() returns: without it, reading a parameter
  /// whose values this rank does not have throws.
  /// Ranks   Collective.
  void close() {
    read_all_steps();
    if (profiler_) profiler_->finish();
    if (reached_limit()) stop_.dismiss();
    if (stop_.is_agreed()) {
      stop_.answer(*group_);
    } else {
      stop_.forget();  // a request that came after the last step
      if (config_.training.evaluates() && !is_evaluated()) evaluate(Occasion::end);
    }
    if (snapshots_.is_open()) {
      snapshots_.expect_last();
      if (!is_saved()) save();
      snapshots_.close();
    }
    step_.make_whole();
    is_closed_ = true;
    if (std::exchange(has_begun_, false)) report_.end();
  }

  /// Asks all ranks to stop, as a signal to this process does: finished() is true on all of them after the same step,
  /// and fit() ends with Error `stopped`, and has saved a snapshot if there is a save_dir.
  /// Ranks   Local; one rank is enough. May be called in any thread, and in a signal handler.
  void request_stop() noexcept { stop_.ask(); }
  /// What has stopped the training before its end, and where: `request_stop() on rank 1`. Empty where nothing has, and
  /// before close().
  std::string stop_reason() const { return stop_.is_agreed() ? stop_.reason() : ""; }

  std::int64_t steps_done() const noexcept { return step_.steps_done(); }
  /// The epoch of the next step, from 0: the number of complete passes over the data.
  std::int64_t epoch() const noexcept { return batches_.cursor().epoch; }
  /// Optimizer steps of a whole epoch.
  std::int64_t steps_per_epoch() const { return batches_.steps_per_epoch(); }
  Model& model() noexcept { return step_.model(); }
  Strategy& strategy() noexcept { return step_.strategy(); }

 private:
  static typename Step::Config step_config(const Config& config) {
    return {.grad_norm_clip = config.training.grad_norm_clip,
            .grad_value_clip = config.training.grad_value_clip,
            .fused_clip = config.training.fused_clip,
            .spike_factor = config.training.spike_factor,
            .ema_decay = config.training.ema_decay,
            .detect_anomaly = config.training.detect_anomaly,
            .rank_times = config.training.slow_rank_factor > 0,
            .optimizer = config.optimizer,
            .precision = config.precision,
            .strategy = config.strategy,
            .parameter_groups = config.parameter_groups,
            .plateau = config.plateau,
            .capture = config.training.cuda_graph ? MakeStepCapture{make_cuda_capture} : MakeStepCapture{}};
  }

  /// Ranks   Collective.
  static const Config& checked(const Config& config, const ConfigRecord& record, const Parts& parts, const Group& group,
                               const Model* model, const Dataset* dataset) {
    check(config);
    const auto name_of = [](const std::string& type, const std::string& name) {
      return name.empty() || name == type ? type : name + " (" + type + ")";
    };
    const Settings types{{"optimizer", type_name<Optimizer>()},
                         {"precision", name_of(type_name<Precision>(), parts.precision_name)},
                         {"strategy", name_of(type_name<Strategy>(), parts.strategy_name)}};
    check_trainer(config, types, record, parts, group, model, dataset);
    return config;
  }

  /// Calls the observers' `on_begin`. Where one fails on any rank, those of all ranks are told of the end.
  /// Ranks   Collective.
  void begin_report() {
    has_begun_ = false;
    try {
      on_every_rank(*group_, Errc::storage, [&] {
        report_.begin(run_began());
        return true;
      });
    } catch (...) {
      report_.end();
      throw;
    }
    has_begun_ = true;
    is_closed_ = false;
  }

  /// Why an evaluation is made: the loop asks for it, or the training ends.
  enum class Occasion { asked, end };

  EvaluationResult evaluate(Occasion occasion) {
    evaluations_.expect_none("evaluate()", "call it in on_step");
    read_all_steps();
    // A training that goes on makes no evaluation where one is made only because this start ends.
    const bool is_extra = occasion == Occasion::end || wants_last_evaluation();
    const bool counts = !is_evaluated() && (evaluation_wanted() || !is_extra);
    const auto evaluated = with_average(
        [&] { return evaluations_.evaluate(steps_done(), batches_.cursor().epoch, report_, loss_of_batch()); });
    try {
      evaluations_.rank_last();
    } catch (const Error&) {
      if (snapshots_.is_open() && !is_saved()) save();  // the settings are wrong, and the steps are not to be lost
      throw;
    }
    std::vector<std::string> lines;
    if (counts) lines = evaluations_.count_last([this](double value) { return step_.note_evaluation(value); });
    evaluations_.show_last(report_);  // the model has its parameters again, which an observer may save
    for (const auto& line : lines) log_.info(line);
    step_.restart_clock();
    return {evaluated.val_loss, evaluated.samples, evaluated.metrics};
  }

  /// Returns the result of `body`, which computes with the moving average of the parameters where one is kept. The
  /// model has its parameters again afterwards.
  auto with_average(const auto& body) {
    step_.share_buffers();
    const auto result = [&] {
      try {
        step_.show_average();
        return body();
      } catch (...) {
        step_.take_back_average();
        throw;
      }
    }();
    step_.show_parameters();
    if (is_closed_) step_.make_whole();
    return result;
  }
  auto loss_of_batch() {
    return [this](const Batch& batch) {
      const EvaluationMode mode{step_.model()};
      return step_.loss_of(batch);
    };
  }

  /// Whether eval_every or eval_every_epochs wants an evaluation after the last step.
  bool evaluation_wanted() const { return limits_.wants_evaluation(steps_done(), ended_epochs()); }

  /// Whether the last step ends the training, and its snapshot has the numbers of an evaluation.
  bool wants_last_evaluation() const {
    return config_.training.evaluates() && steps_done() > 0 && !had_ended_ &&
           (reached_limit() || (votes_to_stop_ && !stop_.is_agreed()));
  }

  /// Runs the body of a step, as a part of a profile where one is asked for. Starting and writing a profile are no part
  /// of a step's time.
  void profiled(const auto& body) {
    if (!profiler_) return body();
    if (profiler_->begin_step(steps_done() + 1)) step_.restart_clock();
    {
      const TraceSpan span{"ProfilerStep#" + std::to_string(steps_done() + 1)};  // as torch.profiler calls it
      body();
    }
    if (profiler_->end_step()) step_.restart_clock();
  }

  /// One optimizer step on batches of `epoch`; `ends_epoch` says whether they are its last.
  void do_step(const auto& batches, std::int64_t epoch, bool ends_epoch) {
    if (!has_begun_) begin_report();  // a loop without resume()
    const auto steps = steps_done();
    const bool had_ended = std::exchange(had_ended_, finished());
    const bool had_ended_epoch = std::exchange(has_ended_epoch_, ends_epoch);
    const StepNotes notes{
        .epoch = epoch,
        .samples = samples_done(),
        .votes = {.to_stop = limits_.is_out_of_time() || evaluations_.wants_stop() || report_.wants_stop(),
                  .asked_to_stop = !stop_.heard().empty(),
                  .save_due = group_->rank() == 0 && snapshots_.is_open() && limits_.is_time_to_save(),
                  .snapshot_written = snapshots_.is_part_done()},
        .data_ms = batches_.take_waited_ms()};
    try {
      end_by_numbers(steps + 1, [&] {
        if (const auto done = step_.step(batches, notes)) report(*done);
      });
    } catch (...) {
      if (steps_done() == steps) {  // the last step is still the one before
        had_ended_ = had_ended;
        has_ended_epoch_ = had_ended_epoch;
      }
      throw;
    }
    if (limits_.wants_check_of_replicas(steps_done())) check_replicas();
  }
  /// Compares the copies of the parameters that the ranks hold.
  /// Ranks   Collective.
  /// Errors  `peer` on every rank where they differ.
  void check_replicas() {
    if constexpr (HoldsReplicas<Strategy>) {
      if (auto difference = step_.difference_of_replicas(); !difference.empty()) {
        Error error{Errc::peer, std::move(difference)};
        finish_snapshots_before(error.with("step", steps_done()));
        throw error;
      }
      step_.restart_clock();
    }
  }
  /// Reads what is still under way, so that a snapshot or an evaluation comes after a step that is known to be good.
  /// Ranks   Collective.
  void read_all_steps() {
    end_by_numbers(steps_done(), [&] { step_.read_all([&](const CompletedStep& done) { report(done); }); });
  }

  /// Runs `body`, which reads numbers of steps once `first` steps are done. Where they end the training, all ranks come
  /// to that verdict together. Before, such an error is one of the model or of a hook on this rank alone, which must
  /// not start a collective. An earlier snapshot may still be being written; if that fails, its error must not replace
  /// this one.
  void end_by_numbers(std::int64_t first, const auto& body) {
    try {
      body();
    } catch (Error& error) {
      if (error.code() != Errc::numerics || steps_done() < first) throw;
      finish_snapshots_before(error);
      throw;
    }
  }
  /// Waits for the snapshot that is being written, and adds to the error, with which all ranks end the training, which
  /// snapshots exist.
  void finish_snapshots_before(Error& error) {
    stop_.release_signals();
    snapshots_.finish_quietly();
    error.with("snapshots", snapshots_.text());
  }
  void report(CompletedStep done) {
    if (!std::exchange(has_told_step_, true)) {
      tell_launcher(Milestone::stepped);
      if (const auto doubts = evaluations_.doubts(done.row.metrics); !doubts.empty()) log_.info("warning: " + doubts);
    }
    own_progress().note_step(done.row.step);
    votes_to_stop_ = votes_to_stop_ || done.votes.to_stop;
    if (done.votes.asked_to_stop) stop_.agree();
    save_due_ = save_due_ || done.votes.save_due;
    if (done.votes.snapshot_written) snapshots_.advance(done.row.step, steps_done());
    if (report_.empty()) return;
    done.row.peak_memory_bytes = peak_resident_bytes();
    done.row.state_bytes = step_.state_bytes();
    done.row.gpu = gpu_memory(step_.device());
    report_.show(done.row);
  }

  /// All that training changes, for a snapshot to write or to read into.
  RunState state() const {
    auto state = step_.state();
    for (auto& value : evaluations_.state()) state.whole.push_back(std::move(value));
    return state;
  }

  /// Sets step, number of tokens and place in the data to those of the snapshot whose state was loaded.
  void stand_at(const LoadedRun& run) {
    step_.resume_at(run.info.step, run.info.tokens, run.held);
    stood_at_ = run.info.step;
    has_ended_epoch_ = false;
    saved_at_ = run.saved_at;
    evaluations_.resume_at(run.info.step, run.held);
    batches_.seek({run.info.epoch, run.info.position});
    log_missing_state(run.held, run.info.step, log_);
    if (const auto reason = evaluations_.reason_to_stop())
      log_.info("early stopping: " + *reason + ": set a larger early_stopping.patience to train on");
  }

  bool is_evaluated() const { return evaluations_.is_done(steps_done()); }
  /// Whether this trainer has done a step: its state and its metrics are in use.
  bool has_stepped() const { return steps_done() != stood_at_; }

  /// The number of epochs that have ended, if the last step has ended one; else none.
  std::optional<std::int64_t> ended_epochs() const {
    return has_ended_epoch_ ? std::optional{batches_.cursor().epoch} : std::nullopt;
  }
  bool reached_limit() const { return limits_.reached(steps_done(), batches_.cursor().epoch); }
  /// Samples that all ranks together have trained on.
  std::int64_t samples_done() const {
    return batches_.cursor().epoch * batches_.num_samples() + batches_.cursor().position;
  }

  RunBegan run_began() const {
    const auto& training = config_.training;
    std::int64_t parameters = 0;
    for (const auto* arena : {&step_.strategy().trainable(), &step_.strategy().frozen()})
      for (const auto& entry : arena->entries()) parameters += entry.numel;
    return {.parameters = parameters,
            .strategy = parts_.strategy_name.empty() ? type_name<Strategy>() : parts_.strategy_name,
            .precision = parts_.precision_name.empty() ? type_name<Precision>() : parts_.precision_name,
            .device = step_.device().str(),
            .gpu = gpu_name(step_.device()),
            .ranks = group_->size(),
            .hosts = hosts_,
            .batch_size = micro_batches_.size,
            .accumulation_steps = micro_batches_.count,
            .samples = batches_.num_samples(),
            .steps_per_epoch = batches_.steps_per_epoch(),
            .seed = training.seed,
            .save_dir = training.save_dir,
            .step = steps_done(),
            .goes_on = snapshots_.has_loaded() || has_stepped(),
            .saved_at = has_stepped() ? 0 : saved_at_,
            .last_step = limits_.last_step(steps_done(), batches_.steps_until(training.max_epochs)),
            .seconds_allowed = training.max_time,
            .settings = record_.settings};
  }

  Group* group_;
  Config config_;
  ConfigRecord record_;      ///< With what the trainer itself adds to its settings.
  std::string config_hash_;  ///< Hash of the settings as they were given.
  Parts parts_;
  std::vector<std::string> hosts_;                    ///< Of the ranks in order; empty where they are not measured.
  std::unique_ptr<DeterministicMode> deterministic_;  ///< Null unless training.deterministic is set.
  Step step_;
  MicroBatches micro_batches_;
  StepBatches<Dataset> batches_;
  Log log_;
  RunReport report_;
  TrainingSnapshots snapshots_;
  std::unique_ptr<StepProfiler> profiler_;  ///< Null unless training.profile is set.
  TrainingLimits limits_;
  Evaluations<Dataset> evaluations_;
  StopRequest stop_;
  std::int64_t stood_at_ = 0;     ///< The step of the last snapshot that was loaded.
  std::int64_t saved_at_ = 0;     ///< When that snapshot was saved, if it is one of save_dir; else 0.
  bool has_begun_ = false;        ///< Observers were told of the begin, and not yet of the end.
  bool is_closed_ = false;        ///< close() has made the model whole, and no step has followed.
  bool has_told_step_ = false;    ///< The launcher knows that a step is done.
  bool has_ended_epoch_ = false;  ///< The last step was the last one of an epoch.
  bool had_ended_ = false;        ///< The training had ended before the last step.
  bool votes_to_stop_ = false;    ///< A rank is out of time, or wants an end; all ranks know it.
  bool save_due_ = false;         ///< All ranks know that it is time to save.
};

}  // namespace ddpxx
