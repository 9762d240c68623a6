// ddpxx/observe/slow_ranks_inl.hpp — definitions of slow_ranks.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/rank_time.hpp>
#include <ddpxx/observe/short_text.hpp>
#include <ddpxx/observe/slow_ranks.hpp>

namespace ddpxx {

DDPXX_INLINE SlowRanks::SlowRanks(double factor, std::int64_t window, Log log)
    : factor_{factor}, window_{window}, log_{log} {}

DDPXX_INLINE std::string SlowRanks::name() const { return "SlowRanks"; }

DDPXX_INLINE void SlowRanks::on_begin(const RunBegan& run) {
  hosts_ = run.hosts;
  sums_.clear();
  slow_windows_.clear();
  steps_ = 0;
}

DDPXX_INLINE Verdict SlowRanks::on_step(const StepDone& event) {
  sums_.resize(event.rank_times.size());
  slow_windows_.resize(event.rank_times.size());
  for (std::size_t rank = 0; rank < sums_.size(); ++rank) {
    sums_[rank].own_ms += event.rank_times[rank].own_ms;
    sums_[rank].data_ms += event.rank_times[rank].data_ms;
  }
  if (++steps_ < window_) return Verdict::go_on;
  if (!sums_.empty()) compare();
  sums_.clear();
  steps_ = 0;
  return Verdict::go_on;
}

DDPXX_INLINE void SlowRanks::compare() {
  const auto median = spread_of(sums_).median_ms;
  for (std::size_t rank = 0; rank < sums_.size(); ++rank) {
    auto& windows = slow_windows_[rank];
    windows = sums_[rank].own_ms > factor_ * median ? windows + 1 : 0;
    if (windows == 2) log_.warn(text(rank, median));
  }
}

DDPXX_INLINE std::string SlowRanks::text(std::size_t rank, double median) const {
  const auto mean = [&](double sum) { return formatted("%.1f ms", sum / static_cast<double>(steps_)); };
  const auto& [own, data] = sums_[rank];
  return "rank " + std::to_string(rank) + (rank < hosts_.size() ? " on host " + hosts_[rank] : "") +
         " is slow, and the other ranks wait for it: by itself it needs " + mean(own) + " for a step (" + mean(data) +
         " of them for its batches), and the median rank " + mean(median);
}

}  // namespace ddpxx
