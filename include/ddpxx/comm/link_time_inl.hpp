// ddpxx/comm/link_time_inl.hpp — the definitions of link_time.hpp.
#pragma once

#include <cmath>
#include <optional>
#include <span>

#include <ddpxx/comm/link_config.hpp>
#include <ddpxx/comm/link_time.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

/// Cost of a collective: the number of messages sent one after another, and how many times its bytes cross one rank's
/// link.
struct LinkUse {
  double messages = 0;
  double passes = 0;
};

inline LinkUse link_use(const RecordedCall& call) {
  if (call.ranks == 1) return {};
  if (call.op == "broadcast") return {std::ceil(std::log2(call.ranks)), 1};
  const double others = call.ranks - 1;
  // An all-reduce goes around the ring twice, a gather or a reduce-scatter once.
  const double rounds = call.op == "all_gather" || call.op == "reduce_scatter" ? 1 : 2;
  return {rounds * others, rounds * others / call.ranks};
}

}  // namespace detail

DDPXX_INLINE double seconds_of(const RecordedCall& call, const LinkConfig& link) {
  const auto use = detail::link_use(call);
  const auto bytes = use.passes * static_cast<double>(call.bytes);
  return use.messages * link.latency + (bytes > 0 ? bytes / link.bandwidth : 0.0);
}

DDPXX_INLINE std::optional<LinkConfig> fit_link(std::span<const MeasuredAllReduce> times, int ranks) {
  // Least squares of the relative error: for each measured time t, a · latency + b / bandwidth should be 1, where
  // a = messages / t and b = passes · bytes / t. aa, ab, bb, a1 and b1 are the sums of the normal equations.
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const auto& [bytes, seconds] : times) {
    const auto use = detail::link_use({"all_reduce", bytes, ranks});
    const auto a = use.messages / seconds, b = use.passes * static_cast<double>(bytes) / seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const auto determinant = aa * bb - ab * ab;
  const auto latency = (a1 * bb - b1 * ab) / determinant;
  // A latency below 0 would be an error of measurement: the bytes alone explain the times best then.
  const auto link = latency < 0 ? LinkConfig{.latency = 0, .bandwidth = bb / b1}
                                : LinkConfig{.latency = latency, .bandwidth = determinant / (b1 * aa - a1 * ab)};
  const bool is_known = std::isfinite(link.latency) && std::isfinite(link.bandwidth) && link.bandwidth > 0;
  return is_known ? std::optional{link} : std::nullopt;
}

}  // namespace ddpxx
