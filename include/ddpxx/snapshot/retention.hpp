// ddpxx/snapshot/retention.hpp — which snapshots are kept.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include <ddpxx/core/metric_mode.hpp>

namespace ddpxx {

/// The facts of a snapshot by which `Retention` chooses.
struct RetainedSnapshot {
  std::int64_t step = 0;
  std::map<std::string, double> metrics = {};
  std::int64_t epoch = 0;
  std::int64_t written_at = 0;  ///< Seconds since 1970-01-01 UTC; 0 if unknown.
};

/// Rules that say which snapshots to keep. A snapshot is kept if any rule keeps it; the newest is always kept.
struct Retention {
  std::int64_t last = 0;              ///< Keeps this many of the newest; 0 keeps all snapshots.
  std::int64_t best = 0;              ///< Keeps this many with the best value of `metric`.
  std::string metric = "loss";        ///< Snapshots without a finite value of it are not among the best.
  MetricMode mode = MetricMode::min;  ///< Whether the lowest or the highest value of `metric` is the best.
  std::int64_t every_steps = 0;       ///< Keeps snapshots whose step is a multiple of this; 0 is off.
  std::int64_t every_epochs = 0;      ///< Keeps the first snapshot after every this many complete epochs; 0 is off.
  double every_seconds = 0.0;         ///< Keeps the oldest, and each that was written at least this long after the last
                                      ///< one that this rule keeps; 0 is off.

  /// Returns the steps to keep.
  std::set<std::int64_t> keep(std::span<const RetainedSnapshot> snapshots) const;

 private:
  /// Adds the steps that `every_epochs` and `every_seconds` keep. Goes from the oldest to the newest snapshot: one that
  /// these rules keep stays kept when newer ones are added.
  void keep_by_epoch_and_time(std::span<const RetainedSnapshot> snapshots, std::set<std::int64_t>& kept) const;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/retention_inl.hpp>
#endif
