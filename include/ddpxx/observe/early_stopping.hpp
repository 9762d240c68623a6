// ddpxx/observe/early_stopping.hpp — stops a run whose evaluations do not improve any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/early_stopping_config.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

/// Throws where early stopping is on and the evaluation does not have its metric. All ranks have the same evaluation,
/// so that they throw together.
void check_early_stopping(const EarlyStoppingConfig& config, const Evaluated& event);

/// Votes to stop once `patience` evaluations in a row have not improved the best value of a metric by more than
/// `min_delta`. A value that is not finite is not an improvement. A resumed run begins to count anew.
class EarlyStopping : public Observer {
 public:
  /// Errors  `config` for a config without a metric.
  explicit EarlyStopping(EarlyStoppingConfig config, Log log = Log{0});

  DDPXX_INLINE std::string name() const override;

  DDPXX_INLINE void on_begin(const RunBegan&) override;
  /// Errors  `config` where an evaluation has no metric of that name.
  DDPXX_INLINE Verdict on_evaluated(const Evaluated& event) override;

 private:
  EarlyStoppingConfig config_;
  Log log_;
  std::optional<double> best_;
  std::int64_t evaluations_without_ = 0;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/early_stopping_inl.hpp>
#endif
