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

namespace ddpxx {

/// What the choice looks at.
struct RetainedSnapshot {
  std::int64_t step = 0;
  std::map<std::string, double> metrics = {};
  std::int64_t epoch = 0;
  std::int64_t written_at = 0;  ///< In seconds since the begin of 1970; 0 where nobody knows.
};

/// A snapshot that any of the rules keeps is kept, and the newest one always.
struct Retention {
  std::int64_t last = 0;          ///< The newest ones; 0 keeps all snapshots.
  std::int64_t best = 0;          ///< Those with the lowest value of `metric`.
  std::string metric = "loss";    ///< Snapshots that lack it are not among the best.
  std::int64_t every_steps = 0;   ///< Those whose step it divides; 0 is none.
  std::int64_t every_epochs = 0;  ///< The first one after each so many complete epochs; 0 is none.
  double every_seconds = 0.0;     ///< The oldest one, and each written so long after the last of these; 0 is none.

  /// The steps to keep.
  std::set<std::int64_t> keep(std::span<const RetainedSnapshot> snapshots) const {
    std::vector<std::int64_t> newest;
    std::vector<std::pair<double, std::int64_t>> ranked;  // equal values: the newer one first
    for (const auto& [step, metrics, epoch, written_at] : snapshots) {
      newest.push_back(step);
      if (const auto value = metrics.find(metric); value != metrics.end()) ranked.emplace_back(value->second, -step);
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
  /// Going from the oldest on, so that what is kept once is kept again whatever follows it.
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
      // A clock that was set back must not keep the rule from going on.
      if (time && std::abs(static_cast<double>(snapshot->written_at - *time)) < every_seconds) continue;
      time = snapshot->written_at;
      kept.insert(step);
    }
  }
};

}  // namespace ddpxx
