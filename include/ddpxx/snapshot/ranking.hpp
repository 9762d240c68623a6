// ddpxx/snapshot/ranking.hpp — which snapshots of a run are the best.
#pragma once

#include <string>
#include <string_view>

#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// The metric by which snapshots are ranked.
struct Ranking {
  std::string metric = "loss";
  MetricMode mode = MetricMode::min;

  bool is_better(double value, double than) const noexcept {
    return mode == MetricMode::min ? value < than : value > than;
  }
};

/// The ranking that a run has recorded as `snapshot.best_by` and `snapshot.best_mode`; by the lowest loss if it has
/// recorded none.
inline Ranking recorded_ranking(const Settings& settings) {
  const auto unquoted = [](std::string_view text) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    return std::string{text};
  };
  Ranking ranking;
  for (const auto& setting : settings) {
    if (setting.path.ends_with("snapshot.best_by")) ranking.metric = unquoted(setting.value);
    if (setting.path.ends_with("snapshot.best_mode"))
      ranking.mode = unquoted(setting.value) == "max" ? MetricMode::max : MetricMode::min;
  }
  return ranking;
}

}  // namespace ddpxx
