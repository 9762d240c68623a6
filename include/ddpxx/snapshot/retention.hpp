// ddpxx/snapshot/retention.hpp — which snapshots are kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
  std::string metric = "loss";        ///< Snapshots without this metric are not among the best.
  MetricMode mode = MetricMode::min;  ///< Whether the lowest or the highest value of `metric` is the best.
  std::int64_t every_steps = 0;       ///< Keeps snapshots whose step is a multiple of this; 0 is off.
  std::int64_t every_epochs = 0;      ///< Keeps the first snapshot after every this many complete epochs; 0 is off.
  double every_seconds = 0.0;         ///< Keeps the oldest, and each that was written at least this long after the last
                                      ///< one that this rule keeps; 0 is off.

  /// Returns the steps to keep.
  std::set<std::int64_t> keep(std::span<const RetainedSnapshot> snapshots) const {
    std::vector<std::int64_t> newest;
    std::vector<std::pair<double, std::int64_t>> ranked;  // equal values: the newer one first
    for (const auto& [step, metrics, epoch, written_at] : snapshots) {
      newest.push_back(step);
      if (const auto value = metrics.find(metric); value != metrics.end())
        ranked.emplace_back(mode == MetricMode::min ? value->second : -value->second, -step);
    }
    std::sort(newest.rbegin(), newest.rend());
    std::sort(ranked.begin(), ranked.end());
    std::set<std::int64_t> kept;
    const auto take = [&](std::int64_t most, std::size_t there, auto&& step_of) {
      for (std::size_t i = 0; i < there && i < static_cast<std::size_t>(most); ++i) kept.insert(step_of(i));
    };
    const auto all = static_cast<std::int64_t>(newest.size());
    take(last == 0 ? all : last, newest.size(), [&](std::size_t i) { return newest[i]; });
    take(best, ranked.size(), [&](std::size_t i) { return -ranked[i].second; });
    if (every_steps > 0)
      for (const auto step : newest)
        if (step % every_steps == 0) kept.insert(step);
    keep_first_ones(snapshots, kept);
    if (!newest.empty()) kept.insert(newest.front());
    return kept;
  }

 private:
  /// Goes from the oldest to the newest: a snapshot that these rules keep stays kept when newer ones are added.
  void keep_first_ones(std::span<const RetainedSnapshot> snapshots, std::set<std::int64_t>& kept) const {
    std::map<std::int64_t, const RetainedSnapshot*> by_step;
    for (const auto& snapshot : snapshots) by_step.emplace(snapshot.step, &snapshot);
    std::int64_t rounds = 0;
    std::optional<std::int64_t> time;
    for (const auto& [step, snapshot] : by_step) {
      if (every_epochs > 0 && snapshot->epoch / every_epochs > rounds) {
        rounds = snapshot->epoch / every_epochs;
        kept.insert(step);
      }
      if (every_seconds <= 0 || snapshot->written_at == 0) continue;
      // Compare the distance in both directions, so that the rule goes on after a clock was set back.
      if (time && std::abs(static_cast<double>(snapshot->written_at - *time)) < every_seconds) continue;
      time = snapshot->written_at;
      kept.insert(step);
    }
  }
};

}  // namespace ddpxx
