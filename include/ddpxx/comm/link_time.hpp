// ddpxx/comm/link_time.hpp — how long collectives take over links of a given speed, and the speed that explains
// measured times.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ddpxx/comm/link_config.hpp>
#include <ddpxx/comm/recording.hpp>

namespace ddpxx {

/// The seconds of a collective over such links, if the ranks send pieces around a ring: an all-reduce of n bytes on W
/// ranks is 2 (W - 1) messages of n / W bytes, a gather or a reduce-scatter is half of that. A broadcast reaches the
/// ranks in log2(W) messages, and its bytes follow each other.
double seconds_of(const RecordedCall& call, const LinkConfig& link);

/// The size of an all-reduce on each rank, and the time that it took.
struct MeasuredAllReduce {
  std::int64_t bytes = 0;
  double seconds = 0.0;
};

/// The links with which seconds_of() comes nearest to the measured times, by the squares of the relative errors, so
/// that small messages count as much as large ones. None if the times do not tell a bandwidth: all sizes are equal, or
/// the largest are so small that their bytes take no time.
std::optional<LinkConfig> fit_link(std::span<const MeasuredAllReduce> times, int ranks);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/link_time_inl.hpp>
#endif
