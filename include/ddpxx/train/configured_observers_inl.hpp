// ddpxx/train/configured_observers_inl.hpp — definitions of configured_observers.hpp; ddpxx/core/inline.hpp says how
// they are compiled.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <ostream>

#include <ddpxx/observe/csv_file.hpp>
#include <ddpxx/observe/metrics_file.hpp>
#include <ddpxx/observe/progress.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/observe/slow_ranks.hpp>
#include <ddpxx/observe/tensorboard.hpp>
#include <ddpxx/train/configured_observers.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

DDPXX_INLINE void add_configured_observers(RunReport& report, const TrainingConfig& training, std::ostream& screen) {
  if (!training.metrics.empty()) report.add(std::make_shared<MetricsFile>(training.metrics));
  if (!training.csv.empty()) report.add(std::make_shared<CsvFile>(training.csv));
  if (!training.tensorboard.empty()) report.add(std::make_shared<TensorBoard>(training.tensorboard));
  report.add(std::make_shared<Progress>(screen, ProgressOptions{.plain_interval = std::chrono::milliseconds{
                                                                    std::llround(training.progress_every * 1000)}}));
  if (training.slow_rank_factor > 0) report.add(std::make_shared<SlowRanks>(training.slow_rank_factor));
}

}  // namespace ddpxx
