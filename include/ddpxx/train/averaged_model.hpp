// ddpxx/train/averaged_model.hpp — the moving average of a model's parameters, and which of the two the model computes
// with.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>
#include <ddpxx/optim/ema.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// A model whose parameters `strategy` holds, and their moving average if one is kept. The model computes with its
/// parameters, or with their average between show_average() and show_parameters().
/// Ranks   All functions are collective, except take_back() and those that are const.
template <class Strategy>
class AveragedModel {
 public:
  /// A `decay` of 0 keeps no average. The strategy has its parameters already, and must outlive this object.
  AveragedModel(double decay, Strategy& strategy) : config_{.decay = decay}, strategy_{&strategy} {
    if (decay > 0) average_.emplace(config_, strategy.slices());
  }

  /// Adds the stepped parameters to their average, and finishes the strategy's step.
  void finish_step() {
    // Where ranks drift apart, the strategy may average their parameters here, and the moving average takes the result.
    // Other strategies start to send the parameters here, so that the moving average reads them before.
    if (average_ && !LetsRanksDrift<Strategy>) average_->update();
    strategy_->finish_step();
    if (average_ && LetsRanksDrift<Strategy>) average_->update();
  }

  /// Gives the model the average of its parameters, if one is kept.
  void show_average() {
    if (!average_) return;
    strategy_->wait_pending();  // pending all-gathers read the memory that swap() overwrites
    if (computes_with_ != Values::average) average_->swap();
    computes_with_ = Values::average;
    strategy_->finish_step();
  }
  /// Gives the model its parameters again.
  void show_parameters() {
    if (computes_with_ == Values::parameters) return;
    strategy_->wait_pending();  // an exception may have left gathers of the average under way
    if (computes_with_ == Values::average) average_->swap();
    computes_with_ = Values::copies_of_average;  // until finish_step() has returned
    strategy_->finish_step();
    computes_with_ = Values::parameters;
  }
  /// Exchanges this rank's parameters and their average back after an exception since show_average(); does nothing if
  /// they are where they belong. The model gets its parameters back in show_parameters(), since that may take a
  /// collective. Where they cannot be exchanged, as after an error of a GPU, the model keeps the average.
  /// Ranks   Local.
  void take_back() noexcept {
    if (computes_with_ != Values::average) return;
    try {
      average_->swap();
      computes_with_ = Values::copies_of_average;
    } catch (const std::exception&) {  // the caller throws the exception that came first
    }
  }
  /// Errors  `config` while the model has the average: `call`, which is named in the error, would take it for the
  ///         parameters.
  void expect_parameters(std::string_view call) const {
    if (computes_with_ == Values::average)
      throw Error{Errc::config, std::string{call} +
                                    " was called while the model has the moving average of its parameters, as during "
                                    "an evaluation: call it after that"};
  }

  /// The average, for a snapshot; none if no average is kept.
  std::optional<StatePart> state() const {
    return average_ ? std::optional{moment_part(strategy_->trainable(), average_->average())} : std::nullopt;
  }
  /// Continues after step `step`, whose parameters have been read; `is_held` tells whether the average has been read
  /// too. If not, it begins anew.
  void resume_at(std::int64_t step, bool is_held) {
    strategy_->finish_step();  // the model computes with what was read
    computes_with_ = Values::parameters;
    if (!average_) return;
    if (is_held)
      average_->resume_at(step);
    else
      average_.emplace(config_, strategy_->slices());
  }

 private:
  /// The values with which the model computes. `copies_of_average`: the slices have the parameters again, but the
  /// strategy's copies of them, such as gathered ones, may have the average.
  enum class Values { parameters, average, copies_of_average };

  EMAConfig config_;
  Strategy* strategy_;
  std::optional<EMA> average_;
  Values computes_with_ = Values::parameters;
};

}  // namespace ddpxx
