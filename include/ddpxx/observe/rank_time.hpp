// ddpxx/observe/rank_time.hpp — how long one rank needs for a step, beside what the others need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddpxx {

/// The time of one rank in a step, in milliseconds. Ranks wait for each other in every step, so that the whole step
/// takes equally long on all of them. The rank for which the others wait has the largest `own_ms`.
struct RankTime {
  double own_ms = 0;   ///< Time of the step without waiting for collectives.
  double data_ms = 0;  ///< The part of own_ms in which the rank waited for its batches; 0 for batches from elsewhere.
};

/// The slowest rank of a step, and the one in the middle.
struct RankTimeSpread {
  std::int64_t slowest_rank = 0;
  double slowest_ms = 0;  ///< own_ms of the slowest rank.
  double median_ms = 0;   ///< Median of own_ms; the lower one of two, so that of two ranks one can be slower.
};

/// `times` are those of the ranks in order, at least one.
inline RankTimeSpread spread_of(std::span<const RankTime> times) {
  const auto slowest = std::ranges::max_element(times, {}, &RankTime::own_ms);
  std::vector<double> own;
  own.reserve(times.size());
  for (const auto& time : times) own.push_back(time.own_ms);
  const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
  std::ranges::nth_element(own, middle);
  return {slowest - times.begin(), slowest->own_ms, *middle};
}

}  // namespace ddpxx
