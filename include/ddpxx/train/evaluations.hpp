// ddpxx/train/evaluations.hpp — the evaluations of a run: what they measure on, and what the last one has given.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/observe/watched_value.hpp>
#include <ddpxx/snapshot/ranking.hpp>
#include <ddpxx/train/early_stopping.hpp>
#include <ddpxx/train/evaluate.hpp>
#include <ddpxx/train/loaded_run.hpp>

namespace ddpxx {

/// The evaluations of a run. Refuses calls that an observer may not make while it is told of one.
template <MapDataset Dataset>
class Evaluations {
 public:
  struct Options {
    std::int64_t batch_size = 8;
    std::int64_t samples = 0;  ///< 0 takes the whole validation set.
    EarlyStoppingConfig early_stopping = {};
    std::string plateau_metric = {};  ///< The number by which the learning rate is lowered; none if empty.
    std::int64_t keep_best = 0;       ///< Number of snapshots that are kept for their evaluation.
    Ranking ranking = {};             ///< How they are ranked where some are kept.
  };

  /// `validation` may be null: then there is nothing to evaluate on.
  Evaluations(std::shared_ptr<const Dataset> validation, const Group& group, Options options)
      : validation_{std::move(validation)}, group_{&group}, options_{std::move(options)} {
    if (!options_.early_stopping.metric.empty()) early_stopping_.emplace(options_.early_stopping);
  }

  /// Evaluates the model after step `step`, and keeps the result, which the caller reports. `report` is told of the
  /// progress. `loss_of(batch)` is the model's `Loss`.
  /// Ranks   Collective.
  /// Errors  `config` without a validation set; those of `ddpxx::evaluate`.
  template <class LossOf>
  Evaluated evaluate(std::int64_t step, std::int64_t epoch, RunReport& report, LossOf&& loss_of) {
    if (!validation_) throw Error{Errc::config, "there is no validation set to evaluate on"};
    const Telling telling{stage_, Stage::runs};
    const auto result =
        ddpxx::evaluate(*validation_, *group_, options_.batch_size, options_.samples, std::forward<LossOf>(loss_of),
                        [&](std::int64_t samples, std::int64_t all_samples) {
                          report.show(Evaluating{step, samples, all_samples});
                        });
    last_ = {step, epoch, result.mean_loss, result.samples, result.metrics};
    done_at_ = step;
    return *last_;
  }

  /// Ranks the last evaluation.
  /// Errors  `config` where the settings name a number that it does not have.
  void rank_last() {
    if (early_stopping_) early_stopping_value();
    if (!options_.plateau_metric.empty()) watched_value("plateau.metric", options_.plateau_metric, *last_);
    rank(last_->step);
  }

  /// What to tell of settings that name a metric which evaluations will not have if they have the metrics of a step;
  /// empty if there are none. A model may return others in evaluations.
  std::string doubts(std::span<const Metric> of_step) const {
    std::string known = "val_loss", ranked = "loss", text;
    for (const auto& metric : of_step) {
      known += ", val_" + harmless(metric.name);
      ranked += ", " + harmless(metric.name);
    }
    const auto check = [&](const char* setting, const std::string& name, const std::string& names) {
      if (name.empty() || (", " + names + ',').find(", " + harmless(name) + ',') != std::string::npos) return;
      text += (text.empty() ? "" : "; ") + std::string{setting} + '=' + harmless(name) +
              " is no number of an evaluation, if that has the metrics of a step: " + names;
    };
    check("early_stopping.metric", options_.early_stopping.metric, known);
    check("plateau.metric", options_.plateau_metric, known);
    if (options_.keep_best > 0) check("snapshot.best_by", options_.ranking.metric, ranked);
    return text;
  }

  /// Reports the last evaluation.
  void show_last(RunReport& report) {
    const Telling telling{stage_, Stage::is_reported};
    report.show(*last_);
  }

  /// Counts the last evaluation for early stopping and for the learning rate, where they follow from evaluations, and
  /// returns what is to be logged of it. `note(value)` notes the metric of the plateau, and returns the learning rate
  /// if that has become lower. All ranks have the same numbers.
  template <class Note>
  std::vector<std::string> count_last(Note&& note) {
    std::vector<std::string> lines;
    if (!std::isfinite(last_->val_loss))
      lines.push_back("warning: the evaluation after step " + std::to_string(last_->step) +
                      " has no finite loss: look for NaN in the validation data and in the model, such as in the "
                      "statistics of a BatchNorm");
    if (const auto& metric = options_.plateau_metric; !metric.empty())
      if (const std::optional<double> rate = note(watched_value("plateau.metric", metric, *last_))) {
        std::ostringstream line;
        line << "step " << last_->step << "  " << metric << " does not improve: the learning rate falls to "
             << std::setprecision(3) << *rate;
        lines.push_back(line.str());
      }
    if (early_stopping_ && early_stopping_->note(early_stopping_value()) && !std::exchange(wants_stop_, true))
      lines.push_back("early stopping: " + early_stopping_->reason());
    return lines;
  }
  /// Whether the evaluations since the training began want it to stop. All ranks have the same answer.
  bool wants_stop() const noexcept { return wants_stop_; }
  /// Why they do, if they do.
  std::optional<std::string> reason_to_stop() const {
    return wants_stop_ ? std::optional{early_stopping_->reason()} : std::nullopt;
  }
  /// A training begins.
  void begin() noexcept { wants_stop_ = false; }

  /// What a snapshot writes and reads.
  std::vector<std::pair<std::string, at::Tensor>> state() const {
    std::vector<std::pair<std::string, at::Tensor>> state;
    if (early_stopping_)
      for (const auto& [name, tensor] : early_stopping_->state()) state.emplace_back("early_stopping." + name, tensor);
    return state;
  }

  /// Refuses `call`, such as "step()", of an observer that is told of an evaluation. `advice` says where to call it.
  /// Errors  `config`.
  void expect_none(std::string_view call, std::string_view advice) const {
    if (stage_ != Stage::none) refuse(call, advice);
  }
  /// As expect_none(), but accepts the call of an observer that is told of the result.
  void expect_no_running(std::string_view call, std::string_view advice) const {
    if (stage_ == Stage::runs) refuse(call, advice);
  }

  /// Whether the model after step `step` needs no evaluation: it was evaluated, or comes from a snapshot.
  bool is_done(std::int64_t step) const noexcept { return done_at_ == step; }
  /// Whether the last evaluation is of step `step`.
  bool has_result(std::int64_t step) const { return last_ && last_->step == step; }
  /// The model after step `step` comes from a snapshot, and was evaluated before it was saved where that was due.
  /// Forgets the last evaluation, and the best ones of later steps: these steps are trained again, and may end with
  /// other parameters. The counts of early stopping have been read into state() if the snapshot holds them; the run
  /// stops soon if they want that already.
  void resume_at(std::int64_t step, const HeldState& held) {
    if (early_stopping_) {
      held.early_stopping ? early_stopping_->resume() : early_stopping_->reset();
      wants_stop_ = early_stopping_->wants_stop();
    }
    done_at_ = step;
    last_.reset();
    std::erase_if(best_, [&](const Best& best) { return best.step > step; });
  }

  /// Whether the evaluation of step `step` is among the best ones of which this start has saved snapshots, as many as
  /// are kept.
  bool wants_snapshot(std::int64_t step) const {
    return has_result(step) && std::isfinite(value_) && std::ranges::count_if(best_, [&](const Best& best) {
                                                          return !options_.ranking.is_better(value_, best.value);
                                                        }) < options_.keep_best;
  }
  /// A snapshot of step `step` is saved, or is being written.
  void note_snapshot(std::int64_t step) {
    if (wants_snapshot(step)) best_.push_back({step, value_});
  }
  /// The snapshot of step `step` could not be saved.
  void forget_snapshot(std::int64_t step) {
    std::erase_if(best_, [&](const Best& best) { return best.step == step; });
  }

  /// The numbers that the snapshot of step `step` is ranked by: those of the last evaluation, if it is of that step.
  std::map<std::string, double> metrics(std::int64_t step) const {
    if (!has_result(step)) return {};
    std::map<std::string, double> metrics{{"loss", last_->val_loss}};
    for (const auto& metric : last_->metrics) metrics.emplace(metric.name, metric.value);
    return metrics;
  }

 private:
  /// What observers are told of an evaluation at present.
  enum class Stage { none, runs, is_reported };
  /// The stage while this object lives.
  class Telling {
   public:
    Telling(Stage& stage, Stage now) : stage_{stage} { stage_ = now; }
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;
    ~Telling() { stage_ = Stage::none; }

   private:
    Stage& stage_;
  };

  [[noreturn]] static void refuse(std::string_view call, std::string_view advice) {
    throw Error{Errc::config, std::string{call} +
                                  " was called by an observer that was told of an evaluation: " + std::string{advice}};
  }

  double early_stopping_value() const {
    return watched_value("early_stopping.metric", options_.early_stopping.metric, *last_);
  }

  struct Best {
    std::int64_t step;
    double value;
  };

  void rank(std::int64_t step) {
    if (options_.keep_best == 0) return;
    const auto& ranking = options_.ranking;
    const auto known = metrics(step);
    const auto found = known.find(ranking.metric);
    if (found == known.end()) {
      std::string names;
      for (const auto& [name, value] : known) names += (names.empty() ? "" : ", ") + harmless(name);
      throw Error{Errc::config,
                  "snapshot.best_by: an evaluation has no " + harmless(ranking.metric) + " (it has: " + names + ")"};
    }
    value_ = found->second;
  }

  std::shared_ptr<const Dataset> validation_;
  const Group* group_;
  Options options_;
  std::optional<Evaluated> last_;
  std::optional<EarlyStopping> early_stopping_;
  bool wants_stop_ = false;
  Stage stage_ = Stage::none;
  std::int64_t done_at_ = -1;
  double value_ = 0;        ///< The number by which the last evaluation is ranked.
  std::vector<Best> best_;  ///< Those of which this start has saved a snapshot, among the best ones at that time.
};

}  // namespace ddpxx
