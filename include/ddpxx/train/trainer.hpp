// ddpxx/train/trainer.hpp — the training loop: knows the doors of the rooms, and no concrete policy.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/config/check_config.hpp>
#include <ddpxx/config/part_settings.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/evaluation_mode.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/memory.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/optim/clip.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/ema.hpp>
#include <ddpxx/optim/in_parts.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/checkpoint.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/config_hash.hpp>
#include <ddpxx/train/decay_rule.hpp>
#include <ddpxx/train/evaluate.hpp>
#include <ddpxx/train/same_run.hpp>
#include <ddpxx/train/step_batches.hpp>
#include <ddpxx/train/step_facts.hpp>
#include <ddpxx/train/step_log.hpp>
#include <ddpxx/train/stop_reason.hpp>
#include <ddpxx/train/training_config.hpp>

namespace ddpxx {

/// Trains `Model` on `Dataset`; how parameters are stepped, in which numbers, and how they are held over the ranks is
/// chosen by type.
///
///     Trainer<GPT, CharDataset, AdamW, Float32, DDP> trainer{group, std::make_shared<GPT>(...), dataset, config};
///     trainer.fit();
///
/// A trainer draws the random numbers of the process: its constructor seeds LibTorch's default generators, with
/// `training.seed` and the rank.
/// Ranks   Collective: every rank makes one, of the same configuration, and calls fit().
/// Errors  those of its parts; `peer` naming the settings in which the ranks differ; `data` for a dataset smaller than
///         the world; `numerics` when loss or gradient norm is no number any more.
template <class Model, class Dataset, class Optimizer, class Precision, class Strategy>
class Trainer {
  static_assert(explain_dataset<Dataset>());  // before Batch is asked for
  using Batch = BatchOf<Dataset>;
  static_assert(explain_model<Model, Batch>() && explain_optimizer<Optimizer>() && explain_precision<Precision>() &&
                explain_strategy<Strategy>());
  static_assert(!scales_loss<Precision> || SkipsSteps<Optimizer>,
                "optimizer: this precision scales the loss, and needs `void step(double learning_rate, const "
                "std::optional<at::Tensor>& found_inf)`, which changes nothing where found_inf is 1");
  static_assert(!steps_in_backward<Strategy> || !scales_loss<Precision>,
                "StepInBackward cannot leave a step out, which a scaled loss needs: that is known when all gradients "
                "are there, and then the first have been stepped. Choose AutocastBF16, or the strategy alone");

 public:
  struct Config {
    std::int64_t batch_size = 8;  ///< Samples a rank takes at once.
    std::int64_t num_workers = 0;
    TrainingConfig training = {};
    SnapshotConfig snapshot = {};
    typename Optimizer::Config optimizer = {};
    typename Precision::Config precision = {};
    typename Strategy::Config strategy = {};
    Settings settings = {};      ///< Recorded in snapshots and compared when a run resumes.
    std::string overrides = {};  ///< The arguments that set something: a YAML list. Recorded in snapshots.
    std::string strategy_name = type_name<Strategy>();    ///< As the first lines of a run call it.
    std::string precision_name = type_name<Precision>();  ///< The same.
  };

  /// The rules of all parts' settings, as parse_config has them, and those between the parts. A program may ask for
  /// them before it forms a group; a trainer asks before it sends anything.
  ///
  /// Errors  `config`, with all that is wrong; for grad_norm_clip where parameters are stepped in backward; for what
  ///         the strategy refuses.
  static void check(const Config& config) {
    std::vector<FieldError> errors;
    const auto add = [&](const char* path, const auto& part) {
      for (auto& error : config_errors(part, path)) errors.push_back(std::move(error));
    };
    if (config.batch_size < 1)
      errors.push_back({"batch_size", std::to_string(config.batch_size) + " is out of range (allowed: at least 1)"});
    if (config.num_workers < 0)
      errors.push_back({"num_workers", std::to_string(config.num_workers) + " is out of range (allowed: at least 0)"});
    add("training", config.training);
    add("snapshot", config.snapshot);
    add("optimizer", config.optimizer);
    add("precision", config.precision);
    add("strategy", config.strategy);
    throw_config_errors(errors);
    if (steps_in_backward<Strategy> && config.training.grad_norm_clip > 0)
      throw Error{Errc::config,
                  "training.grad_norm_clip: the norm is known when all gradients are there, and StepInBackward has "
                  "stepped the first of them by then: set grad_norm_clip=0 (grad_value_clip works), or choose the "
                  "strategy alone"};
    if constexpr (ChecksItsConfig<Strategy>) Strategy::check(config.strategy);
  }

  /// `validation` may be null where training.eval_every is 0: nothing is evaluated then.
  Trainer(Group& group, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset, const Config& config,
          std::shared_ptr<const Dataset> validation = {})
      : group_{&group},
        config_{checked(config, group, model.get(), dataset.get(), validation.get())},
        model_{std::move(model)},
        precision_{config.precision},
        flat_{*model_, decay_rule(*model_), precision_.formats()},
        device_{flat_.device()},
        strategy_{config.strategy, group},
        optimizer_{config.optimizer, attach()},
        scaler_{make_scaler()},
        batches_{std::move(dataset),
                 group,
                 {.batch_size = config.batch_size,
                  .num_workers = config.num_workers,
                  .accumulation_steps = config.training.accumulation_steps,
                  .seed = config.training.seed}},
        validation_{std::move(validation)},
        log_{group.rank()},
        steps_{group.size()} {
    if (config.training.ema_decay > 0)
      average_.emplace(EMAConfig{.decay = config.training.ema_decay}, strategy_.slices());
    if (!config_.settings.empty()) config_hash_ = config_hash(config_.settings);
    for (auto& fact : data_settings(batches_.dataset(), validation_.get())) config_.settings.push_back(std::move(fact));
    config_.settings.push_back(
        {"the number of training samples", std::to_string(batches_.num_samples()), Resume::must_match});
    config_.settings.push_back({"the order of the samples", batches_.order_name(), Resume::must_match});
    config_.settings.push_back({"global batch", std::to_string(run_began().global_batch())});
    on_rank_zero(group, Errc::config, [&] { report_.emplace(config.training.metrics); });
    // Weights are the same everywhere; what dropout draws must not be.
    seed_random(device_, config.training.seed + static_cast<std::uint64_t>(group.rank()));
    tell_launcher(Milestone::trains);
  }

  /// Trains until max_steps, max_epochs or max_time, going on from the snapshot in save_dir if there is one.
  ///
  /// With a save_dir, a signal of kStopSignals to any rank asks all of them to stop: they end after the same step, at
  /// most three steps later, and save a snapshot. Where max_steps or max_epochs is reached by then, the training has
  /// ended as it would have without the signal, and the signal takes effect after it. Without a save_dir, and outside
  /// of the loop, signals keep their meaning. Errors  `stopped` when a signal or request_stop() has ended the training
  /// before its end.
  void fit() {
    tell_launcher(Milestone::trains);  // a stop that was told before is over
    is_asked_to_stop_ = false;
    try {
      resume();
      model_->train();
      started_ = step_started_ = saved_time_ = Clock::now();
      if (checkpoints_) signals_.emplace();
      run_to_end();
    } catch (Error& error) {
      signals_.reset();
      if (error.code() == Errc::numerics) error.with("snapshots", snapshots_text());
      if (error.code() == Errc::numerics && checkpoints_) finish_snapshot();
      throw;
    } catch (...) {
      signals_.reset();
      throw;
    }
    checkpoints_.reset();
    finish();
    if (report_) report_->end();
    if (!is_asked_to_stop_ && signals_) signals_->raise_again();  // one that came after the last step
    signals_.reset();
    requests_stop_ = false;
    if (!is_asked_to_stop_) return;
    if (!config_.training.save_dir.empty()) tell_launcher(Milestone::stopped);
    throw stopped();
  }

  /// Asks all ranks to stop, as a signal to this process does: fit() ends with Error `stopped`, after a step that all
  /// ranks agree on, and has saved a snapshot if there is a save_dir.
  /// Ranks   Local; one rank is enough. May be called in any thread, and in a signal handler.
  void request_stop() noexcept { requests_stop_ = true; }

  /// The mean loss over the validation set with the parameters as they are. Nothing is trained, loaded or written.
  /// Ranks   Collective.
  /// Errors  `config` without a validation set.
  EvaluationResult evaluate() {
    if (!validation_) throw Error{Errc::config, "there is no validation set to evaluate on"};
    return mean_validation_loss();
  }

  /// Ends a loop of step(): every rank's model is whole then, with the values of the last step. fit() does so itself.
  /// A trainer that keeps parameters in shards and ends without this leaves a model that throws where it is used.
  /// Between steps a parameter is read while the program holds what strategy().gathered() returns: one that has not the
  /// values of the last step here throws.
  /// Ranks   Collective.
  void finish() { strategy_.make_whole(); }

  std::int64_t steps_done() const noexcept { return step_; }
  Model& model() noexcept { return *model_; }
  Strategy& strategy() noexcept { return strategy_; }

  /// One optimizer step: all micro-batches forward and backward, then unscale, clip, step. Nobody else writes this
  /// order. Limits, evaluations, snapshots and the metrics of the last two belong to fit(): max_steps, max_epochs,
  /// max_time, save_dir, save_every and eval_every do nothing in a loop of step(), which ends with finish().
  void step() {
    norms_.clear();  // of a step that an exception has ended
    const auto epoch = batches_.cursor().epoch;
    const auto batches = batches_.next();
    std::int64_t targets = 0;
    for (const auto& batch : batches) targets += batch.num_tokens;
    StepFacts facts{{.targets = targets,
                     .votes_to_stop = out_of_time(),
                     .asked_to_stop = !what_asks_to_stop().empty(),
                     .save_due = time_to_save(),
                     .snapshot_written = checkpoints_ && checkpoints_->written(),
                     .last_calls = calls()},
                    std::exchange(last_step_, {}),
                    *group_};
    if (!std::exchange(targets_checked_, true)) facts.check_targets();
    const auto scale = loss_scale();

    for (std::size_t i = 0; i < batches.size(); ++i) {
      strategy_.begin_backward(i + 1 == batches.size() ? Sync::now : Sync::defer);
      const auto loss = forward(batches[i]);
      if constexpr (scales_loss<Precision>)
        loss.backward(scaler_.scale(facts.seed(loss)));
      else
        loss.backward(facts.seed(loss));
      strategy_.finish_backward();
      last_step_.loss = last_step_.loss.defined() ? last_step_.loss + loss.detach() : loss.detach();
    }
    const double learning_rate = config_.optimizer.learning_rate_at(step_);
    const auto norm = [&] {
      if constexpr (steps_in_backward<Strategy>)
        return norm_of_parts();
      else
        return clip_and_step(learning_rate);
    }();
    if (average_) average_->update();
    strategy_.finish_step();
    ++step_;
    has_stepped_ = true;

    record(facts, norm, scale,
           {.step = step_, .epoch = epoch, .learning_rate = learning_rate, .samples = samples_done()});
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Stepper = std::conditional_t<steps_in_backward<Strategy>, OptimizerInParts<Optimizer>, Optimizer>;

  /// Before anything is sent: a strategy may begin with collectives that another one does not know.
  /// Ranks   Collective.
  static const Config& checked(const Config& config, const Group& group, const Model* model, const Dataset* dataset,
                               const Dataset* validation) {
    check(config);
    if (model == nullptr || dataset == nullptr)
      throw Error{Errc::config, "a trainer needs a model and a dataset: one of them is null"};
    if (config.training.eval_every > 0 && validation == nullptr)
      throw Error{Errc::config,
                  "training.eval_every: there is no validation set to evaluate on: give the trainer one, or set "
                  "eval_every=0"};
    check_same_run(common_settings(config, *dataset, validation), group);
    return config;
  }

  /// What there is to go back to when a run ends by its numbers.
  std::string snapshots_text() const {
    if (config_.training.save_dir.empty()) return "none, since training.save_dir is empty";
    if (saved_at_ < 0) return "none so far";
    return "the last one is of step " + std::to_string(saved_at_);
  }

  /// Steps all parameters by the gradients that backward has left; returns the norm of those.
  at::Tensor clip_and_step(double learning_rate) {
    [[maybe_unused]] at::Tensor found_inf;
    if constexpr (scales_loss<Precision>)
      found_inf = strategy_.sum_over_shards(scaler_.unscale(strategy_.slices())).clamp_max(1);
    auto norm = gradient_norm(strategy_.slices(), [&](at::Tensor square) { return strategy_.sum_over_shards(square); });
    if (config_.training.grad_value_clip > 0) clip_by_value(strategy_.slices(), config_.training.grad_value_clip);
    if (config_.training.grad_norm_clip > 0) clip_by_norm(strategy_.slices(), norm, config_.training.grad_norm_clip);
    if constexpr (scales_loss<Precision>) {
      optimizer_.step(learning_rate, found_inf);
      scaler_.update(found_inf);
      last_step_.skipped = found_inf;
      norm = norm.masked_fill(found_inf > 0, 0.0);  // of a step that was left out
    } else {
      optimizer_.step(learning_rate);
    }
    return norm;
  }
  /// The same for one segment, out of backward.
  void step_part(std::size_t segment) {
    const auto slices = optimizer_.slices(segment);
    norms_.push_back(gradient_norm(slices, [](at::Tensor square) { return square; }));
    if (config_.training.grad_value_clip > 0) clip_by_value(slices, config_.training.grad_value_clip);
    optimizer_.step(segment, config_.optimizer.learning_rate_at(step_));
  }
  /// The norm of all gradients of a step, once all segments have been stepped.
  at::Tensor norm_of_parts() {
    const auto norms = std::exchange(norms_, {});
    const auto square = norms.empty() ? at::zeros({}) : at::stack(norms).square_().sum();
    return strategy_.sum_over_shards(square).sqrt();
  }

  void run_to_end() {
    while (!finished()) {
      const auto epoch = batches_.cursor().epoch;
      step();
      const bool epoch_ended = batches_.cursor().epoch != epoch;
      if (due(config_.training.eval_every)) evaluate_now();
      if (save_due_ || due(config_.training.save_every) ||
          (epoch_ended && divides(config_.training.save_every_epochs, batches_.cursor().epoch)))
        save();
    }
    read_all_steps();
    if (reached_limit()) is_asked_to_stop_ = false;  // there is nothing left to stop
    if (is_asked_to_stop_) {
      stop_reason_ = stop_reason(what_asks_to_stop(), *group_);
      requests_stop_ = false;  // it is answered, whatever becomes of the snapshot
    } else if (config_.training.eval_every > 0 && evaluated_at_ != step_) {
      evaluate_now();
    }
    if (checkpoints_) {
      if (!checkpoints_->commit()) saved_at_ = -1;
      checkpoints_->stop_on_failure();  // nobody trains on from here
    }
    if (saved_at_ != step_) save();
    if (checkpoints_) checkpoints_->commit();
  }

  /// Before an end to whose verdict all ranks have come, together: a snapshot may be under way that is older than it.
  /// What becomes of it must not hide the verdict.
  /// Ranks   Collective.
  void finish_snapshot() {
    try {
      checkpoints_->commit();
    } catch (const std::exception& error) {
      if (group_->rank() == 0) log_.warn(error.what());
    }
  }

  /// What the datasets want to be recorded. Another training text is another run; another validation text deserves a
  /// warning, since losses before and after are not comparable.
  static Settings data_settings(const Dataset& dataset, const Dataset* validation) {
    auto settings = recorded_facts(dataset);
    if (validation == nullptr) return settings;
    const auto facts = settings;
    for (auto fact : recorded_facts(*validation)) {
      const auto is_equal = [&fact](const Setting& other) {
        return other.path == fact.path && other.value == fact.value;
      };
      if (std::any_of(facts.begin(), facts.end(), is_equal)) continue;
      fact.path = "validation: " + fact.path;
      fact.resume = Resume::warn;
      settings.push_back(std::move(fact));
    }
    return settings;
  }

  /// Settings that must be equal on all ranks; otherwise a collective would hang, or they would train different models.
  /// A resumed run may change some of them. Devices, worker threads and the path of the metrics may differ, and so may
  /// limits of time, which the ranks vote on, or of which rank 0 decides. All settings of a strategy must be equal: an
  /// offload reduces the gradients' norm on the CPU, for example, where ranks without it use the GPU's backend, and a
  /// Recompute around FSDP gathers again.
  static Settings common_settings(const Config& config, const Dataset& dataset, const Dataset* validation) {
    Settings common;
    const auto name_of = [](const std::string& type, const std::string& name) {
      return name == type ? type : name + " (" + type + ")";
    };
    common.push_back({"optimizer", type_name<Optimizer>()});
    common.push_back({"precision", name_of(type_name<Precision>(), config.precision_name)});
    common.push_back({"strategy", name_of(type_name<Strategy>(), config.strategy_name)});
    common.push_back({"the number of training samples", std::to_string(dataset.size())});
    common.push_back({"the number of validation samples", std::to_string(validation ? validation->size() : 0)});
    common.push_back({"batch_size", std::to_string(config.batch_size)});
    common.push_back({"whether metrics are written", config.training.metrics.empty() ? "no" : "yes"});
    const auto add = [&](const Settings& settings) {
      for (const auto& setting : settings) common.push_back({setting.path, shortened(setting.value)});
    };
    add(part_settings(config.training, "training"));
    add(part_settings(config.snapshot, "snapshot"));
    add(part_settings(config.optimizer, "optimizer"));
    add(part_settings(config.precision, "precision"));
    auto strategy = part_settings(config.strategy, "strategy");
    for (auto& setting : strategy)  // the settings of a strategy in another one: see Recompute
      while (setting.path.starts_with("strategy.strategy."))
        setting.path.erase(0, std::string_view{"strategy."}.size());
    add(strategy);
    constexpr std::array<std::string_view, 4> kOwn{"training.metrics", "training.device", "training.max_time",
                                                   "training.save_every_time"};
    std::erase_if(common, [&](const Setting& setting) { return std::ranges::find(kOwn, setting.path) != kOwn.end(); });
    Settings others = data_settings(dataset, validation);
    for (const auto& setting : config.settings)
      if (setting.resume != Resume::free && std::ranges::find(common, setting.path, &Setting::path) == common.end())
        others.push_back(setting);
    add(others);
    return common;
  }

  /// What keeps small gradients from vanishing; nothing where they do not.
  using Scaler = ScalerOf<Precision>;
  Scaler make_scaler() const {
    if constexpr (scales_loss<Precision>)
      return precision_.make_scaler(strategy_.slices().front().values.device());
    else
      return {};
  }

  /// A copy of what the loss of the next step is multiplied by; undefined where it is not scaled.
  at::Tensor loss_scale() const {
    if constexpr (scales_loss<Precision>)
      for (const auto& [name, tensor] : scaler_.state())
        if (name == "scale") return tensor.clone();
    return {};
  }

  /// What the optimizer is made of.
  std::conditional_t<steps_in_backward<Strategy>, const Arena&, std::span<const Slice>> attach() {
    Precision::check(device_);
    if constexpr (steps_in_backward<Strategy>) {
      strategy_.step_in_backward([this](std::size_t segment) { step_part(segment); });
      strategy_.attach(flat_);
      return strategy_.trainable();
    } else {
      strategy_.attach(flat_);
      return strategy_.slices();
    }
  }

  at::Tensor forward(const Batch& batch) {
    [[maybe_unused]] const auto scope = precision_.forward_scope(device_.type());
    return strategy_.forward(*model_, input(batch), [](auto& model, auto& run, const auto& own_batch) {
      const auto sum = compute_loss(model, run, own_batch).sum;
      // Micro-batches are added up in this type, and the number of targets has to fit into it.
      return at::isReducedFloatingType(sum.scalar_type()) ? sum.to(at::kFloat) : sum;
    });
  }

  /// The batch as the model computes with it.
  Batch input(const Batch& batch) const {
    if constexpr (CastsInputs<Precision, Batch>)
      return precision_.cast_inputs(batch.to(device_));
    else
      return batch.to(device_);
  }

  /// A number for the layers that this rank has called since the last time, from strategies that must agree on them.
  std::uint16_t calls() {
    if constexpr (HashesCalls<Strategy>) {
      const auto hash = strategy_.take_call_hash();
      return static_cast<std::uint16_t>(hash ^ (hash >> 16U));
    }
    return 0;
  }

  static bool divides(std::int64_t every, std::int64_t count) { return every > 0 && count % every == 0; }
  bool due(std::int64_t every) const { return divides(every, step_); }

  bool out_of_time() const {
    return config_.training.max_time > 0 &&
           std::chrono::duration<double>(Clock::now() - started_).count() >= config_.training.max_time;
  }
  /// What asks this rank to stop: the name of a signal, or of the function that a program has called; empty for
  /// nothing.
  std::string what_asks_to_stop() const {
    if (requests_stop_) return "request_stop()";
    const auto signal = signals_ ? signals_->heard() : std::nullopt;
    return signal ? signal_name(*signal) : "";
  }
  Error stopped() const {
    const auto step = std::to_string(step_);
    return {Errc::stopped, "stopped by " + stop_reason_ + " after step " + step +
                               (config_.training.save_dir.empty()
                                    ? "; nothing was saved, since training.save_dir is empty"
                                    : "; the snapshot of step " + step + " is in " +
                                          harmless(config_.training.save_dir) + ": the same command goes on there")};
  }
  /// One clock decides for all: the ranks read the verdict in the same step.
  bool time_to_save() const {
    const auto every = config_.training.save_every_time;
    return group_->rank() == 0 && checkpoints_ && every > 0 &&
           std::chrono::duration<double>(Clock::now() - saved_time_).count() >= every;
  }
  bool finished() const { return stop_voted_ || is_asked_to_stop_ || reached_limit(); }
  bool reached_limit() const {
    const auto& limits = config_.training;
    return (limits.max_steps > 0 && step_ >= limits.max_steps) ||
           (limits.max_epochs > 0 && batches_.cursor().epoch >= limits.max_epochs);
  }
  /// Where the run ends, counted from where it stands: epochs that are done may have had steps of another size.
  std::int64_t last_step() const {
    const auto& limits = config_.training;
    if (limits.max_epochs == 0) return limits.max_steps;
    const auto by_epochs = step_ + batches_.steps_until(limits.max_epochs);
    return limits.max_steps == 0 ? by_epochs : std::min(limits.max_steps, by_epochs);
  }
  /// Samples that all ranks together have trained on.
  std::int64_t samples_done() const {
    return batches_.cursor().epoch * batches_.num_samples() + batches_.cursor().position;
  }

  RunBegan run_began() const {
    const auto& training = config_.training;
    std::int64_t parameters = 0;
    for (const auto* arena : {&strategy_.trainable(), &strategy_.frozen()})
      for (const auto& entry : arena->entries()) parameters += entry.numel;
    return {.parameters = parameters,
            .strategy = config_.strategy_name,
            .precision = config_.precision_name,
            .device = device_.str(),
            .ranks = group_->size(),
            .batch_size = config_.batch_size,
            .accumulation_steps = training.accumulation_steps,
            .samples = batches_.num_samples(),
            .steps_per_epoch = batches_.steps_per_epoch(),
            .seed = training.seed,
            .save_dir = training.save_dir,
            .step = step_,
            .goes_on = has_loaded_ || has_stepped_,
            .last_step = last_step(),
            .seconds_allowed = training.max_time};
  }

  /// Adds the step just launched to the log, and writes down the step before the last.
  void record(StepFacts& facts, const at::Tensor& norm, const at::Tensor& scale, StepDone row) {
    const auto now = Clock::now();
    row.step_ms = std::chrono::duration<double, std::milli>(now - std::exchange(step_started_, now)).count();
    steps_.push(row, facts.sums(), norm, scale);
    while (const auto done = steps_.pop(StepLog::kKeptBack)) report(*done);
  }

  /// Reads what is still under way, so that a snapshot or an evaluation comes after a step that is known to be good.
  /// Ranks   Collective.
  void read_all_steps() {
    if (steps_.empty()) return;
    StepFacts facts{{.last_calls = calls()}, std::exchange(last_step_, {}), *group_};
    steps_.close(facts.sums());
    while (const auto done = steps_.pop(1)) report(*done);
    steps_.reopen();
  }

  void report(StepLog::Complete done) {
    if (!std::exchange(has_told_step_, true)) tell_launcher(Milestone::stepped);
    stop_voted_ = stop_voted_ || done.stop_voted;
    is_asked_to_stop_ = is_asked_to_stop_ || done.stop_asked;
    save_due_ = save_due_ || done.save_due;
    // Told at the begin of that step, so of what was begun before it.
    if (done.snapshot_written && checkpoints_->writing_since() < done.row.step) checkpoints_->advance(step_);
    tokens_ += static_cast<std::int64_t>(done.targets);
    if (!report_) return;
    done.row.tokens = tokens_;
    done.row.tokens_per_second = done.targets / (done.row.step_ms / 1000.0);
    done.row.peak_memory_bytes = peak_resident_bytes();
    done.row.state_bytes = state_bytes();
    report_->show(done.row);
  }

  /// Bytes of this rank's persistent parameters, gradients and optimizer state.
  std::int64_t state_bytes() const {
    auto bytes = strategy_.trainable().bytes() + strategy_.frozen().bytes();
    for (const auto& moment : optimizer_.moments())
      for (const auto& slice : moment.slices) bytes += static_cast<std::int64_t>(slice.nbytes());
    return bytes;
  }

  void evaluate_now() {
    evaluated_at_ = step_;
    if (!validation_) return;
    read_all_steps();
    exchange_average();
    const auto result = mean_validation_loss();
    exchange_average();
    evaluated_ = {step_, batches_.cursor().epoch, result.mean_loss, result.samples};
    if (report_) report_->show(*evaluated_);
    step_started_ = Clock::now();
  }

  /// Ranks   Collective.
  EvaluationResult mean_validation_loss() {
    return ddpxx::evaluate(
        *validation_, *group_, config_.batch_size, config_.training.eval_samples,
        [&](const Batch& batch) {
          const EvaluationMode mode{*model_};
          return forward(batch);
        },
        [&](std::int64_t samples, std::int64_t all_samples) {
          if (report_) report_->show(Evaluating{step_, samples, all_samples});
        });
  }

  /// Before an evaluation and after it: the model computes with the average of its parameters, and with them again.
  /// Ranks   Collective.
  void exchange_average() {
    if (!average_) return;
    strategy_.settle();  // pending all-gathers read the memory that swap() overwrites
    average_->swap();
    strategy_.finish_step();
  }

  void save() {
    if (!checkpoints_) return;
    read_all_steps();
    constexpr auto copies = RanksDrift<Strategy> ? Copies::drifting : Copies::equal;
    const Progression run{.step = step_,
                          .cursor = batches_.cursor(),
                          .settings = config_.settings,
                          .metrics = metrics_of_snapshot(),
                          .parameters = parameters(),
                          .overrides = config_.overrides,
                          .config_hash = config_hash_,
                          .tokens = tokens_};
    if (checkpoints_->save(run, state(), copies)) saved_at_ = step_;
    save_due_ = false;
    step_started_ = saved_time_ = Clock::now();
  }
  /// What snapshots are ranked by: the last evaluation, if it is of this step.
  std::map<std::string, double> metrics_of_snapshot() const {
    if (!evaluated_ || evaluated_->step != step_) return {};
    return {{"loss", evaluated_->val_loss}};
  }

  /// Of an optimizer that torch.optim has as well.
  static std::string name_in_python() {
    if constexpr (HasPythonName<Optimizer>)
      return std::string{Optimizer::kPythonName};
    else
      return {};
  }
  /// In the model's order, each under the name by which snapshots know it.
  std::vector<OptimizedParameter> parameters() const {
    std::map<std::string, int> groups;
    for (const auto* list : {&flat_.trainable(), &flat_.frozen()})
      for (const auto& parameter : *list) groups.emplace(parameter.name, parameter.group);
    std::vector<OptimizedParameter> parameters;
    for (const auto& item : model_->named_parameters())
      if (const auto group = groups.find(item.key()); group != groups.end())
        parameters.push_back({item.key(), group->second == static_cast<int>(DecayGroup::decay)});
    return parameters;
  }

  void resume() {
    if (!config_.training.save_dir.empty()) resume_own();
    if (!has_loaded_ && !has_stepped_ && !config_.snapshot.name.empty()) {
      const auto from =
          load_chosen(config_.snapshot.name, config_.settings, state(), *group_, device_, config_.training.seed);
      stand_at({.step = from.step,
                .cursor = {from.epoch, from.position},
                .settings = {},
                .metrics = {},
                .tokens = from.tokens,
                .has_optimizer = !lacks_optimizer(from)});
    }
    on_rank_zero(*group_, Errc::storage, [&] { report_->begin(run_began()); });
  }

  /// Goes on with the newest snapshot in save_dir, if there is one.
  void resume_own() {
    const auto& chosen = config_.snapshot.name;
    const auto& save_dir = config_.training.save_dir;
    if (!chosen.empty()) on_rank_zero(*group_, Errc::config, [&] { check_chosen_place(chosen, save_dir); });
    checkpoints_.emplace(save_dir, config_.snapshot, *group_, device_, [this](const auto& saved) {
      if (report_) report_->show(saved);
    });
    const auto found = checkpoints_->load(config_.settings, state(), config_.training.seed);
    if (found) {
      if (!chosen.empty()) tell_own_instead_of_chosen(chosen, save_dir, found->step, log_);
      stand_at(*found);
      saved_at_ = step_;
      has_loaded_ = true;
      if (finished())
        log_.info("already at step " + std::to_string(step_) +
                  ": nothing left to do; a larger training.max_steps or max_epochs goes on, another training.save_dir "
                  "begins anew");
    }
  }

  /// The state is that of a snapshot, and so is the place in the data from now on.
  void stand_at(const Progression& run) {
    strategy_.finish_step();  // what the optimizer holds is what the model computes with
    step_ = evaluated_at_ = run.step;
    tokens_ = run.tokens;
    batches_.seek(run.cursor);
    if constexpr (CountsOptimizerSteps<Stepper>) optimizer_.resume_at(run.has_optimizer ? step_ : 0);
    if (!run.has_optimizer) {
      log_.info("the snapshot holds a model and no optimizer's state: the optimizer begins anew at step " +
                std::to_string(step_));
      if (average_) average_.emplace(EMAConfig{.decay = config_.training.ema_decay}, strategy_.slices());
    } else if (average_) {
      average_->resume_at(step_);
    }
    if constexpr (ResumesAtStep<Strategy>) strategy_.resume_at(step_);
  }

  RunState state() const {
    RunState state{state_parts(strategy_.trainable(), strategy_.frozen(), optimizer_.moments()), {}, name_in_python()};
    if (average_) state.parts.push_back(moment_part(strategy_.trainable(), average_->average()));
    for (const auto& buffer : model_->named_buffers())
      state.whole.emplace_back("model." + buffer.key(), buffer.value());
    if constexpr (KeepsStepCount<Stepper>) state.whole.emplace_back("optimizer.step", optimizer_.step_count());
    if constexpr (scales_loss<Precision>)
      for (const auto& [name, tensor] : scaler_.state()) state.whole.emplace_back("scaler." + name, tensor);
    return state;
  }

  Group* group_;
  Config config_;
  std::string config_hash_;  ///< Of the settings as they were given.
  std::shared_ptr<Model> model_;
  Precision precision_;
  FlatModel flat_;
  at::Device device_;
  Strategy strategy_;
  Stepper optimizer_;
  std::vector<at::Tensor> norms_;  ///< Of the segments that this step's backward has stepped.
  Scaler scaler_;
  std::optional<EMA> average_;
  StepBatches<Dataset> batches_;
  std::shared_ptr<const Dataset> validation_;
  Log log_;
  std::optional<RunReport> report_;  ///< On rank 0.
  std::optional<Checkpoints> checkpoints_;
  StepLog steps_;
  LastStep last_step_;  ///< Facts of the current step, sent with those of the next one.
  std::int64_t step_ = 0;
  std::int64_t tokens_ = 0;  ///< Targets of all ranks in the steps that were read.
  std::int64_t evaluated_at_ = -1;
  std::optional<Evaluated> evaluated_;  ///< The last one.
  std::int64_t saved_at_ = -1;
  bool has_loaded_ = false;        ///< A snapshot of this run.
  bool has_stepped_ = false;       ///< This trainer has done a step: its state and its metrics are in use.
  bool has_told_step_ = false;     ///< The launcher knows that a step is done.
  bool targets_checked_ = false;   ///< Once, before the first step: later steps are read by the log.
  bool stop_voted_ = false;        ///< By a rank whose time is over.
  bool is_asked_to_stop_ = false;  ///< All ranks know that one of them was asked.
  std::string stop_reason_;
  std::atomic<bool> requests_stop_ = false;
  std::optional<StopSignals> signals_;  ///< While fit() runs, where it can save.
  bool save_due_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point step_started_ = started_;
  Clock::time_point saved_time_ = started_;
};

}  // namespace ddpxx
