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

/// The messages of a collective that follow one another, and how many times its bytes pass the link of a rank.
struct LinkUse {
  double messages = 0;
  double passes = 0;
};

inline LinkUse link_use(const RecordedCall& call) {
  if (call.ranks == 1) return {};
  if (call.op == "broadcast") return {std::ceil(std::log2(call.ranks)), 1};
  const double others = call.ranks - 1;
  const double ways = call.op == "all_gather" || call.op == "reduce_scatter" ? 1 : 2;
  return {ways * others, ways * others / call.ranks};
}

}  // namespace detail

DDPXX_INLINE double seconds_of(const RecordedCall& call, const LinkConfig& link) {
  const auto use = detail::link_use(call);
  const auto bytes = use.passes * static_cast<double>(call.bytes);
  return use.messages * link.latency + (bytes > 0 ? bytes / link.bandwidth : 0.0);
}

DDPXX_INLINE std::optional<LinkConfig> fit_link(std::span<const MeasuredAllReduce> times, int ranks) {
  // With t as the measured time, each size wants (messages / t) latency + (passes bytes / t) / bandwidth = 1.
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
