// ddpxx/snapshot/retention_inl.hpp — the definitions of retention.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx {

DDPXX_INLINE std::set<std::int64_t> Retention::keep(std::span<const RetainedSnapshot> snapshots) const {
  std::vector<std::int64_t> newest;
  std::vector<std::pair<double, std::int64_t>> ranked;  // equal values: the newer one first
  for (const auto& [step, metrics, epoch, written_at] : snapshots) {
    newest.push_back(step);
    if (const auto value = metrics.find(metric); value != metrics.end() && std::isfinite(value->second))
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
  keep_by_epoch_and_time(snapshots, kept);
  if (!newest.empty()) kept.insert(newest.front());
  return kept;
}

DDPXX_INLINE void Retention::keep_by_epoch_and_time(std::span<const RetainedSnapshot> snapshots,
                                                    std::set<std::int64_t>& kept) const {
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

}  // namespace ddpxx
